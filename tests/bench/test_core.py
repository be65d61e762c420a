"""What the bench of the transport core measures is a stream of full rounds, nothing sent again."""

import pytest

from testbed.model.fabric.topology import PAYLOAD_MTU
from testbed.mrc import QueuePair
from testbed.studies.bench import core


def test_every_round_is_full_and_every_step_timed(monkeypatch: pytest.MonkeyPatch) -> None:
    made: list[QueuePair] = []
    really = core._queue_pair

    def kept(side: int) -> QueuePair:
        made.append(really(side))
        return made[-1]

    monkeypatch.setattr(core, "ROUNDS", 40)
    monkeypatch.setattr(core, "_queue_pair", kept)
    spent = core.packet_ns()
    assert list(spent) == list(core.STEPS)
    assert min(spent.values()) > 0
    sender, receiver = made
    sent = (core.WARMING + core.ROUNDS) * core.ROUND
    assert sender.counters.data_sent == sent
    assert receiver.counters.bytes_placed == sent * PAYLOAD_MTU
