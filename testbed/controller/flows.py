"""What stands in the switch's flow table.

A wire is two flows of the lower priority, one each way. A blackhole is a flow of the higher
priority with no action for each direction that it swallows, so that what comes in at that end is
dropped and both ends keep carrier.
"""

PATCH_PRIORITY = 100
DROP_PRIORITY = 200
