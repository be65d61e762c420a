"""`testbed run --pcap`: what a link carried during a run, packet by packet."""

import json
import struct
from pathlib import Path

import polars as pl
import pytest

from tests.waiting import WATCHDOG_S

from .conftest import UNDRAWN, CommandLine

pytestmark = [pytest.mark.root, pytest.mark.e2e]

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
    nic, fabric = (full_packets(run / "pcaps" / f"{link}.pcap") for link in (NIC, FABRIC))
    # Packets that measure the base RTT go before the run and are in no record.
    assert 0 <= nic - len(sent) <= 20
    assert 0.3 * nic < fabric < 0.7 * nic  # one T1 of two


def full_packets(file: Path) -> int:
    """How many frames of the file are large enough to carry data."""
    data, at, found = file.read_bytes(), 24, 0
    while at < len(data):
        (size,) = struct.unpack_from("=I", data, at + 12)
        found += size > 4000
        at += 16 + size
    return found
