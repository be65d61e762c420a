"""The transceiver of a NIC flaps, and its queue pairs fail (section 5.1)."""

import numpy as np
from matplotlib.figure import Figure

from testbed.campaign.store import Runs
from testbed.results.report.figures import style
from testbed.studies.paper.checks import Check, at_least, between
from testbed.studies.paper.experiments.claims.claim import claim
from testbed.studies.paper.experiments.drawing import (
    RATE_LABEL,
    legend_below,
    new_panels,
    shade_faults,
    time_axes,
)
from testbed.studies.paper.experiments.throughput import (
    only,
    payload_intact,
    sliding,
    total_bps,
    us_per_s,
)
from testbed.studies.paper.figure import Variant

FLAPPING_NIC = "h0"

MIN_UNAFFECTED_SHARE = 0.97
"""Of the rate before: what others keep, as in figure 8."""


def _measure(runs: Runs) -> tuple[Check, ...]:
    run = only(runs)
    its = [flow for flow in run.data.run.flows if FLAPPING_NIC in (flow.src, flow.dst)]
    others = [flow for flow in run.flows if FLAPPING_NIC not in (flow.flow.src, flow.flow.dst)]
    failed = sum(bool(flow.errors) for flow in its)
    (fault,) = run.summary.faults
    start, healed = fault.effective_s or 0.0, fault.healed_s or 0.0
    during, before = (
        total_bps(others, *span) for span in ((start, healed), (5 * run.data.base_rtt_s, start))
    )
    return (
        between("flows of the NIC that fail, of 4", failed, len(its), len(its), "{:.0f}"),
        between("flows of other NICs that fail", run.summary.qps_in_error - failed, 0, 0, "{:.0f}"),
        at_least("throughput of other NICs, of that before", during / before, MIN_UNAFFECTED_SHARE),
        payload_intact(run),
    )


def _draw(runs: Runs) -> Figure:
    """Throughput of the flows of the NIC, and of all others, over the run."""
    run = only(runs)
    figure, (axes,) = new_panels(2.6)
    its = [flow for flow in run.flows if FLAPPING_NIC in (flow.flow.src, flow.flow.dst)]
    others = [flow for flow in run.flows if flow not in its]
    rtt, us = run.data.base_rtt_s, us_per_s(run)
    moments = np.arange(0, run.data.end_s, rtt)
    for flows, label, colour in (
        (others, "flows of other NICs", style.BLUE),
        (its, f"flows of {FLAPPING_NIC}", style.VERMILLION),
    ):
        rates = sliding(run, flows, moments, 8 * rtt)
        axes.plot(us * moments, rates, color=colour, label=label)
    shade_faults(axes, run)
    time_axes(axes, run)
    axes.set_ylim(bottom=0)
    axes.set_ylabel(RATE_LABEL)
    legend_below(figure, 2)
    return figure


TRANSCEIVER = claim(
    "text-transceiver", (Variant("nic-transceiver", "nic-transceiver"),), _measure, _draw
)
