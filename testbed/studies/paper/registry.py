"""Every figure of the paper that is reproduced, in the paper's order."""

from testbed.studies.paper.experiments.ablation import ABLATION
from testbed.studies.paper.experiments.arrivals import ARRIVALS
from testbed.studies.paper.experiments.claims import (
    ECMP,
    LOSSY_NIC,
    PLANES,
    PROBES,
    REMAP,
    TRANSCEIVER,
)
from testbed.studies.paper.experiments.collectives import COLLECTIVES
from testbed.studies.paper.experiments.failover import FAILOVER
from testbed.studies.paper.experiments.incast import INCAST, INCAST_WITHOUT_DCQCN
from testbed.studies.paper.experiments.jobs import JOBS
from testbed.studies.paper.experiments.over_time import LINKS_AND_SWITCHES, UNEQUAL_LINKS, UPLINKS
from testbed.studies.paper.experiments.paths import PATHS
from testbed.studies.paper.experiments.permutation import PERMUTATION
from testbed.studies.paper.experiments.rates import SEND_RECEIVE, TABLE
from testbed.studies.paper.experiments.scale import SCALE
from testbed.studies.paper.experiments.training import TRAINING
from testbed.studies.paper.figure import PaperFigure

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

BY_NAME: tuple[PaperFigure, ...] = (TRAINING,)
"""Those that are made only if they are named, as they need what the testbed does not bring."""
