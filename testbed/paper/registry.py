"""Every figure of the paper that is reproduced, in the paper's order."""

from testbed.paper.ablation import ABLATION
from testbed.paper.collectives import COLLECTIVES
from testbed.paper.failover import FAILOVER
from testbed.paper.figure import PaperFigure
from testbed.paper.incast import INCAST
from testbed.paper.jobs import JOBS
from testbed.paper.links import LINKS
from testbed.paper.paths import PATHS
from testbed.paper.rates import PERMUTATION, SEND_RECEIVE, TABLE
from testbed.paper.scale import SCALE
from testbed.paper.switches import SWITCHES
from testbed.paper.uplinks import UPLINKS

FIGURES: tuple[PaperFigure, ...] = (
    TABLE,
    *JOBS,
    *SWITCHES[:1],
    *LINKS,
    *SWITCHES[1:],
    *PATHS,
    SEND_RECEIVE,
    *COLLECTIVES,
    INCAST,
    *UPLINKS,
    PERMUTATION,
    FAILOVER,
    ABLATION,
    *SCALE,
)
