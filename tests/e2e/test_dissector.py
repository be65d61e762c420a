"""The captures of a run with faults: tshark reads with our dissector what our decoder reads."""

import json
from pathlib import Path

import pytest

from testbed.model.run_files.layout import PCAP_SUFFIX
from testbed.mrc.wire.kinds import Opcode
from tests.pcapng import read_capture
from tests.waiting import WATCHDOG_S
from tests.wireshark.dissection import NOTES, check, decoded, dissect, needs_tshark

from .conftest import UNDRAWN, CommandLine

pytestmark = [pytest.mark.root, pytest.mark.e2e]

LINKS = "h0--p0_t0_0", "p0_t0_0--p0_t1_0"
TIMELINE = [
    {"kind": "loss", "target": LINKS[1], "probability": 0.05, "at": "0.3 s", "for": "1 s"},
    {"kind": "corrupt", "target": LINKS[0], "probability": 0.02, "at": "0.3 s", "for": "1 s"},
    {"kind": "degrade", "target": LINKS[1], "factor": 0.2, "at": "0.5 s", "for": "1 s"},
    {"kind": "cut", "target": "p1_t0_0--p1_t1_1", "at": "0.8 s", "for": "0.6 s"},
]


@needs_tshark
def test_every_packet_of_a_run_with_faults(testbed: CommandLine) -> None:
    workload = {"kind": "write_bw", "pairs": [["h0", "h1"]], "message_size": "64 KiB"}
    scenario = testbed.scenario(
        topology="clos-tiny", duration="2 s", workload=workload, timeline=TIMELINE
    )
    captures = [word for link in LINKS for word in ("--pcap", link)]
    process = testbed.start(
        "run", scenario, "--results", testbed.results, "--json", UNDRAWN, *captures
    )
    out, err = process.communicate(timeout=WATCHDOG_S)
    assert process.returncode in (0, 4), err  # a busy machine is another test's matter
    run = Path(json.loads(out)["run"])
    opcodes: set[int] = set()
    notes: set[str] = set()
    for link in LINKS:
        file = run / "pcaps" / f"{link}{PCAP_SUFFIX}"
        frames = [frame for _, _, frame in read_capture(file.read_bytes()).frames]
        shown = dissect(file)
        assert len(frames) == len(shown) > 100
        for frame, values in zip(frames, shown, strict=True):
            if decoded(frame) is not None:
                check(frame, values)
                opcodes.add(frame[14 + 40 + 48])
                notes.update(values.get(NOTES, ()))
    assert opcodes >= {Opcode.WRITE_FIRST, Opcode.WRITE_MIDDLE, Opcode.WRITE_LAST, Opcode.SACK}
    assert "Retransmission" in notes
