"""What makes a run degraded or invalid, and that the reason is given with its number."""

import json
from collections.abc import Container
from dataclasses import replace
from pathlib import Path
from typing import Any

import polars as pl
import pytest

from testbed.model.summary import Summary
from testbed.model.units import NS_PER_S, show_duration
from testbed.model.workload import Connections, Transfer
from testbed.results.analysis.metrics import flow_tables, summarise
from testbed.results.analysis.verdict import (
    FINDINGS,
    NOT_DELIVERED,
    NOTHING_FINISHED,
    STOLEN_MENTIONED,
)
from testbed.results.records import ARRIVALS, LINKS
from testbed.results.run_data import RunData, load_run

from .synthetic import Failure, Plan, generate, ns

PLAN = Plan(duration=5.0, failures=())


def verdict_of(directory: Path) -> Summary:
    data = load_run(directory)
    return summarise(data, flow_tables(data))


OF_THE_MACHINE = {"busy_share", "stolen_share", "cores", "timer_late_ns"}


def rewrite_health(directory: Path, seconds: Container[int] | None = None, **changes: Any) -> None:
    """Change fields of h0's samples (or, for those of it, the machine's), of these seconds."""
    process = "machine" if changes.keys() & OF_THE_MACHINE else "h0"
    path = directory / "health.jsonl"
    samples = [json.loads(line) for line in path.read_text().splitlines()]
    for second, sample in enumerate((s for s in samples if s["process"] == process), 1):
        if seconds is None or second in seconds:
            sample.update(changes)
    path.write_text("".join(json.dumps(sample) + "\n" for sample in samples))


@pytest.fixture
def run(tmp_path: Path) -> Path:
    generate(tmp_path / "run", PLAN)
    return tmp_path / "run"


def test_a_quiet_machine_is_trusted(run: Path) -> None:
    summary = verdict_of(run)
    assert (summary.verdict, summary.reasons) == ("trusted", ())


@pytest.mark.parametrize(
    ("changes", "state", "words"),
    [
        ({"lag_p99_ns": 15_000_000}, "degraded", ["h0", "15 ms", "11.5% of a base RTT"]),
        ({"lag_p99_ns": 40_000_000}, "invalid", ["40 ms", "30.5% of a base RTT"]),
        ({"lag_max_ns": 50_000_000}, "degraded", ["50 ms", "longest"]),
        ({"lag_max_ns": 140_000_000}, "invalid", ["107% of a base RTT"]),
        ({"busy_share": 0.9}, "degraded", ["90% busy"]),
        ({"busy_share": 0.99}, "invalid", ["99% busy"]),
        ({"cores": {"cpu0": 0.5, "cpu1": 0.97}}, "degraded", ["cpu1 alone was 97% busy"]),
        ({"timer_late_ns": 40_000_000}, "degraded", ["a timer fired 40 ms late"]),
        ({"cpu_ns": 960_000_000}, "degraded", ["h0 used 96% of a core"]),
    ],
)
def test_a_busy_or_late_machine(
    run: Path, changes: dict[str, Any], state: str, words: list[str]
) -> None:
    rewrite_health(run, **changes)
    summary = verdict_of(run)
    assert summary.verdict == state
    assert all(word in summary.reasons[0] for word in words), summary.reasons


@pytest.mark.parametrize("stolen", [0.001, 0.05])
def test_what_was_stolen_is_told_beside_what_it_did(run: Path, stolen: float) -> None:
    rewrite_health(run, stolen_share=stolen)
    assert verdict_of(run).verdict == "trusted"
    rewrite_health(run, lag_p99_ns=15_000_000)
    mentioned = [
        reason for reason in verdict_of(run).reasons if "gave 5% of its CPUs' time" in reason
    ]
    assert len(mentioned) == (stolen > STOLEN_MENTIONED)


