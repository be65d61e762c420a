"""What this kernel lacks is refused before anything is built, and what the simulator has not."""

from pathlib import Path

import pytest

from testbed.endpoint.kernel import require_stack
from testbed.loading import load_scenario
from testbed.model.errors import InputError, MachineError
from testbed.model.transport import Mptcp, Mrc, Tcp
from testbed.sim import Simulation

_CONGESTION = Path("/proc/sys/net/ipv4/tcp_available_congestion_control")


def test_what_every_kernel_has_is_not_refused() -> None:
    require_stack(Mrc())
    require_stack(Tcp(congestion="reno"))


def test_a_congestion_control_that_the_kernel_lacks() -> None:
    missing = {"cubic", "bbr", "dctcp"} - set(_CONGESTION.read_text().split())
    for name in sorted(missing):
        transport = Tcp.model_validate({"congestion": name})
        try:
            require_stack(transport)
        except MachineError as error:
            assert f"no {name}" in str(error)
            assert f"modprobe tcp_{name}" in str(error)
            assert "reno" in str(error)
        else:
            assert name in _CONGESTION.read_text(), "the kernel loaded it"


@pytest.mark.parametrize("transport", [Tcp(), Mptcp()])
def test_the_simulator_refuses_them_by_name(transport: Tcp | Mptcp) -> None:
    scenario = load_scenario("link-failure-tcp").model_copy(update={"transport": transport})
    with pytest.raises(InputError, match=f"transport.kind: found {transport.kind}, expected mrc"):
        Simulation(scenario)
