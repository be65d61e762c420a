"""Whether this machine carries the default permutation: all hosts at full rate, nothing breaks."""

import math

from testbed.bench.figure import Figure, at_least, at_most, no_target
from testbed.bench.runs import carried, make_runs, seeded
from testbed.bench.setting import Setting
from testbed.files.scenarios import load_scenario
from testbed.model.run_files.health import mean_busy

SCENARIO = "permutation"
MOST_BUSY_PERCENT = 70.0
"""Of all CPUs: what is left keeps a machine that does a little else trustworthy."""

LEAST_ATTAINABLE = 0.97
"""Of what the fabric allows, for every flow: MRC paper, appendix (97.5% of line rate)."""


def permutation(setting: Setting) -> list[Figure]:
    """Run it at the dilation that this machine carries, which `dilation: auto` finds as well."""
    scenario = carried(load_scenario(SCENARIO), setting)
    runs = make_runs(seeded(scenario, setting), setting)
    busy = [mean_busy(made.run.data.health_during) for made in runs]
    busy_percent = [math.inf if share is None else share * 100 for share in busy]
    attainable = [flow.before_fraction or 0.0 for made in runs for flow in made.summary.flows]
    return [
        no_target("dilation", "", [scenario.topology.dilation]),
        at_least("runs trusted", "", [made.trusted for made in runs], 1, every=True),
        at_most("all CPUs busy, mean of the run", "%", busy_percent, MOST_BUSY_PERCENT),
        at_least("goodput / attainable, every flow", "", attainable, LEAST_ATTAINABLE, every=True),
    ]
