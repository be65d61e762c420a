"""perftest's figures and columns, from times whose answer is known."""

import json
import sys
from itertools import accumulate, combinations_with_replacement

import pytest
from hypothesis import given
from hypothesis import strategies as st

from testbed.emulation.perftest.ends import Bandwidth, LatencyRow, as_text, heading, lateness
from testbed.emulation.perftest.parameters import ALL_SIZES, Parameters, Show, Tool, size_of
from testbed.host.workloads.messages import Block
from testbed.model.errors import InputError, MachineError
from testbed.model.fabric.topology import Topology
from tests.commands import completed

MS = 1_000_000
TINY = Topology(name="tiny", planes=2, t0_per_plane=2, t1_per_plane=2, hosts_per_t0=1)


def test_bandwidth_is_perftests() -> None:
    """Ten messages in 100 ms; three of them, posted at 30 ms, in 9 ms."""
    posted = [0, 0, 0, 30 * MS, 30 * MS, 30 * MS, 50 * MS, 50 * MS, 60 * MS, 60 * MS]
    completed = [n * MS for n in (10, 20, 30, 33, 36, 39, 70, 80, 90, 100)]
    row = Bandwidth.of(1000, 10, posted, completed)
    assert row.average_bytes_per_s == pytest.approx(100_000)
    assert row.peak_bytes_per_s == pytest.approx(3000 / 0.009)
    both = row.both(row)
    assert both.average_bytes_per_s == pytest.approx(200_000)
    assert both.iterations == 10


@given(
    steps=st.lists(st.tuples(st.integers(0, 50), st.integers(1, 50)), min_size=1, max_size=40),
    depth=st.integers(1, 5),
)
def test_the_peak_is_that_of_all_pairs(steps: list[tuple[int, int]], depth: int) -> None:
    completed = list(accumulate(step for _, step in steps))
    posted = sorted(
        (completed[i - depth] if i >= depth else 0) + wait for i, (wait, _) in enumerate(steps)
    )
    completed = [max(end, start + 1) for start, end in zip(posted, completed, strict=True)]
    completed = list(accumulate(completed, max))
    pairs = combinations_with_replacement(range(len(posted)), 2)
    least = min((completed[j] - posted[i]) / (j - i + 1) for i, j in pairs)
    row = Bandwidth.of(1, len(posted), posted, completed)
    assert row.peak_bytes_per_s == pytest.approx(1e9 / least)
    assert row.peak_bytes_per_s >= row.average_bytes_per_s


def test_no_rounding_puts_the_peak_below_the_average() -> None:
    """Where all messages take as long, they are the same figure, to the last digit."""
    row = Bandwidth.of(20_000, 3, [0] * 3, [851_681_009] * 3)
    assert row.peak_bytes_per_s == row.average_bytes_per_s


def test_latency_is_half_the_round_trip() -> None:
    times = [0, 100 * MS, 200 * MS, 300 * MS, 420 * MS]
    row = LatencyRow.of(2, times)
    assert (row.iterations, row.min_ns, row.max_ns) == (4, 50 * MS, 60 * MS)
    assert (row.typical_ns, row.avg_ns) == (50 * MS, 52.5 * MS)
    assert (row.p99_ns, row.p999_ns) == (60 * MS, 60 * MS)


def test_tables_are_of_full_speed() -> None:
    host = TINY.hosts[0], TINY.hosts[1]
    row = Bandwidth(65536, 500, 2 * 65536.0, 65536.0)
    text = as_text([row], Show(), TINY, *host)
    assert (
        " #bytes     #iterations    BW peak[MiB/sec]    BW average[MiB/sec]   MsgRate[Mpps]" in text
    )
    assert text.splitlines()[2].split() == ["65536", "500", "1250.00", "625.00", "0.010000"]
    gbits = as_text([row], Show(gbits=True), TINY, *host).splitlines()
    assert "BW average[Gb/sec]" in gbits[1]
    assert gbits[2].split()[3] == f"{65536 * 8e4 / 1e9:.2f}"
    latency = LatencyRow.of(2, [0, 100 * MS, 200 * MS])
    assert as_text([latency], Show(), TINY, *host).splitlines()[2].split()[2:4] == ["5.00", "5.00"]
    told = json.loads(as_text([latency], Show(as_json=True), TINY, *host))
    assert (told["src"], told["dst"], told["rows"][0]["min_ns"]) == ("h0", "h1", 50 * MS)
    assert "cross-T1" in heading(Parameters(Tool.LATENCY, (2,), 5), TINY, *host)


