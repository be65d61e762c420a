"""PyTorch trains through a silently dead link: over MRC, over TCP and over Multipath TCP."""

import re
from collections.abc import Mapping
from dataclasses import replace
from math import inf
from types import MappingProxyType
from typing import Any

import numpy as np
import polars as pl
from matplotlib.figure import Figure
from matplotlib.ticker import LogLocator

from testbed.model.errors import RunFailedError
from testbed.model.run_files.layout import PROGRAMS
from testbed.results.analysis.operations import completed
from testbed.results.records import OPERATIONS
from testbed.results.report.figures import style
from testbed.runs.job import Form
from testbed.runs.result import Result
from testbed.runs.store import Results
from testbed.studies.paper.experiments.drawing import legend_below, new_panels
from testbed.studies.paper.figure import Check, PaperFigure, Variant, at_least, at_most, shown

_EMULATED_ONLY: Mapping[Form, str] = MappingProxyType(
    {"simulated": "a program computes in real time only"}
)
_LINE = re.compile(r"^step +\d+ +loss ([\d.]+)", re.MULTILINE)
_WEIGHTS = re.compile(r"^weights (\w+)$", re.MULTILINE)

_SLOWED = 3.0
"""Computing takes as long at any dilation: two CPUs shall have time left for it."""

FAILS_AT = 9
"""The first step that the failure may disturb: the link dies when the first host begins the next
(scenarios/paper/torch-training.yaml), and other hosts are not done with this one then."""

MOST_RTTS = 3.0
"""What a silent failure may cost a step: two losses on the way around the ring, 1.4 RTTs each."""


def _training(name: str, **changes: Any) -> Variant:
    return Variant(
        f"training-{name}", "torch-training", changes, slowed=_SLOWED, excluded=_EMULATED_ONLY
    )


def _over_gloo(name: str, variables: Mapping[str, Any], **changes: Any) -> Variant:
    """The job with PyTorch's own backend, over the hosts' ordinary addresses."""

    def with_gloo(data: Mapping[str, Any], _seed: int) -> dict[str, Any]:
        workload = data["workload"]
        command, env = [*workload["command"], "--backend", "gloo"], workload["env"] | variables
        return {"workload": {**workload, "command": command, "env": env}}

    return replace(_training(name, **changes), with_seed=with_gloo)


HEALTHY = _training("healthy", timeline=[])
MRC = _training("mrc")
OTHERS = {
    "TCP": _over_gloo("tcp", {}, topology="clos-1plane"),
    "Multipath TCP": _over_gloo("mptcp", {"TESTBED_MPTCP": 1}),
}
_DRAWN = {
    "MRC, no failure": (HEALTHY, style.GREY),
    "MRC": (MRC, style.BLUE),
    "TCP": (OTHERS["TCP"], style.VERMILLION),
    "Multipath TCP": (OTHERS["Multipath TCP"], style.ORANGE),
}


def steps_of(run: Result) -> pl.DataFrame:
    """The steps in order: `start` of the first host and `end` of the last, in seconds of the run.

    Raises:
        RunFailedError: not all were finished, or none came after the failure.
    """
    steps = completed(run.data.tables[OPERATIONS]).filter(kind="step").sort("number")
    if steps.height <= FAILS_AT:
        raise RunFailedError(f"{run.directory.name}: {steps.height} steps were finished")
    return steps


def losses_of(run: Result) -> list[float]:
    """The loss of each step, as rank 0 printed it."""
    return [float(loss) for loss in _LINE.findall(_printed(run))]


def weights_of(run: Result) -> str:
    """The checksum of the weights at the end, as rank 0 printed it; empty if it did not."""
    return next(iter(_WEIGHTS.findall(_printed(run))), "")


def _printed(run: Result) -> str:
    file = run.directory / PROGRAMS / "h0.log"
    return file.read_text(encoding="utf-8", errors="replace")


