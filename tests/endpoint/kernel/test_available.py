"""What this kernel lacks is refused before anything is built, and what the simulator has not."""

import errno
import socket

import pytest

from testbed.emulation.endpoint.kernel_tcp import require_kernel_support
from testbed.model.errors import InputError, MachineError
from testbed.model.files.scenarios import load_scenario
from testbed.model.transport import Mptcp, Mrc, Tcp
from testbed.sim import Simulation


def test_what_every_kernel_has_is_not_refused() -> None:
    require_kernel_support(Mrc())
    require_kernel_support(Tcp(congestion="reno"))


def test_a_congestion_control_that_the_kernel_lacks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(socket.socket, "setsockopt", _no_such_thing)
    with pytest.raises(MachineError, match="this kernel has no dctcp") as raised:
        require_kernel_support(Tcp(congestion="dctcp"))
    assert "modprobe tcp_dctcp" in str(raised.value)
    assert "reno" in str(raised.value)


def _no_such_thing(*_: object) -> None:
    """What the kernel answers who asks for a module that it does not have."""
    raise OSError(errno.ENOENT, "No such file or directory")


@pytest.mark.parametrize("transport", [Tcp(), Mptcp()])
def test_the_simulator_refuses_them_by_name(transport: Tcp | Mptcp) -> None:
    scenario = load_scenario("link-failure-tcp").model_copy(update={"transport": transport})
    with pytest.raises(InputError, match=f"transport.kind: found {transport.kind}, expected mrc"):
        Simulation(scenario)