def test_a_machine_that_is_late_is_told() -> None:
    assert lateness(0, 0) is None
    assert lateness(1, 100) is None
    assert "10 of 100 packets were seen late, by more than 2% of" in str(lateness(10, 100))


@pytest.mark.parametrize(
    ("fields", "option"),
    [
        ({"sizes": (0,)}, "--size"),
        ({"sizes": (1 << 31,)}, "--size"),
        ({"iters": 0}, "--iters"),
        ({"qps": 0}, "--qp"),
        ({"tx_depth": -1}, "--tx-depth"),
    ],
)
def test_what_cannot_be_measured_is_refused(fields: dict[str, object], option: str) -> None:
    with pytest.raises(InputError, match=option):
        Parameters(**{"tool": Tool.BANDWIDTH, "sizes": (2,), "iters": 1, **fields})  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("text", "size"),
    [("65536", 65_536), ("64K", 65_536), ("64k", 65_536), ("1M", 1 << 20), ("1G", 1 << 30)],
)
def test_sizes_are_those_of_perftest(text: str, size: int) -> None:
    assert size_of(text) == size


@pytest.mark.parametrize("text", ["", "K", "1.5M", "64KB", "-1", "1T", "٣", "1" * 100])
def test_other_sizes_are_refused(text: str) -> None:
    with pytest.raises(InputError, match="--size"):
        size_of(text)


def test_the_command_takes_sizes_with_a_unit() -> None:
    called = completed(
        [sys.executable, "-c", "from testbed.cli import main; main()", "write-bw", "-s", "64X"]
    )
    assert (called.returncode, called.stdout) == (2, "")
    assert "--size: found 64X, expected" in called.stderr


@pytest.mark.parametrize(
    ("sizes", "qps"), [((1 << 30,), 16_384), ((2, 1 << 30), 1), ((2,), 16_384)]
)
def test_what_does_not_fit_into_memory_is_refused_with_a_remedy(
    sizes: tuple[int, ...], qps: int
) -> None:
    parameters = Parameters(Tool.BANDWIDTH, sizes, 5, qps)
    parameters.require_memory(parameters.memory_bytes)
    assert parameters.memory_bytes >= 2 * max(sizes) * qps
    with pytest.raises(MachineError, match="remedy: a smaller --size") as refused:
        parameters.require_memory(parameters.memory_bytes - 1)
    assert refused.value.exit_status == 3


def test_messages_that_are_outstanding_and_their_times_take_memory() -> None:
    deep = Parameters(Tool.BANDWIDTH, (2,), 1 << 16, 1000, 1 << 14)
    assert deep.memory_bytes > 800 * 1000 * (1 << 14)
    both = Parameters(Tool.BANDWIDTH, (2,), 1 << 16, 1000, 1 << 14, bidirectional=True)
    assert both.memory_bytes > 2 * 800 * 1000 * (1 << 14)
    assert Parameters(Tool.BANDWIDTH, (2,), 1 << 32).memory_bytes > 1 << 38
    assert Parameters(Tool.BANDWIDTH, (65_536,), 500).memory_bytes < 1 << 20


def test_content_of_any_size_can_be_made() -> None:
    longest = 1 << 28  # more bits than Python 3.11 makes at once
    assert len(Block(0, longest).message(0, longest)) == longest


def test_parameters_travel_unchanged() -> None:
    parameters = Parameters(Tool.BANDWIDTH, ALL_SIZES, 7, 3, 5, bidirectional=True)
    assert Parameters.from_dict(json.loads(json.dumps(parameters.as_dict()))) == parameters
