"""From a scenario to what every endpoint is told: see `testbed.endpoint.planning`."""

from testbed.endpoint.planning import (
    FIRST_QPN,
    Flow,
    fair_share_bps,
    flows_of,
    links_in_use_by_all,
    plan_endpoints,
)

__all__ = [
    "FIRST_QPN",
    "Flow",
    "fair_share_bps",
    "flows_of",
    "links_in_use_by_all",
    "plan_endpoints",
]