@pytest.mark.parametrize(
    ("seconds", "state", "words"),
    [
        ((2,), "trusted", ""),
        ((2, 13), "degraded", "in 5% of the seconds"),
        ((5,), "degraded", "while a fault was measured"),
        ((9,), "degraded", "while a fault was measured"),
    ],
    ids=["once", "more often", "as the fault struck", "as it was healed"],
)
def test_a_late_second_counts_where_a_fault_is_measured(
    tmp_path: Path, seconds: tuple[int, ...], state: str, words: str
) -> None:
    """Elsewhere one in twenty may be: of 15 s of two hosts, one."""
    generate(tmp_path / "run", Plan(duration=15.0, failures=(Failure(at=4.0, until=8.0),)))
    rewrite_health(tmp_path / "run", seconds, lag_p99_ns=15_000_000)
    summary = verdict_of(tmp_path / "run")
    assert summary.verdict == state
    assert words in "".join(summary.reasons)


@pytest.mark.parametrize(
    ("busy", "measured", "cpus", "mentioned"),
    [(0.9, 1, 1, True), (0.9, 1.5, 1, False), (0.5, 1, 1, False), (0.9, 1, 2, False)],
    ids=["costly", "as measured", "idle", "few packets"],
)
def test_packets_that_cost_more_than_was_measured_ask_to_measure_again(
    run: Path, busy: float, measured: float, cpus: int, mentioned: bool
) -> None:
    """Two endpoints at 21% of a core each, 1.4 times what the machine was measured to take."""
    manifest = json.loads((run / "manifest.json").read_text())
    packets = sum(
        flow["packets_sent"] for flow in json.loads((run / "run.json").read_text())["flows"]
    )
    sent = pl.read_parquet(run / "transmissions.parquet")
    drained = sent.with_columns(t=pl.col("t") + PLAN.duration)
    pl.concat([sent, drained]).write_parquet(run / "transmissions.parquet")
    cost_ns = 2 * 0.21 * PLAN.duration * NS_PER_S / packets
    manifest["capacity"] = {"endpoint_ns": measured * cost_ns / 1.4, "cpus": cpus}
    (run / "manifest.json").write_text(json.dumps(manifest))
    rewrite_health(run, busy_share=busy)
    reasons = "\n".join(verdict_of(run).reasons)
    words = f"a packet took {show_duration(cost_ns)} of the endpoints' CPU time, 1.4 times"
    assert (words in reasons) == mentioned
    assert ("testbed doctor --measure" in reasons) == mentioned


@pytest.mark.parametrize(("drops", "state"), [(2, "degraded"), (500, "invalid")])
def test_drops_that_no_fault_explains(tmp_path: Path, drops: int, state: str) -> None:
    generate(tmp_path / "run", replace(PLAN, unexplained_drops=drops))
    summary = verdict_of(tmp_path / "run")
    assert summary.verdict == state
    assert f"raw_socket of h0 dropped {drops} packets" in summary.reasons[0]


def test_drops_of_the_first_second_count(run: Path) -> None:
    """They are in the first line, and none come after it."""
    rewrite_health(run, drops={"raw_socket": 3})
    summary = verdict_of(run)
    assert summary.verdict == "degraded"
    assert "raw_socket of h0 dropped 3 packets" in summary.reasons[0]


ACCOUNT = {
    "offered": 9000,
    "packets": 8900,
    "full": 60,
    "full_priority": 10,
    "lost": 20,
    "path_lost": 4,
    "blackholed": 6,
    "marked": 700,
    "trimmed": 500,
    "corrupted": 3,
    "peak_bytes": 90_000,
}
"""Of a direction in which every packet arrived or was dropped for a cause."""


def _with_accounts(directory: Path, **changes: int) -> Path:
    content = json.loads((directory / "run.json").read_text())
    names = ("h0>p0_t0_0", "p0_t0_0>h0", "p0_t0_0>p0_t1_1", "p0_t1_1>p0_t0_0")
    content["links"] = dict.fromkeys(names, ACCOUNT) | {"p0_t0_0>p0_t1_1": ACCOUNT | changes}
    (directory / "run.json").write_text(json.dumps(content))
    return directory


