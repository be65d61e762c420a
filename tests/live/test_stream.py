"""The event stream of a run says what its tables say."""

import json
from collections.abc import Sequence
from itertools import pairwise
from pathlib import Path
from statistics import median

import polars as pl
import pytest
from jsonschema import Draft202012Validator

from testbed.live.stream.recorded import recorded_stream
from testbed.live.stream.records import (
    RECORD,
    Detection,
    EvChange,
    FaultChange,
    LinkMeasures,
    PacketBatch,
    Snapshot,
    State,
    StreamRecord,
    stream_schema,
    to_line,
)
from testbed.model.errors import InputError
from testbed.model.files.scenarios import load_scenario
from testbed.model.run_files.layout import SUMMARY
from testbed.results.analyse import analyse
from testbed.sim import simulate
from tests.live.conftest import FAILURE


@pytest.fixture(scope="module")
def records(failure: Path) -> Sequence[StreamRecord]:
    return [*recorded_stream(failure)]


def _states(records: Sequence[StreamRecord]) -> list[State]:
    return [record for record in records if isinstance(record, State)]


def test_ids_have_no_gaps_and_times_never_go_back(records: Sequence[StreamRecord]) -> None:
    assert [record.id for record in records] == list(range(len(records)))
    times = [record.t for record in records]
    assert times == sorted(times)


def test_the_first_record_is_the_snapshot_and_the_last_the_end(
    records: Sequence[StreamRecord],
) -> None:
    assert [records[0].type, records[-2].type, records[-1].type] == ["snapshot", "verdict", "end"]
    assert isinstance(records[0], Snapshot)
    assert {flow.name for flow in records[0].flows} == {"h0 → h1", "h1 → h0"}
    for ev in records[0].evs:
        assert ev.crosses[0].split(">")[0] in {"h0", "h1"}
        assert len(ev.addresses) == len(ev.crosses) == len(ev.usids)


def test_every_line_reads_back_and_fits_the_schema(records: Sequence[StreamRecord]) -> None:
    validator = Draft202012Validator(stream_schema())
    for record in records:
        line = to_line(record)
        assert RECORD.validate_json(line) == record
        assert not [*validator.iter_errors(json.loads(line))]


def test_goodput_adds_up_to_the_arrivals(failure: Path, records: Sequence[StreamRecord]) -> None:
    arrivals = pl.read_parquet(failure / "arrivals.parquet").filter(pl.col("t").is_between(0, 3))
    assert isinstance(records[0], Snapshot)
    step_s = records[0].step_s
    goodput: dict[int, float] = {}
    received = dict.fromkeys((0, 1), 0.0)
    for state in _states(records):
        goodput |= {
            flow: changed.goodput_bps
            for flow, changed in state.flows.items()
            if changed.goodput_bps is not None
        }
        for flow, rate in goodput.items():
            received[flow] += rate * step_s / 8
    for flow, total in arrivals.group_by("flow").agg(pl.col("bytes").sum()).iter_rows():
        assert received[flow] == pytest.approx(total, rel=2e-3)


def test_a_fault_is_requested_takes_effect_is_detected_and_heals(
    failure: Path, records: Sequence[StreamRecord]
) -> None:
    faults = [record for record in records if isinstance(record, FaultChange)]
    assert [fault.phase for fault in faults] == ["requested", "in effect", "healed"]
    assert [fault.impairment for fault in faults] == [{}, {"blackhole": True}, {}]
    assert sum(faults[-1].proof["packets_hit"].values()) > 0
    detected = [record for record in records if isinstance(record, Detection)]
    summary = json.loads((failure / SUMMARY).read_text())
    (fault,) = summary["faults"]
    by_flow = {flow["flow"]: flow["detection_ms"] for flow in fault["flows"]}
    assert {d.flow: pytest.approx(1000 * d.after_s) for d in detected} == by_flow
    assert all(faults[1].t < d.t < faults[2].t for d in detected)


def test_the_changes_of_evs_are_those_of_the_table(
    failure: Path, records: Sequence[StreamRecord]
) -> None:
    table = pl.read_parquet(failure / "ev_events.parquet").filter(pl.col("old") != "")
    rows = table.select("flow", "ev", "new", "active").rows()
    changes = [record for record in records if isinstance(record, EvChange)]
    assert [(c.flow, c.ev, c.new, c.active) for c in changes] == rows


def test_the_failed_link_carries_nothing(records: Sequence[StreamRecord]) -> None:
    load: dict[str, float] = {}
    at_tenth: dict[int, float] = {}
    for state in _states(records):
        load |= {name: link.load for name, link in state.links.items() if link.load is not None}
        at_tenth[int(10 * state.t)] = load.get("p0_t0_0>p0_t1_0", 0.0)
    assert at_tenth[9] > 0.1
    assert at_tenth[19] < 0.02
    assert at_tenth[29] > 0.1


