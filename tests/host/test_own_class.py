"""Mistakes in a class of the user's own: one message each, here and in a process of its own."""

import inspect
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from typing import Any

import pytest

from testbed.host.own_class import CONTROLLER, SELECTOR, Interface
from testbed.host.own_code import CcPath, OwnController, OwnSelector, run_apart
from testbed.model.errors import InputError
from testbed.model.own_code import OwnCode
from testbed.mrc import (
    CongestionController,
    EvInfo,
    EvState,
    FixedWindow,
    LossReport,
    Nscc,
    PathSelector,
    SackReport,
    UecNscc,
)
from testbed.mrc.ev.selection import AdaptiveSpray, BlindSpray

pytestmark = pytest.mark.programs

Where = Callable[[], AbstractContextManager[None]]

EVS = (EvInfo(ev=3, plane=0, path=0, active=True), EvInfo(ev=5, plane=1, path=1, active=True))
PATH = CcPath(base_rtt_ns=1000, bdp_bytes=100_000, mtu=4096, trimming=True, seed=1)
SACK = SackReport(4096, 900, False, True, None, False, 8192, 7)
TRIM = LossReport(4096, "TRIMMED", True, None, 4096, 8)
LOSS = LossReport(4096, "timeout", False, None, 0, 9)

INIT = "    def __init__(self, evs, seed): self.evs = evs\n"
PICK = "    def pick(self, now_ns, flight, avoid): return 3\n"
MADE = "    def __init__(self, path): self.window = 2 * path.mtu\n"

here_and_apart = pytest.mark.parametrize("where", [nullcontext, run_apart])


def _code(body: str) -> OwnCode:
    return OwnCode(file="mine.py", name="Mine", source=f"class Mine:\n{body}")


def _parameters(protocol: type, name: str) -> str:
    signature = inspect.signature(getattr(protocol, name))
    bare = [
        inspect.Parameter(parameter.name, _kind(parameter))
        for parameter in signature.parameters.values()
    ]
    return str(signature.replace(parameters=bare, return_annotation=inspect.Signature.empty))


def _kind(parameter: inspect.Parameter) -> Any:
    """Its kind; `self` of a method built as C can be given by position only."""
    if parameter.kind is inspect.Parameter.POSITIONAL_ONLY:
        return inspect.Parameter.POSITIONAL_OR_KEYWORD
    return parameter.kind


@pytest.mark.parametrize(
    ("interface", "protocol", "built_in"),
    [
        (SELECTOR, PathSelector, (AdaptiveSpray, BlindSpray)),
        (CONTROLLER, CongestionController, (Nscc, UecNscc, FixedWindow)),
    ],
)
def test_own_code_and_the_projects_algorithms_have_one_interface(
    interface: Interface, protocol: type, built_in: tuple[type, ...]
) -> None:
    names = {name for name, member in vars(protocol).items() if inspect.isroutine(member)}
    names = {name for name in names if not name.startswith("_")}
    assert names == interface.methods.keys() - {"__init__"}
    for name in names:
        wanted = f"(self, {interface.methods[name]})"
        assert _parameters(protocol, name) == wanted
        for algorithm in built_in:
            assert _parameters(algorithm, name) == wanted


@here_and_apart
@pytest.mark.parametrize(
    ("body", "message"),
    [
        (INIT, r"mine\.py:1: Mine: found no pick, expected a class with def pick\(self, now_ns"),
        (
            INIT + PICK.replace("pick", "pik"),
            r"mine\.py:1: Mine: found no pick.*\n  remedy: rename pik",
        ),
        (
            INIT + "    def pick(self, now_ns): return 3\n",
            r"mine\.py:3: Mine\.pick: found def pick\(self, now_ns\) .*now_ns, flight, avoid\)",
        ),
        (
            INIT + "    def pick(now_ns, flight, avoid): return 3\n",
            r"mine\.py:3: .*expected def pick\(self, now_ns",
        ),
        (INIT + "    pick = 3\n", "Mine.pick: found 3, which is no method"),
        (
            INIT + PICK + "    def on_sack(self, ev): pass\n",
            r"mine\.py:4: Mine\.on_sack: found def on_sack\(self, ev\)",
        ),
        (
            INIT + PICK + "    def on_sak(self): pass\n",
            r"mine\.py:4: Mine\.on_sak: found a method that nothing(.|\n)*did you mean on_sack\?",
        ),
        (
            "    def __init__(self, evs): pass\n" + PICK,
            r"mine\.py:2: Mine\.__init__: .*expected def __init__\(self, evs, seed\)",
        ),
        (
            INIT.replace("__init__", "__int__") + PICK,
            "Mine.__init__: found no such method(.|\n)*rename __int__",
        ),
        (
            INIT + PICK.replace("3", "self.evs[0]"),
            r"mine\.py:3: Mine\.pick: found .*ev=3.*expected an EV(.|\n)*such as evs\[0\]\.ev",
        ),
        (
            INIT + PICK.replace("3", "self.evs[0].number"),
            r"mine\.py:3: (.|\n)*remedy: it has ev, plane, path, active",
        ),
    ],
)
def test_a_mistake_in_a_selector_says_what_to_do(where: Where, body: str, message: str) -> None:
    with where(), pytest.raises(InputError, match=message):
        OwnSelector(_code(body), EVS, 1).pick(0, 0, None)


