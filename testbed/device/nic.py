"""The NIC process of a host of the emulated fabric: one device, for any number of programs.

It listens in the host's network namespace. While no program is there it has no device and no timer,
so that an idle host costs nothing.
"""

import gc
import resource
import select
from collections.abc import Callable
from typing import Final

from testbed.device.server import NicServer
from testbed.emulation.endpoint.clock import now_ns
from testbed.emulation.endpoint.device import Device, open_device
from testbed.emulation.endpoint.health import HealthLog
from testbed.model.errors import Problem, as_answer
from testbed.model.units import NS_PER_S
from testbed.sandbox.channel import Channel

_DESCRIPTORS: Final = 1024
"""select(2), which the device sleeps in, takes no more."""


class NicProcess(NicServer):
    """Serves the programs of the host whose network namespace this process is in."""

    def __init__(
        self,
        opened: Callable[[], Device] = open_device,
        run: Channel | None = None,
        health: HealthLog | None = None,
    ) -> None:
        """Listen.

        Args:
            opened: opens the device, when the first program asks for it.
            run: the channel of a run that this host takes part in: it takes the commands of an
                endpoint, as far as they matter to it, and ends with `{"finish": True}`.
            health: where the run looks for how late this process is; the device writes it, too.
        """
        super().__init__(lambda: self._keep(opened()), now_ns)
        self._sockets: Device | None = None
        self._run = run
        self._health = health
        self._finishing = False
        if run is not None:
            self._ready.register(run, select.EPOLLIN)

    def _keep(self, device: Device) -> Device:
        """Keep the device with its sockets, once it has learnt which ports have carrier."""
        device.poll()
        self._sockets = device
        return device

    def run(self) -> None:
        """Serve programs: for ever, or until the run's command to finish."""
        gc.freeze()
        gc.disable()  # a collection would stop the NIC at a bad moment
        _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
        resource.setrlimit(resource.RLIMIT_NOFILE, (min(_DESCRIPTORS, most), most))
        while not self._finishing:
            if self._sockets is None:
                self.serve(-1 if self._health is None else self._health_due_s(self._health))
            else:
                self._sockets.run(self._round, wake=self.fileno())
                self._sockets = None
                self.release()

    @staticmethod
    def _health_due_s(health: HealthLog) -> float:
        """How long an idle NIC may sleep; it writes a line of its health if that is due."""
        now = now_ns()
        if now >= health.due_ns:
            health.write(now, {})
        return max(health.due_ns - now, 0) / NS_PER_S

    def _round(self) -> bool:
        """Serve all programs once; returns whether none is left that uses the device."""
        self.deliver()
        self.serve(0)
        self.take_posted()
        return self._finishing or not self.is_used

    def _serve_other(self, descriptor: int) -> None:
        if self._run is not None and descriptor == self._run.fileno():
            self._take_commands(self._run)

    def _take_commands(self, run: Channel) -> None:
        """Act on commands of the run.

        Raises:
            ConnectionError: it has ended.
        """
        commands = run.receive()
        if commands is None:
            raise ConnectionError("the run that this NIC belongs to has ended")
        records = None if self.device is None else self.device.records
        for command in commands:
            if "finish" in command:
                self._finishing = True
            elif "deny" in command and records is not None:
                records.deny_crossing(frozenset(command["deny"]), now_ns())
            elif "operate" in command:
                if records is not None and "command" in command:
                    records.carry_out(command, run, now_ns())
                else:
                    problem = Problem("command", "this host", "one in which a program has a device")
                    run.send({"operated": command["operate"], "content": as_answer(problem)})
