"""What does not fit a machine is refused before it is built, with what would fit."""

from collections.abc import Callable

import pytest

from testbed import limits
from testbed.model.errors import MachineError
from testbed.model.files.scenarios import load_scenario
from testbed.model.files.topologies import load_topology
from testbed.runs import room
from testbed.runs.room import (
    fabric_bytes,
    require_room,
    require_room_for_fabric,
)

MIB = 1 << 20


@pytest.fixture
def machine(monkeypatch: pytest.MonkeyPatch) -> Callable[[int, int], None]:
    """Have this machine so many bytes of memory and processes left."""

    def machine(memory: int, processes: int) -> None:
        monkeypatch.setattr(room, "available_memory", lambda: memory)
        monkeypatch.setattr(room, "available_processes", lambda: processes)

    return machine


def test_what_fits_passes(machine: Callable[[int, int], None]) -> None:
    machine(400 * MIB, 100)
    require_room(load_scenario("permutation"))


def test_a_fabric_too_large_for_the_memory(machine: Callable[[int, int], None]) -> None:
    machine(100 * MIB, 100)
    large = load_topology("clos-4plane").model_copy(update={"hosts_per_t0": 512})
    with pytest.raises(MachineError, match=r"clos-4plane takes .* of kernel memory") as refused:
        require_room_for_fabric(large)
    fits = int(refused.value.remedy.split("hosts_per_t0: ")[1].split()[0])
    for hosts, fit in ((fits, True), (fits + 1, False)):
        size = fabric_bytes(large.model_copy(update={"hosts_per_t0": hosts}))
        assert (size <= 100 * MIB) == fit


def test_where_no_number_helps_it_says_so(machine: Callable[[int, int], None]) -> None:
    machine(1, 100)
    with pytest.raises(MachineError) as refused:
        require_room_for_fabric(load_topology("clos-4plane"))
    assert refused.value.remedy == "no fabric of this shape would fit"


def test_messages_too_large_for_the_memory(machine: Callable[[int, int], None]) -> None:
    machine(100 * MIB, 100)
    with pytest.raises(MachineError, match="248 MiB of memory, 56 MiB of it for mes") as refused:
        require_room(load_scenario("permutation"))
    assert "about 3 of its 8 flows would fit" in refused.value.remedy


def test_more_endpoints_than_processes_may_run(machine: Callable[[int, int], None]) -> None:
    machine(400 * MIB, room.OTHER_PROCESSES + 5)
    with pytest.raises(
        MachineError, match=r"8 hosts .* need a process each, 5 more may"
    ) as refused:
        require_room(load_scenario("permutation"))
    assert refused.value.remedy.startswith("5 such hosts would fit")


def test_this_machine_has_some_of_both() -> None:
    assert limits.available_memory() > MIB
    assert room.available_processes() > 1
