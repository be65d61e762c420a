"""What stands in the switch's flow table, and when a change to it was made.

A wire is two flows of the lower priority, one each way. A blackhole is a flow of the higher
priority with no action for each direction that it swallows, so that what comes in at that end is
dropped and both ends keep carrier.
"""

from dataclasses import dataclass

PATCH_PRIORITY = 100
DROP_PRIORITY = 200


@dataclass(frozen=True, slots=True)
class Commit:
    """When a set of changes was made to the switch's tables.

    Attributes:
        sent_ns: none of it had been sent before.
        confirmed_ns: the barrier behind it was answered.
    """

    sent_ns: int
    confirmed_ns: int