@pytest.mark.parametrize(
    ("packets", "state"),
    [(8900, "trusted"), (8899, "degraded"), (8902, "degraded"), (0, "invalid")],
)
def test_every_packet_of_a_link_is_accounted_for(run: Path, packets: int, state: str) -> None:
    summary = verdict_of(_with_accounts(run, packets=packets))
    assert summary.verdict == state, summary.reasons
    if state != "trusted":
        (reason,) = summary.reasons
        assert reason.startswith(f"{abs(8900 - packets)} packets are unaccounted for")
        assert (
            f"of 9000 sent into p0_t0_0>p0_t1_1, {packets} arrived and 100 were dropped" in reason
        )


@pytest.mark.parametrize(
    ("actuator", "step", "state"),
    [
        ("openflow", {"blackhole": True}, "trusted"),
        ("link", {"cut": True}, "trusted"),
        ("link", {"blackhole": True}, "degraded"),
    ],
)
def test_what_open_vswitch_or_a_port_without_carrier_dropped_is_in_no_account(
    tmp_path: Path, actuator: str, step: dict[str, bool], state: str
) -> None:
    generate(tmp_path / "run", Plan(duration=5.0))
    path = tmp_path / "run" / "faults.jsonl"
    fault = json.loads(path.read_text())
    assert set(fault["places"]) == {"p0_t0_0>p0_t1_1", "p0_t1_1>p0_t0_0"}
    times = dict.fromkeys(("requested_ns", "after_ns", "by_ns"), fault["effective_ns"])
    steps = [{**times, "state": step}]
    path.write_text(json.dumps(fault | {"actuator": actuator, "steps": steps}) + "\n")
    assert verdict_of(_with_accounts(tmp_path / "run", packets=8899)).verdict == state


def test_an_emulated_run_without_link_model_says_so_and_what_to_do(run: Path) -> None:
    content = json.loads((run / "run.json").read_text())
    content["link_model_missing"] = {"what": "the link model is not built", "remedy": "make setup"}
    (run / "run.json").write_text(json.dumps(content))
    summary = verdict_of(run)
    assert summary.verdict == "degraded"
    (reason,) = summary.reasons
    assert reason.startswith("no link model (the link model is not built)")
    assert "no ECN, no trimming, no priority" in reason
    assert reason.endswith("make setup")


def test_what_happened_before_the_start_does_not_count(run: Path) -> None:
    sample = {"t_ns": ns(-1), "process": "h0", "interval_ns": NS_PER_S, "lag_p99_ns": NS_PER_S}
    with (run / "health.jsonl").open("a") as file:
        file.write(json.dumps(sample) + "\n")
    assert verdict_of(run).verdict == "trusted"


def test_a_machine_that_was_not_watched_is_not_trusted(run: Path) -> None:
    (run / "health.jsonl").unlink()
    summary = verdict_of(run)
    assert summary.verdict == "degraded"
    assert "was not recorded" in summary.reasons[0]