@here_and_apart
@pytest.mark.parametrize(
    ("body", "message"),
    [
        (MADE.replace("window", "windw"), "found no window(.|\n)*remedy: rename windw"),
        (
            MADE + "    def on_sack(self, acked, rtt_ns, *, ecn, now_ns): pass\n",
            r"mine\.py:3: Mine\.on_sack: .*expected def on_sack\(self, sack\)",
        ),
        (
            MADE + "    def on_sack(self, sack): self.window += sack.bytes\n",
            "remedy: it has acked, rtt_ns, repeated",
        ),
        (
            MADE + "    def on_nack(self, nack): self.window -= 3 * nack.lost\n",
            r"mine\.py:3: Mine\.on_nack: found window = -4096 after it",
        ),
        (MADE + "    def on_lost(self, loss): pass\n", r"did you mean on_loss\?"),
        (MADE.replace("mtu", "bdp"), "remedy: it has base_rtt_ns, bdp_bytes, mtu"),
    ],
)
def test_a_mistake_in_a_controller_says_what_to_do(where: Where, body: str, message: str) -> None:
    with where(), pytest.raises(InputError, match=message):
        _made_and_used(_code(body))


def _made_and_used(code: OwnCode) -> None:
    controller = OwnController(code, PATH)
    controller.on_sack(SACK)
    controller.on_nack(TRIM)


@here_and_apart
def test_a_controller_is_told_everything(where: Where) -> None:
    """Bytes, round trip, mark, bytes in flight, time; the cause of a NACK and of a loss."""
    body = MADE + (
        "    def on_sack(self, sack):\n"
        "        assert (sack.acked, sack.rtt_ns, sack.repeated) == (4096, 900, False)\n"
        "        assert sack.ecn is True\n"
        "        assert (sack.penalty, sack.restore) == (None, False)\n"
        "        self.window += sack.flight + sack.now_ns\n"
        "    def on_nack(self, nack):\n"
        "        assert (nack.reason, nack.trimmed, nack.rtt_ns) == ('TRIMMED', True, None)\n"
        "        self.window += nack.flight + nack.now_ns\n"
        "    def on_loss(self, loss):\n"
        "        assert (loss.reason, loss.trimmed, loss.lost) == ('timeout', False, 4096)\n"
        "        self.window += loss.flight + loss.now_ns\n"
    )
    with where():
        controller = OwnController(_code(body), PATH)
        assert controller.window == 2 * 4096
        controller.on_sack(SACK)
        controller.on_nack(TRIM)
        controller.on_loss(LOSS)
        assert controller.window == 2 * 4096 + (8192 + 7) + (4096 + 8) + (0 + 9)


@here_and_apart
def test_an_ev_that_is_denied_may_not_be_picked(where: Where) -> None:
    with where():
        selector = OwnSelector(_code(INIT + PICK), EVS, 1)
        assert selector.pick(0, 0, None) == 3
        selector.on_state(3, EvState.DENIED, active=False, now_ns=1)
        with pytest.raises(InputError, match="found 3, which is denied"):
            selector.pick(2, 0, None)


@here_and_apart
def test_it_may_have_dataclasses_with_annotations_as_text(where: Where) -> None:
    source = (
        "from __future__ import annotations\n"
        "from dataclasses import dataclass\n"
        "@dataclass\n"
        "class Path:\n"
        "    ev: int\n"
        "@dataclass\n"
        "class Mine:\n"
        "    evs: list[Path]\n"
        "    seed: int\n"
        "    def pick(self, now_ns, flight, avoid): return Path(self.evs[0].ev).ev\n"
    )
    with where():
        code = OwnCode(file="mine.py", name="Mine", source=source)
        assert OwnSelector(code, EVS, 1).pick(0, 0, None) == 3


@here_and_apart
def test_what_it_is_given_can_be_hashed_copied_and_unpacked(where: Where) -> None:
    selector = INIT + (
        "    def pick(self, now_ns, flight, avoid):\n"
        "        from dataclasses import replace\n"
        "        other = replace(self.evs[0], ev=5, plane=1, path=1)\n"
        "        assert {*self.evs} == {self.evs[0], other}\n"
        "        assert str(other) == 'EvInfo(ev=5, plane=1, path=1, active=True)'\n"
        "        return other.ev\n"
    )
    controller = MADE + (
        "    def on_sack(self, sack):\n"
        "        acked, *_, now_ns = sack\n"
        "        self.window = acked + now_ns\n"
        "    def on_loss(self, loss):\n"
        "        self.window = loss._replace(lost=9000).lost\n"
    )
    with where():
        assert OwnSelector(_code(selector), EVS, 1).pick(0, 0, None) == 5
        made = OwnController(_code(controller), PATH)
        made.on_sack(SACK)
        assert made.window == 4096 + 7
        made.on_loss(LOSS)
        assert made.window == 9000
