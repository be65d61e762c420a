"""The NIC process of a host: one device, which serves any number of programs.

It listens in the host's network namespace. While no program is there it has no device and no timer,
so that an idle host costs nothing.
"""

import errno
import gc
import os
import resource
import select
import socket
from collections.abc import Callable, Iterator
from contextlib import suppress
from typing import Final

from testbed.device.control import Controller
from testbed.device.programs import Program
from testbed.device.protocol import SOCKET
from testbed.device.queues import ProgramQp
from testbed.device.rings import ProgramError
from testbed.emulation.endpoint.clock import now_ns
from testbed.emulation.endpoint.device import Device, open_device
from testbed.emulation.endpoint.health import HealthLog
from testbed.model.closeable import Closeable
from testbed.model.errors import Problem, as_answer
from testbed.model.units import NS_PER_S
from testbed.sandbox.channel import Channel

_BACKLOG: Final = 128

_DESCRIPTORS: Final = 1024
"""select(2), which the device sleeps in, takes no more."""


class NicProcess(Closeable):
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
        self._open = opened
        self._run = run
        self._health = health
        self._finishing = False
        self._listener = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self._listener.bind(SOCKET)
        self._listener.listen(_BACKLOG)
        self._listener.setblocking(False)
        self._spare = os.open(os.devnull, os.O_RDONLY | os.O_CLOEXEC)
        self._ready = select.epoll()
        self._ready.register(self._listener, select.EPOLLIN)
        self._programs: dict[int, Program] = {}
        self._doorbells: dict[int, Program] = {}
        self._device: Device | None = None
        self._controller = Controller(self._qps)
        self._down = frozenset[int]()
        if run is not None:
            self._ready.register(run, select.EPOLLIN)

    def run(self) -> None:
        """Serve programs: for ever, or until the run's command to finish."""
        gc.freeze()
        gc.disable()  # a collection would stop the NIC at a bad moment
        _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
        resource.setrlimit(resource.RLIMIT_NOFILE, (min(_DESCRIPTORS, most), most))
        while not self._finishing:
            if self._device is None:
                self._serve(-1 if self._health is None else self._health_due_s(self._health))
            else:
                self._device.run(self._round, wake=self._ready.fileno())
                self._controller.detach()
                self._device.close()
                self._device = None

    def _qps(self) -> Iterator[ProgramQp]:
        return (qp for program in self._programs.values() for qp in program.qps)

    @staticmethod
    def _health_due_s(health: HealthLog) -> float:
        """How long an idle NIC may sleep; it writes a line of its health if that is due."""
        now = now_ns()
        if now >= health.due_ns:
            health.write(now, {})
        return max(health.due_ns - now, 0) / NS_PER_S

    def _round(self) -> bool:
        """Serve all programs once; returns whether none is left that uses the device."""
        now = now_ns()
        using = [program for program in self._programs.values() if program.device is not None]
        self._tell_of_ports(using)
        for program in using:
            program.deliver(now)
        self._serve(0)
        for program in using:
            try:
                program.take_posted(now)
            except ProgramError as error:
                self._drop(program, error)
        used = any(program.device is not None for program in self._programs.values())
        return self._finishing or not used

    def _tell_of_ports(self, programs: list[Program]) -> None:
        assert self._device is not None  # noqa: S101 - programs use it
        down = self._device.context.down_planes
        for plane in down ^ self._down:
            for program in programs:
                program.port_changed(plane, up=plane not in down)
        self._down = down

    def _serve(self, timeout_s: float) -> None:
        """Answer the requests that wait, for at most this long; -1: until there is one."""
        for descriptor, _ in self._ready.poll(timeout_s):
            if descriptor == self._listener.fileno():
                self._accept()
            elif self._run is not None and descriptor == self._run.fileno():
                self._take_commands(self._run)
            elif descriptor in self._doorbells:
                self._doorbells[descriptor].woken()
            elif descriptor in self._programs:
                program = self._programs[descriptor]
                try:
                    if not program.serve(self._opened):
                        self._drop(program)
                except ProgramError as error:
                    self._drop(program, error)

    def _take_commands(self, run: Channel) -> None:
        """Act on commands of the run.

        Raises:
            ConnectionError: it has ended.
        """
        commands = run.receive()
        if commands is None:
            raise ConnectionError("the run that this NIC belongs to has ended")
        records = None if self._device is None else self._device.records
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

    def _accept(self) -> None:
        try:
            connection, _ = self._listener.accept()
        except OSError as error:
            if error.errno == errno.EMFILE:
                self._refuse()
            return  # otherwise it has gone already
        connection.setblocking(False)
        try:
            program = Program(connection, self._controller)
        except OSError:  # no descriptors are left
            connection.close()
            return
        self._programs[program.fileno()] = program
        self._doorbells[program.doorbell] = program
        self._ready.register(program.fileno(), select.EPOLLIN)
        self._ready.register(program.doorbell, select.EPOLLIN)

    def _refuse(self) -> None:
        """Accept a program with a descriptor that is kept for this, and hang up."""
        os.close(self._spare)
        with suppress(OSError):
            self._listener.accept()[0].close()
        self._spare = os.open(os.devnull, os.O_RDONLY | os.O_CLOEXEC)

    def _opened(self) -> Device:
        if self._device is None:
            self._device = self._open()
            self._controller.attach(self._device, now_ns())
            self._device.poll()  # it learns which ports have carrier
            self._down = self._device.context.down_planes
        return self._device

    def _drop(self, program: Program, error: ProgramError | None = None) -> None:
        """Forget a program that has ended, or that breaks the rules."""
        if error is not None:
            os.write(2, f"mrc0: process {program.pid} is disconnected: {error}\n".encode())
        descriptors = program.fileno(), program.doorbell
        for descriptor in descriptors:
            self._ready.unregister(descriptor)
        del self._programs[descriptors[0]], self._doorbells[descriptors[1]]
        program.close()
        gc.collect()

    def close(self) -> None:
        """Let go of all programs."""
        for program in [*self._programs.values()]:
            self._drop(program)
        if self._device is not None:
            self._device.close()
        self._ready.close()
        os.close(self._spare)
        self._listener.close()
