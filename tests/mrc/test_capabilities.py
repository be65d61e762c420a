"""What two ends tell each other, and that each direction obeys the end that receives."""

import json

import pytest

from testbed.mrc import decode
from testbed.mrc.config import VERSION, Capabilities
from testbed.mrc.wire.control import Nack, Sack

from .harness import MS, RKEY, VA, Network, PathModel, S, make_profile


def test_a_message_carries_everything_through_json() -> None:
    own = Capabilities(mpr=3, dynamic_mpr=True, immediates=5, trim_nack=False)
    message = json.loads(json.dumps(own.message()))
    assert message["version"] == VERSION
    assert Capabilities.of_message(message) == own


@pytest.mark.parametrize(
    ("change", "wrong"),
    [
        ({"version": VERSION + 1}, "version"),
        ({"colour": 1}, "colour"),
        ({"mpr": "8"}, "mpr is '8'"),
        ({"mpr": True}, "mpr is True"),
        ({"mpr": 256}, "1 to 255"),
        ({"immediates": 0}, "1 to 65535"),
    ],
)
def test_a_message_that_is_none_is_refused(change: dict[str, object], wrong: str) -> None:
    with pytest.raises(ValueError, match=wrong):
        Capabilities.of_message({**Capabilities().message(), **change})


def test_a_message_without_a_version_is_refused() -> None:
    with pytest.raises(ValueError, match="version None"):
        Capabilities.of_message({})


def test_each_direction_obeys_the_window_of_the_end_that_receives() -> None:
    network = Network(
        make_profile(),
        mtu=64,
        cwnd=1 << 20,
        capabilities=Capabilities(mpr=2),
        peer_capabilities=Capabilities(1),
    )
    network.qps[0].post_write(0, memoryview(bytes(64 * 600)), VA, RKEY)
    network.run(60 * MS)
    assert len(list(network.data_sent())) == 128


@pytest.mark.parametrize("dynamic", [False, True])
def test_the_window_is_advertised_only_where_both_ends_agree(dynamic: bool) -> None:
    network = Network(
        make_profile(),
        capabilities=Capabilities(dynamic_mpr=True),
        peer_capabilities=Capabilities(5, dynamic),
    )
    network.qps[0].post_write(0, memoryview(bytes(1 << 16)), VA, RKEY)
    network.run(S)
    packets = [decode(sent.datagram.join()) for sent in network.sent]
    advertised = {packet.mpr for packet in packets if isinstance(packet, Sack)}
    assert advertised == ({8} if dynamic else {0})


@pytest.mark.parametrize("agreed", [False, True])
def test_a_trimmed_packet_is_nacked_only_where_both_ends_agree(agreed: bool) -> None:
    network = Network(
        make_profile(),
        default=lambda: PathModel(trim=0.2),
        peer_capabilities=Capabilities(trim_nack=agreed),
    )
    network.qps[0].post_write(0, memoryview(bytes(1 << 18)), VA, RKEY)
    network.run(60 * S, lambda: bool(network.completions[0]))
    assert len(network.completions[0]) == 1
    packets = [decode(sent.datagram.join()) for sent in network.sent]
    assert any(isinstance(packet, Nack) for packet in packets) is agreed
    assert (network.qps[1].counters.trims_unanswered == 0) is agreed
