"""Whether watching a run with --live took so much CPU time that it may have held up the run."""

from collections.abc import Sequence

from testbed.model.run_files.health import HealthSample, watching_shares
from testbed.model.units import show_share
from testbed.results.analysis.trust.grades import Reasons, degraded

WATCHING_DEGRADED = 0.03
"""A process that watches a run may use this share of a core. Ours."""


def costly_watching(samples: Sequence[HealthSample]) -> Reasons:
    """A reason for each process that used more than `WATCHING_DEGRADED`."""
    for process, share in watching_shares(samples).items():
        if share > WATCHING_DEGRADED:
            yield degraded(
                f"the {process} of --live took {show_share(share)} of a core; up to "
                f"{show_share(WATCHING_DEGRADED)} does not hold up the run"
            )
