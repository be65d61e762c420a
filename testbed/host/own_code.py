"""Runs algorithms of the user's own: makes an object of the class, and checks what it returns.

A path selector has the methods of `mrc.PathSelector` and is made of its EVs (`EvInfo`) and a seed.
A congestion controller has those of `WindowControl` (mrc/congestion/window.py) and is made of a
`CcPath`. Methods that begin with `on_` may be missing.
"""

import sys
import traceback
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from types import ModuleType
from typing import Any, Final, NoReturn, Protocol, TypeVar

from testbed.model.own_code import OwnCode
from testbed.mrc import EvInfo, EvState
from testbed.mrc.congestion.control import LossCause, Report

_MOST_NOTHING = 3
"""How often in a row a selector may pick nothing while nothing is in flight."""

MOST_BYTES = 1 << 50
"""No window may be larger."""

_Result = TypeVar("_Result")


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

    def __init__(self, code: OwnCode, method: str, *arguments: object) -> None:
        self._code: Final = code
        self._object: Final[Any] = self._run(code.name, lambda: self._class()(*arguments))
        if not hasattr(self._object, method):
            self.refuse(code.name, f"no {method}", f"a class with {method}")

    def _class(self) -> Callable[..., Any]:
        module = ModuleType(self._code.name)
        exec(compile(self._code.source, self._code.file, "exec"), module.__dict__)  # noqa: S102
        return getattr(module, self._code.name)  # type: ignore[no-any-return]

    def call(self, method: str, *arguments: object, **named: object) -> Any:
        """Call a method; returns None where the class does not have it."""
        function = getattr(self._object, method, None)
        if function is None:
            return None
        return self._run(method, lambda: function(*arguments, **named))

    def read(self, name: str) -> Any:
        """Read an attribute or a property."""
        return self._run(name, lambda: getattr(self._object, name))

    def refuse(self, what: str, found: str, expected: str, line: int | None = None) -> NoReturn:
        """Raise the error of something in the user's code."""
        raise self._code.error(what, found, expected, line)

    def _run(self, what: str, action: Callable[[], _Result]) -> _Result:
        try:
            return action()
        except (Exception, SystemExit) as error:  # noqa: BLE001 - whatever the user's code does
            frames = traceback.extract_tb(error.__traceback__)
            lines = [frame.lineno for frame in frames if frame.filename == self._code.file]
            line = lines[-1] if lines else None
            found = f"{type(error).__name__}: {error}".removesuffix(": ")
            self.refuse(what, found, "code that raises no error", line)


class _Running(Protocol):
    """An object of the user's class, here or in another process."""

    def call(self, method: str, *arguments: object, **named: object) -> Any:
        """Call a method."""

    def read(self, name: str) -> Any:
        """Read an attribute."""

    def refuse(self, what: str, found: str, expected: str, line: int | None = None) -> NoReturn:
        """Raise the error of something in the user's code."""


_made_by: Callable[..., _Running] = _OwnObject


@contextmanager
def run_apart(slowness: float = 1.0) -> Iterator[None]:
    """Run the user's classes in processes of their own during the block.

    Windows cannot wait for pipes: there they run in this process, without limits.

    Args:
        slowness: how many times longer they may take than on the machine the limits are for.
    """
    if sys.platform == "win32":
        yield
        return
    from testbed.host.own_process import OwnProcess  # noqa: PLC0415 - simulations start none

    global _made_by  # noqa: PLW0603 - queue pairs are made deep below a run
    usual, _made_by = _made_by, partial(OwnProcess, slowness=slowness)
    try:
        yield
    finally:
        _made_by = usual