@pytest.mark.parametrize(
    ("share", "waiting_bdp", "simulated", "slow"),
    [
        (0.96, 0.5, False, True),
        (0.98, 0.5, False, False),
        (0.96, 0.1, False, False),
        (0.96, 0.5, True, False),
    ],
)
def test_a_link_slower_than_its_rate_with_packets_waiting(
    run: Path, share: float, waiting_bdp: float, *, simulated: bool, slow: bool
) -> None:
    """Three seconds in which a queue was never short, before the fault; then the link is idle."""
    data = load_run(run)
    link = data.topology.links["h0--p0_t0_0"]
    rate_bps = data.topology.rate_bps(link)
    times = [0.25 * i for i in range(20)]
    busy = [1.0 <= t < 4.0 for t in times]
    waiting = round(waiting_bdp * data.topology.link_bdp_bytes(link))
    links = pl.DataFrame(
        {
            "t": times,
            "link": [link.name] * len(times),
            "direction": ["h0-p0>p0_t0_0-d0"] * len(times),
            "bytes": [round(min(t, 4.0) * share * rate_bps / 8) for t in times],
            "backlog_bytes": [waiting if is_busy else 0 for is_busy in busy],
        }
    )
    late = replace(
        data,
        tables={**data.tables, LINKS: links},
        manifest=data.manifest.model_copy(update={"simulated": simulated}),
    )
    reasons = summarise(late, flow_tables(late)).reasons
    mentioned = [reason for reason in reasons if "while packets were waiting" in reason]
    assert bool(mentioned) == slow
    if slow:
        assert mentioned[0].startswith("h0-p0>p0_t0_0-d0 carried 96% of its rate")


@pytest.mark.parametrize(("share", "state"), [(1.0, "trusted"), (1.02, "degraded")])
def test_a_link_faster_than_its_rate(run: Path, share: float, state: str) -> None:
    data = load_run(run)
    link, direction = "h0--p0_t0_0", "p0_t0_0>h0"
    rate = data.topology.rate_bps(data.topology.links[link])
    times = [0.0, 1.0, 5.0]
    links = pl.DataFrame(
        {
            "t": times,
            "link": [link] * 3,
            "direction": [direction] * 3,
            "packets": [0, 1, 2],
            "bytes": [1000 + round(share * rate / 8 * t) for t in times],
            "backlog_bytes": [0, 0, 0],
        }
    )
    fast = replace(data, tables={**data.tables, LINKS: links})
    summary = summarise(fast, flow_tables(fast))
    assert summary.verdict == state, summary.reasons
    if state == "degraded":
        assert summary.reasons == (
            f"{direction} carried 102% of its rate: the kernel did not pace it",
        )


def test_reordering_within_a_path(run: Path) -> None:
    data = load_run(run)
    arrivals = data.tables[ARRIVALS]
    # One packet in fifty arrives 30 ms late, behind two or three more of its own EV.
    late = arrivals["seq"] % 50 == 0
    times = arrivals["t"] + late.cast(float) * 0.03
    tables = {**data.tables, ARRIVALS: arrivals.with_columns(t=times).sort("t")}
    swapped = replace(data, tables=tables)
    summary = summarise(swapped, flow_tables(swapped))
    assert summary.verdict == "degraded"
    assert "overtaken on their own path" in summary.reasons[0]


def test_corrupted_data_invalidates(tmp_path: Path) -> None:
    generate(tmp_path / "run", replace(PLAN, bytes_corrupted=4096))
    summary = verdict_of(tmp_path / "run")
    assert summary.verdict == "invalid"
    assert not summary.integrity.intact
    assert "8192 corrupted" in summary.reasons[0]


def test_an_effect_known_only_roughly_degrades(tmp_path: Path) -> None:
    generate(tmp_path / "run", Plan(duration=5.0))
    path = tmp_path / "run" / "faults.jsonl"
    fault = json.loads(path.read_text())
    path.write_text(json.dumps({**fault, "effective_after_ns": ns(3.98)}) + "\n")
    summary = verdict_of(tmp_path / "run")
    assert summary.verdict == "degraded"
    assert "15.3% of a base RTT" in summary.reasons[0]


def test_a_fault_that_was_not_injected_invalidates(tmp_path: Path) -> None:
    generate(tmp_path / "run", Plan(duration=5.0))
    (tmp_path / "run" / "faults.jsonl").unlink()
    summary = verdict_of(tmp_path / "run")
    assert summary.verdict == "invalid"
    assert "1 faults of the timeline were not injected" in summary.reasons[0]