def test_every_data_packet_of_a_flow_is_in_slow_motion(failure: Path) -> None:
    stream = [*recorded_stream(failure, "h0,h1")]
    packets = [p for r in stream if isinstance(r, PacketBatch) for p in r.packets]
    sent = pl.read_parquet(failure / "transmissions.parquet")
    sent = sent.filter((pl.col("flow") == 0) & (pl.col("t") >= 0) & (pl.col("t") < 3))
    lost = pl.read_parquet(failure / "losses.parquet").filter(pl.col("flow") == 0)
    assert 0 <= len(sent) - len(packets) < 100, "all but those under way at the end"
    assert sum(packet.fate == "lost" for packet in packets) == len(lost) > 0
    assert all(0 <= packet.sent_s < packet.until_s for packet in packets)
    assert {packet.kind for packet in packets} == {"data"}, "no others at this dilation"
    assert sum(packet.again for packet in packets) == sent["retransmitted"].sum()


def test_a_flow_that_is_not_there_is_refused(failure: Path) -> None:
    with pytest.raises(InputError, match="such as h0,h1"):
        next(recorded_stream(failure, "h0,h7"))


SLOW = (
    FAILURE.replace("name: failure", "name: slow")
    .replace("1 s", "10 s")
    .replace("3 s", "30 s")
    .replace("topology: clos-tiny", "topology: {base: clos-tiny, dilation: 100000}")
)


def _simulate_slowly(directory: Path) -> None:
    (directory / "slow.yaml").write_text(SLOW)
    simulate(load_scenario(str(directory / "slow.yaml")), directory)
    analyse(directory, drawn=False)


def test_where_time_is_slow_every_packet_of_the_first_flow_is_in_the_stream(
    tmp_path: Path,
) -> None:
    _simulate_slowly(tmp_path)
    stream = [*recorded_stream(tmp_path)]
    assert isinstance(stream[0], Snapshot)
    assert stream[0].slow_motion
    batches = [r for r in stream if isinstance(r, PacketBatch)]
    packets = [packet for batch in batches for packet in batch.packets]
    ways = {name: way for batch in batches for name, way in batch.ways.items()}
    control = pl.read_parquet(tmp_path / "control.parquet")
    control = control.filter(pl.col("sent") & (pl.col("flow") == 0) & (pl.col("t") >= 0))
    for kind in ("sack", "ack", "probe"):
        sent = control.filter(pl.col("kind") == kind)
        followed = [packet for packet in packets if packet.kind == kind]
        assert 0 < len(followed) <= len(sent) <= len(followed) + 40, kind
        assert any(packet.fate == "arrived" for packet in followed)
    assert any(packet.kind == "probe" and packet.fate == "lost" for packet in packets)
    for packet in packets:
        assert packet.back == (packet.kind in {"ack", "sack", "nack", "answer"})
        way = ways[f"{'back' if packet.back else 'there'}:{packet.ev}"]
        assert way[0].startswith("h1>" if packet.back else "h0>")


def test_a_run_whose_control_packets_have_no_direction_is_shown_without_them(
    tmp_path: Path,
) -> None:
    """As an earlier version recorded them."""
    _simulate_slowly(tmp_path)
    control = pl.read_parquet(tmp_path / "control.parquet")
    control.drop("back").write_parquet(tmp_path / "control.parquet")
    batches = [record for record in recorded_stream(tmp_path) if isinstance(record, PacketBatch)]
    assert {packet.kind for batch in batches for packet in batch.packets} == {"data"}


def test_the_links_that_the_clustermapper_measured_are_in_the_states(tmp_path: Path) -> None:
    file = tmp_path / "mapped.yaml"
    file.write_text(FAILURE + "clustermapper: {period: 25 us}\n")
    (tmp_path / "run").mkdir()
    simulate(load_scenario(str(file)), tmp_path / "run")
    sent: dict[str, int] = {}
    lost: dict[str, int] = {}
    probes = pl.read_parquet(tmp_path / "run" / "probes.parquet").filter(pl.col("t") < 3)
    for path, is_lost in probes.select("path", "lost").iter_rows():
        nodes = path.partition(":")[2].split(">")
        for direction in map(">".join, pairwise(nodes)):
            sent[direction] = sent.get(direction, 0) + 1
            lost[direction] = lost.get(direction, 0) + is_lost
    measured: dict[str, LinkMeasures] = {}
    for state in _states([*recorded_stream(tmp_path / "run")]):
        for name, link in state.links.items():
            new = link.model_dump(exclude_none=True)
            measured[name] = measured.get(name, LinkMeasures()).model_copy(update=new)
    assert {name: link.probed for name, link in measured.items()} == sent
    assert {name: link.probes_lost for name, link in measured.items()} == lost
    assert sum(lost.values()) > 0


def test_the_rtt_of_an_ev_is_the_median_of_what_its_sender_measured(
    failure: Path, records: Sequence[StreamRecord]
) -> None:
    assert isinstance(records[0], Snapshot)
    base_rtt_s, step_s = records[0].base_rtt_s, records[0].step_s
    table = pl.read_parquet(failure / "round_trips.parquet")
    shown = 0
    for state in _states(records):
        for name, ev in state.evs.items():
            if ev.rtt_s is None:
                continue
            flow, _, value = name.partition(":")
            of_step = table.filter(
                pl.col("t").is_between(state.t - step_s, state.t, closed="left"),
                pl.col("flow") == int(flow),
                pl.col("ev") == int(value),
            )
            assert ev.rtt_s == pytest.approx(median(of_step["rtt_ns"]) / 1e9, rel=1e-3)
            assert ev.rtt_s > 0.5 * base_rtt_s
            shown += 1
    assert shown > 100
