"""Every figure of the paper that is reproduced, in the paper's order."""

from testbed.paper.experiments.ablation import ABLATION
from testbed.paper.experiments.arrivals import ARRIVALS
from testbed.paper.experiments.claims.ecmp import ECMP
from testbed.paper.experiments.claims.lossy_nic import LOSSY_NIC
from testbed.paper.experiments.claims.planes import PLANES
from testbed.paper.experiments.claims.probes import PROBES
from testbed.paper.experiments.claims.remap import REMAP
from testbed.paper.experiments.claims.transceiver import TRANSCEIVER
from testbed.paper.experiments.collectives import COLLECTIVES
from testbed.paper.experiments.failover import FAILOVER
from testbed.paper.experiments.incast import INCAST, INCAST_WITHOUT_DCQCN
from testbed.paper.experiments.jobs import JOBS
from testbed.paper.experiments.over_time import LINKS_AND_SWITCHES
from testbed.paper.experiments.paths import PATHS
from testbed.paper.experiments.permutation import PERMUTATION
from testbed.paper.experiments.rates import SEND_RECEIVE, TABLE
from testbed.paper.experiments.scale import SCALE
from testbed.paper.experiments.uplinks import UNEQUAL_LINKS, UPLINKS
from testbed.paper.figure import PaperFigure

FIGURES: tuple[PaperFigure, ...] = (
    TABLE,
    *JOBS,
    *LINKS_AND_SWITCHES,
    *PATHS,
    SEND_RECEIVE,
    *COLLECTIVES,
    INCAST,
    *UPLINKS,
    PERMUTATION,
    INCAST_WITHOUT_DCQCN,
    ARRIVALS,
    PLANES,
    REMAP,
    LOSSY_NIC,
    PROBES,
    ECMP,
    TRANSCEIVER,
    FAILOVER,
    ABLATION,
    UNEQUAL_LINKS,
    *SCALE,
)