def test_the_worst_reason_comes_first(run: Path) -> None:
    rewrite_health(run, lag_p99_ns=20_000_000)
    rewrite_health(run, busy_share=0.99)
    summary = verdict_of(run)
    assert summary.verdict == "invalid"
    assert len(summary.reasons) == 2
    assert "busy" in summary.reasons[0]


@pytest.mark.parametrize(("lost", "reason"), [(9, NOT_DELIVERED), (10, "1 bytes lost")])
def test_what_is_still_under_way_is_told_from_what_is_lost(
    run: Path, lost: int, reason: str
) -> None:
    content = json.loads((run / "run.json").read_text())
    content["flows"][0] |= {"bytes_lost": lost, "bytes_under_way": 9}
    (run / "run.json").write_text(json.dumps(content))
    rewrite_health(run, stolen_share=2 * STOLEN_MENTIONED)
    summary = verdict_of(run)
    assert summary.verdict == "invalid"
    assert reason in summary.reasons[0]
    assert not summary.integrity.intact
    findings = FINDINGS.issuperset(summary.reasons)
    assert findings == (reason == NOT_DELIVERED), "which no thief of CPU time explains"


def test_no_arrivals_at_all(run: Path) -> None:
    data: RunData = load_run(run)
    empty = replace(data, tables={**data.tables, ARRIVALS: data.tables[ARRIVALS].clear()})
    summary = summarise(empty, flow_tables(empty))
    assert summary.verdict == "invalid"
    assert summary.reasons == ("no data arrived",)
    assert summary.flows[0].goodput_run_bps == 0


@pytest.mark.parametrize(
    ("sizes", "reasons"),
    [((0,), ()), ((0, 1000), (NOTHING_FINISHED,)), ((1000,), (NOTHING_FINISHED,))],
)
def test_transfers_without_end_are_not_to_finish(
    run: Path, sizes: tuple[int, ...], reasons: tuple[str, ...]
) -> None:
    data: RunData = load_run(run)
    matrix = tuple(Transfer(src="h0", dst="h4", size=size) for size in sizes)
    scenario = data.scenario.model_copy(update={"workload": Connections(matrix=matrix)})
    summary = summarise(replace(data, scenario=scenario), flow_tables(data))
    assert (summary.verdict, summary.reasons) == ("invalid" if reasons else "trusted", reasons)


def test_transfers_without_end_that_stop_are_as_any_workload_that_stops(tmp_path: Path) -> None:
    generate(tmp_path / "run", replace(PLAN, stops_at=2.0))
    data: RunData = load_run(tmp_path / "run")
    workload = Connections(matrix=(Transfer(src="h0", dst="h4", size=0),))
    scenario = data.scenario.model_copy(update={"workload": workload})
    summary = summarise(replace(data, scenario=scenario), flow_tables(data))
    assert "before the planned end" in summary.reasons[0]


def test_many_effects_known_only_roughly_are_one_reason(tmp_path: Path) -> None:
    """A run with hundreds of faults would have hundreds."""
    generate(tmp_path / "run", Plan(duration=5.0))
    path = tmp_path / "run" / "faults.jsonl"
    fault = json.loads(path.read_text())
    late = [{**fault, "index": i, "effective_after_ns": ns(at)} for i, at in enumerate([3.98, 3.9])]
    path.write_text("".join(json.dumps(reason) + "\n" for reason in late))
    (reason,) = verdict_of(tmp_path / "run").reasons
    assert "when fault 1 took effect" in reason
    assert reason.endswith("of 1 more to no better than 5%")


def test_a_fault_that_did_not_go_as_asked_invalidates(tmp_path: Path) -> None:
    generate(tmp_path / "run", Plan(duration=5.0))
    path = tmp_path / "run" / "faults.jsonl"
    fault = json.loads(path.read_text())
    path.write_text(json.dumps({**fault, "error": "the carrier did not come back"}) + "\n")
    summary = verdict_of(tmp_path / "run")
    assert summary.verdict == "invalid"
    assert "the carrier did not come back" in summary.reasons[0]