class OwnSelector:
    """A path selector of the user's own, with the methods of `mrc.PathSelector`."""

    def __init__(self, code: OwnCode, evs: Sequence[EvInfo], seed: int) -> None:
        self._own: Final = _made_by(code, "pick", evs, seed)
        self._evs: Final = frozenset(info.ev for info in evs)
        self._nothing = 0  # picks in a row of nothing, with nothing in flight

    def pick(self, now_ns: int, flight: int, avoid: int | None) -> int | None:
        """Return what the user's method picks.

        Raises:
            InputError: it is no EV of this queue pair, or the method raises an error.
        """
        ev = self._own.call("pick", now_ns, flight, avoid)
        if ev is None:
            self._nothing = 0 if flight else self._nothing + 1
            if self._nothing >= _MOST_NOTHING:
                expected = "an EV, since nothing is in flight whose answer could wake the sender"
                self._own.refuse("pick", f"None, {self._nothing} times in a row", expected)
            return None
        self._nothing = 0
        if not isinstance(ev, int) or ev not in self._evs:
            self._own.refuse("pick", repr(ev), "one of the EVs that the class is made of, or None")
        return ev

    def on_sack(self, ev: int, acked: int, rtt_ns: int | None, *, ecn: bool, now_ns: int) -> None:
        """Call the user's method."""
        self._own.call("on_sack", ev, acked, rtt_ns, ecn=ecn, now_ns=now_ns)

    def on_nack(self, ev: int, reason: str, now_ns: int) -> None:
        """Call the user's method."""
        self._own.call("on_nack", ev, reason, now_ns)

    def on_loss(self, ev: int, reason: str, now_ns: int) -> None:
        """Call the user's method."""
        self._own.call("on_loss", ev, reason, now_ns)

    def on_state(self, ev: int, state: EvState, *, active: bool, now_ns: int) -> None:
        """Call the user's method; the state is its name."""
        self._own.call("on_state", ev, state.value, active=active, now_ns=now_ns)


class OwnCongestion:
    """A congestion controller of the user's own, with the methods of `WindowControl`.

    Its window is read after each report, and is never less than a packet.
    """

    def __init__(self, code: OwnCode, path: CcPath) -> None:
        self._code: Final = code
        self._path: Final = path
        self._flight = 0
        self._restart()

    def has_room(self, payload: int, nominal: int) -> bool:  # noqa: ARG002 - payload counts here
        """Whether a packet of this size may be sent now."""
        return self._flight + payload <= self._window

    def on_sent(self, payload: int, nominal: int) -> None:  # noqa: ARG002
        """Count it as in flight."""
        self._flight += payload

    def on_delivered(self, payload: int) -> None:
        """Count it as in flight no longer."""
        self._flight -= payload

    def on_withdrawn(self, payload: int, nominal: int) -> None:  # noqa: ARG002
        """Count it as in flight no longer."""
        self._flight -= payload

    def on_report(self, report: Report) -> None:
        """Call the user's methods; round trips of retransmissions are not handed on."""
        acked, _, rtt_ns, repeated, ecn, penalty, restore, now_ns = report
        if penalty is not None:
            self.on_penalty(penalty, restore=restore)
        if acked is not None:
            self.on_sack(acked, None if repeated else rtt_ns, ecn=ecn, now_ns=now_ns)

    def on_lost(
        self,
        cause: LossCause,
        payload: int,
        nominal: int,  # noqa: ARG002
        rtt_ns: int | None,  # noqa: ARG002
        now_ns: int,
    ) -> None:
        """Call the user's method."""
        self._flight -= payload
        self.on_loss(payload, trimmed=cause is LossCause.TRIMMED, now_ns=now_ns)

    def reset(self) -> None:
        """Begin again, unless other queue pairs have packets in flight."""
        if self._flight == 0:
            self._restart()

    def _restart(self) -> None:
        """Make a new object of the class."""
        self._own = _made_by(self._code, "window", self._path)
        self._read_window()

    @property
    def window(self) -> int:
        """Bytes that may be in flight."""
        return self._window

    def _read_window(self) -> None:
        window = self._own.read("window")
        if not isinstance(window, int | float) or not 0 <= window <= MOST_BYTES:
            huge = isinstance(window, int) and window > MOST_BYTES
            shown = "a larger number" if huge else repr(window)
            expected = f"a number of bytes from 0 to {MOST_BYTES}"
            self._own.refuse("window", shown, expected)
        self._window = max(int(window), self._path.mtu)

    def on_sack(self, acked: int, rtt_ns: int | None, *, ecn: bool, now_ns: int) -> None:
        """Call the user's method."""
        self._own.call("on_sack", acked, rtt_ns, ecn=ecn, now_ns=now_ns)
        self._read_window()

    def on_loss(self, lost: int, *, trimmed: bool, now_ns: int) -> None:
        """Call the user's method."""
        self._own.call("on_loss", lost, trimmed=trimmed, now_ns=now_ns)
        self._read_window()

    def on_penalty(self, penalty: int, *, restore: bool) -> None:
        """Call the user's method."""
        self._own.call("on_penalty", penalty, restore=restore)
        self._read_window()
