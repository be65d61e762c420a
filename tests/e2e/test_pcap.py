"""`testbed run --pcap`: what a link carried during a run, packet by packet."""

import json
from pathlib import Path

import polars as pl
import pytest

from testbed.model.files.topologies import load_topology
from tests.pcapng import read_capture
from tests.waiting import WATCHDOG_S

from .conftest import UNDRAWN, CommandLine

pytestmark = [pytest.mark.root, pytest.mark.e2e]

CLOCKS_APART_S = 0.001
"""How far CLOCK_REALTIME may be slewed during the run."""

NIC, FABRIC = "h0--p1_t0_0", "p1_t0_0--p1_t1_1"


def test_captures_have_every_data_packet_of_the_run(testbed: CommandLine) -> None:
    """On the NIC's link the full packets of both directions, as many as endpoints sent by it."""
    scenario = testbed.scenario(topology="clos-tiny", duration="2 s")
    text = scenario.read_text().replace("h4", "h1")
    scenario.write_text(text)
    options = ("--results", testbed.results, "--json", UNDRAWN, "--pcap", NIC, "--pcap", FABRIC)
    process = testbed.start("run", scenario, *options)
    out, err = process.communicate(timeout=WATCHDOG_S)
    assert process.returncode in (0, 4), err  # a busy machine is another test's matter
    run = Path(json.loads(out)["run"])
    told = json.loads((run / "run.json").read_text())
    assert told["captures"] == {NIC: {"lost_frames": 0}, FABRIC: {"lost_frames": 0}}
    sent = pl.read_parquet(run / "transmissions.parquet").filter(pl.col("plane") == 1)
    nic, fabric = (full_packets(run / "pcaps" / f"{link}.pcapng") for link in (NIC, FABRIC))
    # Packets that measure the base RTT go before the run and are in no record.
    assert 0 <= nic - len(sent) <= 20
    assert 0.3 * nic < fabric < 0.7 * nic  # one T1 of two
    _times_agree(run)


def _times_agree(run: Path) -> None:
    """A packet leaves the NIC after its record of being sent, and before that of its arrival.

    A port keeps the order, and nothing is lost: the k-th of the one is the k-th of the other.
    """
    manifest = json.loads((run / "manifest.json").read_text())
    t0_ns = json.loads((run / "run.json").read_text())["t0_ns"]
    offset_ns = manifest["realtime_offset_ns"]
    comment = read_capture((run / "pcaps" / f"{NIC}.pcapng").read_bytes()).comment
    assert f"realtime_offset_ns = {offset_ns}:" in comment
    zero_ns = offset_ns + t0_ns
    mac = load_topology("clos-tiny").links[NIC].lower.mac
    times = [ns - zero_ns for ns, frame in full_frames(run / "pcaps" / f"{NIC}.pcapng", mac)]
    left = [ns / 1e9 for ns in times if ns > 0]
    on_link = (pl.col("plane") == 1) & (pl.col("flow") == 0) & (pl.col("t") > 0)
    sent, placed = (
        pl.read_parquet(run / f"{table}.parquet").filter(on_link)["t"].sort().to_list()
        for table in ("transmissions", "arrivals")
    )
    assert len(left) == len(sent) == len(placed)
    for before, between, after in zip(sent, left, placed, strict=True):
        assert before - CLOCKS_APART_S <= between <= after + CLOCKS_APART_S


def full_frames(file: Path, mac: str) -> list[tuple[int, bytes]]:
    """The (time in ns, frame) of every full data packet that a port sent."""
    frames = read_capture(file.read_bytes()).frames
    return [
        (time_ns, frame)
        for _, time_ns, frame in frames
        if len(frame) > 4000 and frame[6:12].hex(":") == mac
    ]


def full_packets(file: Path) -> int:
    """How many frames of the file are large enough to carry data."""
    return sum(len(frame) > 4000 for _, _, frame in read_capture(file.read_bytes()).frames)
