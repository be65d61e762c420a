"""Runs algorithms of the user's own: makes an object of the class, and checks what it returns.

A path selector has the methods of `mrc.PathSelector` and is made of its EVs (`EvInfo`) and a seed.
A congestion controller is a `mrc.CongestionController` and is made of a `CcPath`. Methods that
begin with `on_` may be missing.
"""

import sys
from collections import Counter
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from functools import partial
from types import MappingProxyType
from typing import Any, Final, NoReturn, Protocol

from testbed.host.own_class import (
    CONTROLLER,
    NO_ERROR,
    SELECTOR,
    Code,
    Interface,
    Ports,
    Record,
    describe_error,
    make,
    shown,
)
from testbed.host.rounds import PortScheduler
from testbed.model.errors import few
from testbed.model.own_code import OwnCode
from testbed.mrc import EvInfo, EvState, LossReport, SackReport

_MOST_NOTHING = 3
"""How often in a row a selector may return None while nothing is in flight."""

MOST_BYTES = 1 << 50
"""No window may be larger."""

_NONE: Final[Mapping[str, object]] = MappingProxyType({})


@dataclass(frozen=True, slots=True)
class CcPath:
    """What a congestion controller knows before the first packet.

    Attributes:
        base_rtt_ns: the round trip of the queue pair's paths without queueing, in ns.
        bdp_bytes: the bandwidth-delay product of all ports of the host, in bytes.
        mtu: bytes of payload in a full packet.
        trimming: whether the fabric trims at the last hop what it would drop.
        seed: for a random generator; it differs between queue pairs.
    """

    base_rtt_ns: int
    bdp_bytes: int
    mtu: int
    trimming: bool
    seed: int


class _OwnObject:
    """An object of the user's class. An error in its code is an `InputError` with its line."""

    def __init__(
        self,
        code: OwnCode,
        interface: Interface,
        *arguments: object,
        parameters: Mapping[str, object] = _NONE,
        record: Record | None = None,
    ) -> None:
        self._code: Final = code
        self._text: Final = Code(code.name, code.file, code.source, code.files)
        try:
            made = make(self._text, interface, arguments, parameters, record or Record())
        except (Exception, SystemExit) as error:  # noqa: BLE001 - whatever the user's code does
            self._refuse_error(code.name, error)
        self._object: Final = made.object
        self._lines: Final = made.lines
        self.takes: Final = frozenset(made.takes)
        if made.mistake is not None:
            self.refuse(*made.mistake)

    def call(self, method: str, *arguments: object, **named: object) -> Any:
        """Call a method; returns None where the class does not have it."""
        function = getattr(self._object, method, None)
        if function is None:
            return None
        try:
            return function(*arguments, **named)
        except (Exception, SystemExit) as error:  # noqa: BLE001 - whatever the user's code does
            self._refuse_error(method, error)

    def read(self, name: str) -> Any:
        try:
            return getattr(self._object, name)
        except (Exception, SystemExit) as error:  # noqa: BLE001 - as above
            self._refuse_error(name, error)

    def refuse(
        self, what: str, found: str, expected: str, remedy: str = "", line: int | None = None
    ) -> NoReturn:
        """Raise the error of something in the user's code; its line is that of the method."""
        raise self._code.error(what, found, expected, line or self._lines.get(what), remedy)

    def _refuse_error(self, what: str, error: BaseException) -> NoReturn:
        text, line, remedy = describe_error(error, self._code.file, self._text.files)
        raise self._code.error(what, text, NO_ERROR, line, remedy) from None


class _Running(Protocol):
    """An object of the user's class, here or in another process.

    Attributes:
        takes: the methods that have the parameter that they may have besides.
    """

    @property
    def takes(self) -> Collection[str]: ...

    def call(self, method: str, *arguments: object, **named: object) -> Any:
        """Call a method."""

    def read(self, name: str) -> Any:
        """Read an attribute."""

    def refuse(self, what: str, found: str, expected: str, remedy: str = "") -> NoReturn:
        """Raise the error of something in the user's code."""


_making: ContextVar[Callable[..., _Running]] = ContextVar("_making", default=_OwnObject)
"""What makes the user's objects. Queue pairs need it, which are made deep below a run."""


@contextmanager
def run_apart(slowness: float = 1.0) -> Iterator[dict[str, None] | None]:
    """Run the user's classes in processes of their own during the block, which makes one run.

    Yields the restrictions that have been in force in these processes so far: a set that keeps its
    order. It yields None on Windows, which cannot wait for pipes: there the classes run in this
    process, without limits. A thread that is started in the block has to be given its context
    (`contextvars.copy_context`), or the classes run without limits there.

    Args:
        slowness: how many times longer they may take than on the machine the limits are for.
    """
    if sys.platform == "win32":
        yield None
        return
    from testbed.host.own_process import OwnProcess, Patience  # noqa: PLC0415 - simulations start none

    restrictions: dict[str, None] = {}
    patience = Patience(slowness)
    making = partial(OwnProcess, slowness=slowness, patience=patience, restrictions=restrictions)
    usual = _making.set(making)
    try:
        yield restrictions
    finally:
        _making.reset(usual)


