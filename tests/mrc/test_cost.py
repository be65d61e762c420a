"""What a packet costs, in lines of the core that run for it: it must not depend on how many EVs."""

import sys
from pathlib import Path
from types import FrameType
from typing import Any

import pytest

from testbed import fast, mrc

from .harness import MS, RKEY, VA, Network, PathModel, S, make_profile

CORE = str(Path(mrc.__file__).parent)
BYTES = 1 << 20
MESSAGES = 3


def lines_of_a_packet(evs_per_plane: int) -> float:
    """Lines that run in the core, at both ends, for one packet of a long transfer."""
    network = Network(
        make_profile(active=evs_per_plane, backups=0),
        default=lambda: PathModel(jitter_ns=10 * MS),
        cwnd=256 * 4096,
    )
    qp = network.qps[0]
    payload = memoryview(bytes(BYTES))
    lines = 0

    def count(frame: FrameType, event: str, _: object) -> Any:
        nonlocal lines
        if event == "line":
            lines += 1
        return count if frame.f_code.co_filename.startswith(CORE) else None

    for message in range(MESSAGES):
        qp.post_write(message, payload, VA, RKEY)
    before = sys.gettrace()
    sys.settrace(count)
    try:
        network.run(100 * S, done=lambda: len(network.completions[0]) == MESSAGES)
    finally:
        sys.settrace(before)
    assert len(network.completions[0]) == MESSAGES
    return lines / qp.counters.data_sent


@pytest.mark.skipif(fast.is_built(), reason="what is built as C runs no lines")
def test_a_packet_costs_no_more_with_many_evs() -> None:
    few, many = lines_of_a_packet(4), lines_of_a_packet(64)
    assert few > 100
    assert many < 1.05 * few
