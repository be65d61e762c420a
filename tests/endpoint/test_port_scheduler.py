"""A port is given no more than it can nearly send."""

from testbed.host.rounds import PortScheduler

RATE_BPS = 8_000_000  # 1 byte a microsecond
PACKET = 4000
PACKET_NS = 4_000_000


def test_idle_ports_take_their_lead() -> None:
    assert PortScheduler(4, RATE_BPS, PACKET, PACKET_NS).room(1_000) == 8


def test_what_was_sent_takes_room_until_the_wire_has_carried_it() -> None:
    ports = PortScheduler(1, RATE_BPS, PACKET, PACKET_NS)
    for _ in range(2):
        ports.sent(0, PACKET, 0)
    assert ports.room(0) == 0
    assert ports.room(PACKET_NS - 1) == 0
    assert ports.room(PACKET_NS) == 1
    assert ports.room(2 * PACKET_NS) == 2


def test_a_packet_waits_for_those_before_it_at_its_port() -> None:
    ports = PortScheduler(2, RATE_BPS, PACKET, PACKET_NS)
    assert ports.sent(0, PACKET, 0) == 0
    assert ports.sent(1, PACKET, 0) == 0
    assert ports.sent(0, PACKET, PACKET_NS // 4) == PACKET_NS * 3 // 4
    assert ports.sent(0, PACKET, 5 * PACKET_NS) == 0


def test_a_port_does_not_save_up_room_while_idle() -> None:
    ports = PortScheduler(1, RATE_BPS, PACKET, PACKET_NS)
    ports.sent(0, PACKET, 0)
    assert ports.room(1_000 * PACKET_NS) == 2


def test_a_crowded_port_uses_up_the_room_of_others() -> None:
    """Control packets are sent at once, whatever the port; data waits for them."""
    ports = PortScheduler(2, RATE_BPS, PACKET, PACKET_NS)
    for _ in range(5):
        ports.sent(0, PACKET, 0)
    assert ports.room(0) == 0
    assert ports.room(2 * PACKET_NS) == 1


def test_in_the_long_run_a_port_sends_at_its_rate() -> None:
    ports = PortScheduler(1, RATE_BPS, PACKET, PACKET_NS)
    sent = 0
    for now in range(0, 1_000 * PACKET_NS, PACKET_NS // 3):
        for _ in range(ports.room(now)):
            ports.sent(0, PACKET, now)
            sent += 1
    assert 1_000 <= sent <= 1_002


def test_the_lead_covers_what_a_port_sends_between_two_rounds() -> None:
    assert PortScheduler(1, RATE_BPS, PACKET, 10 * PACKET_NS).room(0) == 11
    assert PortScheduler(1, RATE_BPS, PACKET, PACKET_NS // 2).room(0) == 2
