"""Whether this machine carries the default permutation: all hosts at full rate, nothing breaks."""

import math

from testbed.bench.figure import Figure, at_least, at_most
from testbed.bench.runs import carried, run_until_trusted
from testbed.bench.setting import Setting
from testbed.files.scenarios import load_scenario
from testbed.results.json_records import mean_busy
from testbed.results.run_data import load_run

SCENARIO = "permutation"
MOST_BUSY_PERCENT = 70.0
"""Of all CPUs: what is left keeps a machine that does a little else trustworthy."""

LEAST_ATTAINABLE = 0.97
"""Of what the fabric allows, for every flow: MRC paper, appendix (97.5% of line rate)."""


def permutation(setting: Setting) -> list[Figure]:
    """Run it at the dilation that this machine carries, which `dilation: auto` finds as well."""
    scenario = carried(load_scenario(SCENARIO), setting)
    trusted, busy_percent, attainable = [], [], []
    for seed in range(1, setting.repeats + 1):
        seeded = scenario.model_copy(update={"seed": seed})
        what = f"permutation {seed}/{setting.repeats}"
        summary = run_until_trusted(seeded, setting, what)[-1]  # the trusted one, or the last
        data = load_run(setting.results / f"bench-{SCENARIO}" / summary.run)
        trusted.append(summary.verdict == "trusted")
        busy = mean_busy(data.health_during)
        busy_percent.append(math.inf if busy is None else busy * 100)
        attainable += [flow.attainable_fraction for flow in summary.flows]
    return [
        Figure("dilation", "", (scenario.topology.dilation,)),
        at_least("runs trusted", "", trusted, 1, every=True),
        at_most("all CPUs busy, mean of the run", "%", busy_percent, MOST_BUSY_PERCENT),
        at_least("goodput / attainable, every flow", "", attainable, LEAST_ATTAINABLE, every=True),
    ]
