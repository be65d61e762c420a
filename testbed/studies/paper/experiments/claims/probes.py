"""Every link is probed once a millisecond (section 3)."""

from math import inf

from testbed.campaign.store import Runs
from testbed.studies.paper.checks import Check, at_least, at_most
from testbed.studies.paper.experiments.claims.claim import claim_over_time
from testbed.studies.paper.experiments.throughput import only
from testbed.studies.paper.figure import Variant

FEW_ROUNDS = 5
"""Rounds of probes until a silent link is named. The paper has no number; a link that loses all is
told apart from its neighbours by three lost probes (docs/clustermapper.md)."""


def _measure(runs: Runs) -> tuple[Check, ...]:
    localisation = only(runs).summary.localisation
    exact, rounds, wrong = 0.0, inf, inf
    if localisation is not None:
        exact, wrong = localisation.exact or 0.0, localisation.accusations_wrong
        rounds = inf if localisation.naming_rounds is None else localisation.naming_rounds
    return (
        at_least("silent links that are named exactly, of both tiers", exact, 1),
        at_most("links that are named wrongly", wrong, 0, "{:.0f}"),
        at_most("rounds of probes until a link is named", rounds, FEW_ROUNDS, "{:.0f}"),
    )


PROBES = claim_over_time(
    "text-probes", ((Variant("probe-each-ms", "probe-each-ms"), "two silent links"),), _measure
)