def steps_lost(run: Result) -> float:
    """How many usual steps longer it took from the failure to the end than so many usual steps."""
    steps = steps_of(run)
    lasted = (steps["end"] - steps["start"]).to_numpy()
    usual = float(np.median(lasted[1:FAILS_AT]))  # the first one is warming up
    took = float(steps["end"][-1] - steps["start"][FAILS_AT])
    return took / usual - (steps.height - FAILS_AT)


def _slowest_s(run: Result) -> float:
    steps = steps_of(run)[FAILS_AT:]
    return float((steps["end"] - steps["start"]).to_numpy().max())


def _measure(runs: Results) -> tuple[Check, ...]:
    mrc, healthy = runs[MRC.name], runs[HEALTHY.name]
    others = {name: runs[variant.name] for name, variant in OTHERS.items()}
    longer = (_slowest_s(mrc) - _slowest_s(healthy)) / mrc.data.base_rtt_s
    same = float(weights_of(mrc) == weights_of(healthy) != "")
    losses = losses_of(mrc)
    return (
        at_most("MRC's slowest step, beyond that without failure", longer, MOST_RTTS, "{:.1f} RTT"),
        shown("steps that the failure cost: MRC", steps_lost(mrc), "{:.1f}"),
        *(
            at_least(
                f"steps that the failure cost, beyond MRC's: {name}",
                steps_lost(run) - steps_lost(mrc),
                1.0,
                "{:.1f}",
            )
            for name, run in others.items()
        ),
        Check(
            "MRC's weights at the end, equal to those without failure", (same,), 1, inf, "{:.0f}"
        ),
        *(
            at_most(f"largest difference of a loss from MRC's: {name}", _apart(losses, run), 0.05)
            for name, run in others.items()
        ),
    )


def _apart(losses: list[float], run: Result) -> float:
    """The largest difference from the losses of a run, as a share."""
    found = losses_of(run)
    if len(found) != len(losses):
        return inf
    return max(abs(a - b) / b for a, b in zip(found, losses, strict=True))


def _draw(runs: Results) -> Figure:
    """Draw how far each job was, how long each step took, and the losses on one another."""
    figure, (progress, duration, loss) = new_panels(3.0, columns=3)
    for (label, (variant, colour)), width in zip(_DRAWN.items(), (6, 4, 2.4, 1), strict=True):
        run = runs[variant.name]
        steps = steps_of(run)
        start, end = steps["start"].to_numpy(), steps["end"].to_numpy()
        line: dict[str, Any] = {"color": colour, "linestyle": "--" if variant is HEALTHY else "-"}
        name = f"{label} (weights {weights_of(run)[:8] or 'not done'})"
        failed = start[FAILS_AT + 1]
        progress.step(
            [start[0] - failed, *(end - failed)],
            np.arange(len(end) + 1),
            where="post",
            label=name,
            **line,
        )
        duration.plot(np.arange(len(end)), end - start, "o", markersize=2, **line)
        loss.plot(losses_of(run), linewidth=width, **line)  # all are seen, on one another
    (fault,) = runs[MRC.name].summary.faults
    lasted_s = (fault.healed_s or 0.0) - (fault.effective_s or 0.0)
    style.shade(progress, 0, lasted_s, "link dead")
    progress.set_xlabel("time from the failure (s)")
    progress.set_ylabel("steps finished")
    duration.set_yscale("log")
    duration.yaxis.set_major_locator(LogLocator(subs=(1, 2, 5)))
    duration.yaxis.set_major_formatter("{x:g}")
    duration.yaxis.set_minor_formatter("")
    duration.set_xlabel("step")
    duration.set_ylabel("time of the step (s)")
    loss.set_xlabel("step")
    loss.set_ylabel("loss")
    legend_below(figure, 2, progress)
    return figure


TRAINING = PaperFigure("training", (HEALTHY, MRC, *OTHERS.values()), _measure, _draw, is_own=True)