class OwnSelector:
    """A path selector of the user's own, with the methods of `mrc.PathSelector`."""

    def __init__(
        self,
        code: OwnCode,
        evs: Sequence[EvInfo],
        seed: int,
        *,
        parameters: Mapping[str, object] = _NONE,
        ports: PortScheduler | None = None,
        record: Record | None = None,
    ) -> None:
        """Make the user's object.

        Args:
            code: the class.
            evs: its EVs.
            seed: for its random choices.
            parameters: what the scenario gives it by name.
            ports: the ports of the host; None: they are idle.
            record: takes what it records.

        Raises:
            InputError: the code raises an error or lacks what is needed.
        """
        record = record or Record()
        making = _making.get()
        self._own: Final = making(code, SELECTOR, evs, seed, parameters=parameters, record=record)
        self._record: Final = record
        self._evs: Final = {info.ev: info.plane for info in evs}
        planes = 1 + max(self._evs.values(), default=0)
        self._ports: Final = ports or PortScheduler(planes, rate_bps=1, packet_bytes=1, round_ns=0)
        self._asks_for_ports: Final = "pick" in self._own.takes
        self._picked: Final = Counter[int]()  # in the round under way, by plane
        self._round_ns = 0
        self._denied: Final = set[int]()
        self._nothing = 0  # picks in a row of nothing, with nothing in flight

    def pick(self, now_ns: int, flight: int, avoid: int | None) -> int | None:
        """Return what the user's method picks.

        Raises:
            InputError: it is no EV that may be used, or the method raises an error.
        """
        self._record.now_ns = now_ns
        if self._asks_for_ports:
            if now_ns != self._round_ns:  # those of the round before have been handed over
                self._round_ns = now_ns
                self._picked.clear()
            ports = Ports(*self._ports.state(now_ns, self._picked))
            ev = self._own.call("pick", now_ns, flight, avoid, ports=ports)
        else:
            ev = self._own.call("pick", now_ns, flight, avoid)
        if ev is None:
            self._nothing = 0 if flight else self._nothing + 1
            if self._nothing >= _MOST_NOTHING:
                expected = "an EV, since nothing is in flight whose answer could wake the sender"
                remedy = (
                    "return None only if flight is above 0; a method without return gives None, too"
                )
                self._own.refuse("pick", f"None, {self._nothing} times in a row", expected, remedy)
            return None
        self._nothing = 0
        if not isinstance(ev, int) or ev not in self._evs:
            expected = f"an EV that __init__ gets ({few([str(ev) for ev in sorted(self._evs)])})"
            remedy = "return its number, such as evs[0].ev: neither evs[0] nor an index"
            self._own.refuse("pick", shown(ev), f"{expected}, or None", remedy)
        if ev in self._denied:
            remedy = "keep the state of each EV in on_state, and pass over those in DENIED"
            self._own.refuse("pick", f"{ev}, which is denied", "an EV that is not", remedy)
        if self._asks_for_ports:
            self._picked[self._evs[ev]] += 1
        return ev

    def on_sack(self, ev: int, acked: int, rtt_ns: int | None, *, ecn: bool, now_ns: int) -> None:
        """Call the user's method."""
        self._record.now_ns = now_ns
        self._own.call("on_sack", ev, acked, rtt_ns, ecn=ecn, now_ns=now_ns)

    def on_nack(self, ev: int, reason: str, now_ns: int) -> None:
        """Call the user's method."""
        self._record.now_ns = now_ns
        self._own.call("on_nack", ev, reason, now_ns)

    def on_loss(self, ev: int, reason: str, now_ns: int) -> None:
        """Call the user's method."""
        self._record.now_ns = now_ns
        self._own.call("on_loss", ev, reason, now_ns)

    def on_state(self, ev: int, state: EvState, *, active: bool, now_ns: int) -> None:
        """Call the user's method; the state is its name."""
        self._evs.setdefault(ev, -1)  # an operator may add one, in a plane that is not told
        self._record.now_ns = now_ns
        (self._denied.add if state is EvState.DENIED else self._denied.discard)(ev)
        self._own.call("on_state", ev, state.value, active=active, now_ns=now_ns)


class OwnController:
    """A congestion controller of the user's own: a `mrc.CongestionController`.

    Attributes:
        window: the window of the user's object in bytes, but never less than a packet.
    """

    def __init__(
        self,
        code: OwnCode,
        path: CcPath,
        *,
        parameters: Mapping[str, object] = _NONE,
        record: Record | None = None,
    ) -> None:
        """Make the user's object; the arguments are those of `OwnSelector`.

        Raises:
            InputError: the code raises an error, lacks what is needed, or its window is no number.
        """
        self._path: Final = path
        self._record: Final = record or Record()
        making = _making.get()
        self._own: Final = making(
            code, CONTROLLER, path, parameters=parameters, record=self._record
        )
        self._read_window("__init__")

    def _read_window(self, method: str) -> None:
        window = self._own.read("window")
        if not isinstance(window, int | float) or not 0 <= window <= MOST_BYTES:
            huge = isinstance(window, int) and window > MOST_BYTES
            found = "a larger number" if huge else shown(window)
            expected = f"a number of bytes from 0 to {MOST_BYTES}"
            remedy = "keep it between bounds, such as path.mtu and 2 * path.bdp_bytes"
            self._own.refuse(method, f"window = {found} after it", expected, remedy)
        self.window = max(int(window), self._path.mtu)

    def on_sack(self, sack: SackReport) -> None:
        """Call the user's method."""
        self._report("on_sack", sack)

    def on_nack(self, nack: LossReport) -> None:
        """Call the user's method."""
        self._report("on_nack", nack)

    def on_loss(self, loss: LossReport) -> None:
        """Call the user's method."""
        self._report("on_loss", loss)

    def _report(self, method: str, report: SackReport | LossReport) -> None:
        self._record.now_ns = report.now_ns
        self._own.call(method, report)
        self._read_window(method)
