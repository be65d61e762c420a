"""Serves the programs of a host that open `mrc0`: connections, requests, what they have posted."""

import errno
import gc
import os
import select
import socket
from collections.abc import Callable, Iterator
from contextlib import suppress
from typing import Final

from testbed.device.control import Controller
from testbed.device.programs import Program, owner_of
from testbed.device.protocol import SOCKET
from testbed.device.queues import ProgramError, ProgramQp
from testbed.emulation.endpoint.base_device import BaseDevice
from testbed.model.closeable import Closeable

_BACKLOG: Final = 128


class NicServer(Closeable):
    """Serves the programs of one host. It has a device as long as a program uses it.

    Attributes:
        device: the NIC, if a program has opened it.
    """

    def __init__(
        self,
        opened: Callable[[], BaseDevice],
        clock: Callable[[], int],
        *,
        name: str = SOCKET,
        user: int | None = None,
    ) -> None:
        """Listen.

        Args:
            opened: opens the device, when the first program asks for it.
            clock: the time of the fabric, in ns.
            name: of the socket.
            user: whose programs are served; None: everybody's.

        Raises:
            OSError: the socket's name is taken, or no descriptors are left.
        """
        self._open = opened
        self._clock = clock
        self._user = user
        self.device: BaseDevice | None = None
        self._listener = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        try:
            self._listener.bind(name)
        except OSError:
            self._listener.close()
            raise
        self._listener.listen(_BACKLOG)
        self._listener.setblocking(False)
        self._spare = os.open(os.devnull, os.O_RDONLY | os.O_CLOEXEC)
        self._ready = select.epoll()
        self._ready.register(self._listener, select.EPOLLIN)
        self._programs: dict[int, Program] = {}
        self._doorbells: dict[int, Program] = {}
        self._processes: dict[int, Program] = {}
        self._controller = Controller(self._qps)
        self._down = frozenset[int]()

    def fileno(self) -> int:
        """The descriptor that is readable when `serve` has something to do."""
        return self._ready.fileno()

    @property
    def is_used(self) -> bool:
        """Whether a program has the device open."""
        return any(program.device is not None for program in self._programs.values())

    def _qps(self) -> Iterator[ProgramQp]:
        return (qp for program in self._programs.values() for qp in program.qps)

    def _using(self) -> list[Program]:
        return [program for program in self._programs.values() if program.device is not None]

    def deliver(self) -> None:
        """Tell programs what has completed, and which ports have changed."""
        assert self.device is not None  # noqa: S101 - programs use it
        now, using = self._clock(), self._using()
        down = self.device.context.down_planes
        for plane in down ^ self._down:
            for program in using:
                program.port_changed(plane, up=plane not in down)
        self._down = down
        for program in using:
            program.deliver(now)

    def take_posted(self) -> None:
        """Hand the new work requests of all programs to the protocol core."""
        now = self._clock()
        for program in self._using():
            try:
                program.take_posted(now)
            except ProgramError as error:
                self._drop(program, error)

    def serve(self, timeout_s: float) -> None:
        """Answer the requests that wait, for at most this long; -1: until there is one.

        New programs come last: one might get a descriptor of a program that is dropped here, of
        which more is reported.
        """
        ready = [descriptor for descriptor, _ in self._ready.poll(timeout_s)]
        for descriptor in ready:
            if descriptor in self._doorbells:
                self._doorbells[descriptor].woken()
            elif descriptor in self._processes:
                self._drop(self._processes[descriptor])
            elif descriptor in self._programs:
                program = self._programs[descriptor]
                try:
                    if not program.serve(self._opened):
                        self._drop(program)
                except ProgramError as error:
                    self._drop(program, error)
            else:
                self._serve_other(descriptor)
        if self._listener.fileno() in ready:
            self._accept()

    def _serve_other(self, descriptor: int) -> None:
        """Act on a descriptor that is no program's: of the run, or of the next programs."""

    def release(self) -> None:
        """Close the device, which no program uses any more."""
        if self.device is not None:
            self._controller.detach()
            self.device.close()
            self.device = None

    def _accept(self) -> None:
        try:
            connection, _ = self._listener.accept()
        except OSError as error:
            if error.errno == errno.EMFILE:
                self._refuse()
            return  # otherwise it has gone already
        connection.setblocking(False)
        if self._user not in (None, owner_of(connection)[1]):
            connection.close()
            return
        try:
            program = Program(connection, self._controller, self._clock)
        except OSError:  # no descriptors are left
            connection.close()
            return
        self._programs[program.fileno()] = program
        self._doorbells[program.doorbell] = program
        self._ready.register(program.fileno(), select.EPOLLIN)
        self._ready.register(program.doorbell, select.EPOLLIN)
        if program.process is not None:
            self._processes[program.process] = program
            self._ready.register(program.process, select.EPOLLIN)

    def _refuse(self) -> None:
        """Accept a program with a descriptor that is kept for this, and hang up."""
        os.close(self._spare)
        with suppress(OSError):
            self._listener.accept()[0].close()
        self._spare = os.open(os.devnull, os.O_RDONLY | os.O_CLOEXEC)

    def _opened(self) -> BaseDevice:
        if self.device is None:
            self.device = self._open()
            self._controller.attach(self.device, self._clock())
            self._down = self.device.context.down_planes
        return self.device

    def _drop(self, program: Program, error: ProgramError | None = None) -> None:
        """Forget a program that has ended, or that breaks the rules."""
        if error is not None:
            os.write(2, f"mrc0: process {program.pid} is disconnected: {error}\n".encode())
        for known, descriptor in (
            (self._programs, program.fileno()),
            (self._doorbells, program.doorbell),
            (self._processes, program.process),
        ):
            if descriptor is not None:
                self._ready.unregister(descriptor)
                del known[descriptor]
        program.close()
        gc.collect()

    def close(self) -> None:
        """Let go of all programs."""
        for program in [*self._programs.values()]:
            self._drop(program)
        if self.device is not None:
            self.device.close()
        self._ready.close()
        os.close(self._spare)
        self._listener.close()
