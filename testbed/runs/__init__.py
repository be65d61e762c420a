"""Everything that consists of many runs: they are planned, made, kept and resumed by one engine."""

PARENT_VARIABLE = "TESTBED_CAMPAIGN_PID"
"""The environment variable that tells a run of a campaign the process that it must not outlive."""
