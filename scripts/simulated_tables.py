"""Write the documents' tables of simulated runs: equal on every machine, for one version.

A table stands between `<!-- simulated NAME -->` and `<!-- end -->`; NAME is one of `TABLES`. It
takes about two minutes.

    python scripts/simulated_tables.py
"""

import re
import sys
import tempfile
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path

import testbed
from testbed.model.summary import FaultSummary, Summary
from testbed.model.summary.metric import Value
from testbed.model.summary.unit import NEVER

DOCS = Path(__file__).parents[1] / "docs"
_TABLE = re.compile(r"(<!-- simulated ([\w ]+) -->\n).*?(<!-- end -->)", re.DOTALL)

KINDS = {
    "cut": ("link-failure-loud", "nic-port-loss", "plane-lost"),
    "blackhole": ("blackhole-one-way", "t1-death", "t0-death"),
    "loss": ("grey-link-0.1", "grey-link-1", "grey-link-5", "grey-link-20"),
    "corrupt": ("corrupting-link",),
    "degrade": ("degraded-links",),
    "delay": ("longer-fibre",),
    "ev_loss": ("lossy-ev",),
    "flap": ("flapping-link",),
    "reboot": ("t1-reboot",),
}

TRANSPORTS: Mapping[str, tuple[str, Mapping[str, object]]] = {
    "MRC": ("link-failure", {}),
    "`spray: blind`": ("link-failure", {"transport.spray": "blind"}),
    "`repair: go-back`": ("link-failure", {"transport.repair": "go-back"}),
    "`ecn_skip: false` (nothing is congested here)": (
        "link-failure",
        {"transport.ecn_skip": False},
    ),
    "RoCE, `convergence: null`: routing never converges": (
        "link-failure-roce",
        {"transport.convergence": None},
    ),
    "RoCE, `convergence: 50 us` (3.7 base RTTs)": (
        "link-failure-roce",
        {"transport.convergence": "50 us"},
    ),
}


def shown(value: Value) -> str:
    """A number with three significant digits, *never*, or a dash."""
    if value is None or value == NEVER:
        return "-" if value is None else "never"
    rounded = float(f"{value:.3g}")
    return f"{rounded:.2f}" if 1 <= abs(rounded) < 10 else f"{rounded:g}"  # noqa: PLR2004


def simulated(name: str, settings: Mapping[str, object] | None = None) -> Summary:
    """What a scenario comes to with seed 1."""
    print(name, *(settings or {}).items(), file=sys.stderr)
    with tempfile.TemporaryDirectory() as results:
        scenario = testbed.load_scenario(name, dict(settings or {}))
        return testbed.simulate(scenario, seed=1, results=results).summary


def fault_row(name: str, summary: Summary) -> str:
    """What the fault of a scenario did."""
    (fault,) = summary.faults
    values = fault.values
    recovery = shown(values["recovery_rtt"])
    lost = str(fault.packets_lost)
    if spurious := sum(flow.packets_spurious for flow in summary.flows):
        lost += f" ({spurious} more sent again needlessly)"
    residual = "-" if fault.residual_loss is None else f"{shown(100 * fault.residual_loss)}%"
    levels = _percent(fault.level), _percent(fault.level_even)
    times = shown(values["detection_rtt"]), shown(values["stall_rtt"]), recovery
    cells = (*levels, *times, lost, residual)
    return f"| `{name}` | {' | '.join(cells)} |"


def faults() -> Iterator[str]:
    """The effect of each kind of fault."""
    yield "| kind | scenario | level, of ideal split | of even split | first EV out, RTT |"
    yield " stall, RTT | recovery, RTT | packets lost | lost after detection |\n"
    yield "| --- | --- | ---: | ---: | ---: | ---: | ---: | ---: | ---: |\n"
    for kind, names in KINDS.items():
        for name in names:
            first = f"`{kind}` " if name == names[0] else ""
            yield f"| {first}{fault_row(name, simulated(name))}\n"


def transport_row(transport: str, summary: Summary) -> str:
    """What a silent link did to a transport."""
    (fault,) = summary.faults
    cells = [
        *map(_percent, (fault.level, fault.level_even)),
        *(
            shown(fault.values[f"{name}_rtt"])
            for name in ("stall", "capacity_lost", "deficit", "recovery")
        ),
    ]
    again = sum(flow.packets_retransmitted for flow in summary.flows)
    return f"| {transport} | {' | '.join(cells)} | {again:,} |"


def transports() -> Iterator[str]:
    """The same failure, by each transport."""
    yield "| transport | level, of ideal split | of even split | stall | capacity lost | deficit |"
    yield " recovery | packets sent again |\n"
    yield "| --- | ---: | ---: | ---: | ---: | ---: | ---: | ---: |\n"
    for transport, (name, settings) in TRANSPORTS.items():
        yield f"{transport_row(transport, simulated(name, settings))}\n"


def examples(summary: Summary) -> tuple[str, ...]:
    """What docs/metrics.md gives as examples, of link-failure."""
    (fault,) = summary.faults
    flow = min(summary.flows, key=lambda each: each.goodput_run_bps)
    messages = summary.messages
    if messages is None:
        raise ValueError("no message was completed")
    attainable = f"{(fault.attainable_bps or 0) / 1e6:.3g} Mbit/s"
    goodput = f"{flow.goodput_run_bps / 1e6:.3g} Mbit/s over the run, {flow.ideal_fraction:.1%}"
    missing = f"{_rtt(fault, 'capacity_lost')} and {_rtt(fault, 'deficit')} RTT"
    detected = (
        f"{_rtt(fault, 'ev_detection_median')} RTT (median), "
        f"{_rtt(fault, 'ev_detection_last')} RTT (last)"
    )
    lost = f"{fault.packets_lost} of {fault.packets_sent:,} packets, {fault.loss_share:.3%}"
    took = (
        f"{messages.median.ms:.3g} ms (median), {messages.p99.ms:.3g} ms (p99), "
        f"{messages.p999.ms:.3g} ms (p99.9)"
    )
    return (
        f"{attainable} before, during and after the fault",
        f"{goodput}; in force {fault.ideal_fraction:.1%}",
        f"{fault.level:.1%} in force, {fault.level_healed:.1%} afterwards",
        missing,
        f'{detected}, "{fault.affected_in_words}"',
        f"{_rtt(fault, 'stall')} and {_rtt(fault, 'in_order_delay')} RTT",
        f"{_rtt(fault, 'recovery')} RTT",
        f"{lost}; residual loss {shown(fault.residual_loss)}",
        f"{messages.messages} messages in {took}",
    )


def _percent(share: float | None) -> str:
    return "-" if share is None else f"{share:.1%}"


def _rtt(fault: FaultSummary, name: str) -> str:
    return shown(fault.values[f"{name}_rtt"])


TABLES: Mapping[str, Callable[[], Iterator[str]]] = {"faults": faults, "transports": transports}


if __name__ == "__main__":
    for document in sorted(DOCS.glob("*.md")):
        text = document.read_text(encoding="utf-8")
        written = _TABLE.sub(lambda match: match[1] + "".join(TABLES[match[2]]()) + match[3], text)
        if written != text:
            document.write_text(written, encoding="utf-8")
    for example in examples(simulated("link-failure")):
        print(f"docs/metrics.md should say: {example!r}")
