import json

import pytest
from pydantic import ValidationError

from testbed.model.fabric.topology import LastHopQueue, Queues, Topology
from testbed.model.units import parse_depth

RIGHT = {"name": "x", "planes": 2, "t0_per_plane": 2, "t1_per_plane": 2, "hosts_per_t0": 1}
TINY = Topology.model_validate(RIGHT)


def with_queue(**queue: object) -> Topology:
    return Topology.model_validate(RIGHT | {"queue": queue})


@pytest.mark.parametrize(
    ("text", "on_a_bdp_of_1000", "shown"),
    [
        ("0.8 BDP", 800, "0.8 BDP"),
        ("10BDP", 10_000, "10 BDP"),
        ("1e1 BDP", 10_000, "10 BDP"),
        ("64 KiB", 65_536, "64 KiB"),
        ("8484 B", 8484, "8484 B"),
    ],
)
def test_depths_are_bdps_or_bytes(text: str, on_a_bdp_of_1000: int, shown: str) -> None:
    depth = parse_depth(text)
    assert depth.in_bytes(1000) == on_a_bdp_of_1000
    assert str(depth) == shown
    assert parse_depth(str(depth)) == depth


@pytest.mark.parametrize("wrong", ["0.8", "0.8 bdp", "0 BDP", "1001 BDP", "-1 BDP", "", 1, None])
def test_other_depths_are_refused(wrong: object) -> None:
    with pytest.raises(ValueError, match=r"such as '0\.8 BDP'"):
        parse_depth(wrong)


def test_defaults_are_the_public_guidance() -> None:
    """ECN from 0.2 to 0.8 BDP, trimming at 1 BDP; on the last hop no ECN, trimming at 1.5 BDP."""
    for queue in (TINY.queue.t0_up, TINY.queue.t1_down):
        assert {key: str(depth) for key, depth in queue.depths().items()} == {
            "limit": "4 BDP",
            "ecn.min": "0.2 BDP",
            "ecn.max": "0.8 BDP",
            "trim": "1 BDP",
        }
    last = {key: str(depth) for key, depth in TINY.queue.last_hop.depths().items()}
    assert last == {"limit": "4 BDP", "trim": "1.5 BDP"}


def test_a_part_that_is_given_leaves_the_others_as_they_are() -> None:
    queue = with_queue(last_hop={"trim": None}, t0_up={"ecn": {"max": "0.2 BDP"}}).queue
    assert queue.last_hop == LastHopQueue(trim=None)
    assert queue.last_hop.ecn is None
    assert queue.t0_up.ecn is not None
    assert queue.t0_up.ecn.min == queue.t0_up.ecn.max
    assert queue.t1_down == Queues().t1_down


def test_every_port_of_a_switch_has_the_queue_of_its_place() -> None:
    nic, fabric = TINY.nic_link(TINY.host(0), 0), TINY.fabric_link(0, 0, 1)
    assert TINY.queue_of(nic, nic.lower) is None
    assert TINY.queue_of(nic, nic.upper) is TINY.queue.last_hop
    assert TINY.queue_of(fabric, fabric.lower) is TINY.queue.t0_up
    assert TINY.queue_of(fabric, fabric.upper) is TINY.queue.t1_down


def test_a_bdp_is_that_of_the_link() -> None:
    topology = TINY.model_copy(update={"fabric_rate": TINY.port_rate // 4})
    assert topology.link_bdp_bytes(topology.nic_link(topology.host(0), 0)) == TINY.bdp_bytes
    slow = topology.link_bdp_bytes(topology.fabric_link(0, 0, 0))
    assert slow == pytest.approx(TINY.bdp_bytes / 4, abs=1)


@pytest.mark.parametrize(
    ("queue", "message"),
    [
        ({"t0_up": {"ecn": {"min": "0.01 BDP"}}}, r"queue.t0_up.ecn.min: at least 2 full packets"),
        (
            {"t1_down": {"trim": "8 KiB"}},
            r"queue.t1_down.trim: at least .* \(8.277 KiB\)",
        ),
        ({"last_hop": {"limit": "1 KB"}}, r"queue.last_hop.limit: at least 2 full packets"),
        (
            {"last_hop": {"limit": "1 BDP"}},
            r"queue.last_hop.trim: at most the limit \(1 BDP\); 1.5",
        ),
        (
            {"t0_up": {"ecn": {"min": "0.9 BDP"}}},
            r"queue.t0_up.ecn.min: at most max \(0.8 BDP\)",
        ),
    ],
)
def test_thresholds_that_cannot_work_are_refused(queue: dict[str, object], message: str) -> None:
    with pytest.raises(ValidationError, match=message):
        with_queue(**queue)


def test_a_threshold_is_checked_on_the_links_that_it_is_for() -> None:
    """0.2 BDP of a link of a tenth of the rate are less than two packets."""
    with pytest.raises(ValidationError, match=r"queue.t0_up.ecn.min: at least 2 full packets"):
        Topology.model_validate(RIGHT | {"fabric_rate": "10 Gbit/s"})


def test_queues_survive_json() -> None:
    topology = with_queue(t0_up={"trim": "70 KiB", "ecn": None})
    written = json.loads(topology.model_dump_json())
    assert written["queue"]["t0_up"] == {"limit": "4 BDP", "ecn": None, "trim": "70 KiB"}
    assert Topology.model_validate(written) == topology
