"""Random calls of verbs against a model of states and completions, for ten minutes.

The model is written from ibv_modify_qp(3), ibv_post_send(3) and ibv_post_recv(3), not from the
code: which calls succeed in which state, and how each work request may end.
"""

import errno
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, Phase, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, precondition, rule, run_state_machine_as_test

from testbed.device.protocol import IbvState, IbvStatus
from tests.device.test_device import HERE, THERE, end_in, fabric, nic_process
from tests.device.verbs import INIT, RTR, RTS, SIGNALED, WRITE, WRITE_IMM, End, VerbsError
from tests.sandbox import run_in_sandbox
from tests.waiting import WATCHDOG_S

pytestmark = [pytest.mark.root, pytest.mark.long]

LASTS_S = 600.0
WARM_S = 60.0
GROWTH = 1.05

NEXT = {IbvState.RESET: IbvState.INIT, IbvState.INIT: IbvState.RTR, IbvState.RTR: IbvState.RTS}
MASKS = {IbvState.INIT: INIT, IbvState.RTR: RTR, IbvState.RTS: RTS}
DEPTH = 64
ANY_END = {IbvStatus.SUCCESS, IbvStatus.WR_FLUSH_ERR}


@dataclass
class Model:
    """A queue pair as a program may expect it.

    Attributes:
        peer: the other end, always ready to receive.
        sends: the work requests that must still be reported, and how each may end.
        outstanding: those that take a place of the send queue, reported or not.
        receives: posted receives.
    """

    qp: Any
    peer: Any
    state: IbvState = IbvState.RESET
    sends: list[tuple[int, set[IbvStatus]]] = field(default_factory=list)
    receives: list[int] = field(default_factory=list)
    outstanding: int = 0


class Calls(RuleBasedStateMachine):
    """Any calls, in any order, on queue pairs of one end; the other end is always ready."""

    a: End
    b: End

    def __init__(self) -> None:
        super().__init__()
        self.qps: list[Model] = []
        self.number = 0

    def _pick(self, number: int) -> Model:
        return self.qps[number % len(self.qps)]

    @precondition(lambda self: len(self.qps) < 4)
    @rule()
    def make(self) -> None:
        qp, peer = self.a.make_qp(depth=DEPTH), self.b.make_qp()
        self.b.connect(peer, self.a.gid, qp.contents.qp_num)
        for wr_id in range(8):
            assert self.b.post_recv(peer, wr_id) == 0
        self.qps.append(Model(qp, peer))

    @precondition(lambda self: self.qps)
    @rule(number=st.integers(0, 3), state=st.sampled_from([*NEXT.values(), *NEXT.values()]))
    def advance(self, number: int, state: IbvState) -> None:
        model = self._pick(number)
        allowed = NEXT.get(model.state) is state or (
            model.state is state and state in (IbvState.INIT, IbvState.RTS)
        )
        if allowed:
            self._modify(model, state)
            model.state = state
            return
        with pytest.raises(VerbsError) as raised:
            self._modify(model, state)
        assert raised.value.errno == errno.EINVAL

    def _modify(self, model: Model, state: IbvState) -> None:
        fields: dict[str, Any] = {"qp_access_flags": 3, "rq_psn": 7, "sq_psn": 7, "path_mtu": 5}
        route = self.a.route(self.b.gid)
        number = model.peer.contents.qp_num
        self.a.modify(model.qp, state, MASKS[state], dest_qp_num=number, ah_attr=route, **fields)

    @precondition(lambda self: self.qps)
    @rule(number=st.integers(0, 3))
    def fail(self, number: int) -> None:
        model = self._pick(number)
        self.a.modify(model.qp, IbvState.ERR, 1)
        model.state = IbvState.ERR

    @precondition(lambda self: self.qps)
    @rule(
        number=st.integers(0, 3),
        size=st.sampled_from([0, 1, 100, 4096, 9000]),
        opcode=st.sampled_from([WRITE, WRITE, WRITE_IMM, 2]),
        flags=st.sampled_from([0, SIGNALED]),
    )
    def post(self, number: int, size: int, opcode: int, flags: int) -> None:
        model = self._pick(number)
        self.number += 1
        remote = self.b.va, self.b.mr.contents.rkey
        self.b.poll()
        if opcode == WRITE_IMM:
            assert self.b.post_recv(model.peer, 0) in (0, errno.ENOMEM)
        error = self.a.post(model.qp, self.number, remote, size, opcode=opcode, flags=flags)
        if model.state not in (IbvState.RTS, IbvState.ERR) or opcode not in (WRITE, WRITE_IMM):
            assert error == errno.EINVAL
        elif error:
            assert error == errno.ENOMEM
            assert model.outstanding >= DEPTH
        else:
            model.outstanding += 1
            ends = ANY_END if model.state is IbvState.RTS else {IbvStatus.WR_FLUSH_ERR}
            if flags or model.state is IbvState.ERR:
                model.sends.append((self.number, ends))
            else:  # reported only if it fails
                model.sends.append((-self.number, ends))

    @precondition(lambda self: self.qps)
    @rule(number=st.integers(0, 3))
    def post_recv(self, number: int) -> None:
        model = self._pick(number)
        self.number += 1
        error = self.a.post_recv(model.qp, self.number)
        if model.state is IbvState.RESET:
            assert error == errno.EINVAL
        elif error:
            assert error == errno.ENOMEM
            assert len(model.receives) >= DEPTH
        else:
            model.receives.append(self.number)

    @precondition(lambda self: self.qps)
    @rule()
    def poll(self) -> None:
        for entry in self.a.poll():
            (model,) = [m for m in self.qps if m.qp.contents.qp_num == entry.qp_num]
            status = IbvStatus(entry.status)
            if entry.opcode & 128 or entry.wr_id in model.receives:
                assert entry.wr_id == model.receives.pop(0)
                assert status is IbvStatus.WR_FLUSH_ERR
                assert model.state is IbvState.ERR
                continue
            while model.sends[0][0] == -abs(model.sends[0][0]) != -entry.wr_id:
                model.sends.pop(0)  # one without a signal has succeeded
            wr_id, ends = model.sends.pop(0)
            assert (abs(wr_id), status in ends) == (entry.wr_id, True), status
            assert wr_id > 0 or status is IbvStatus.WR_FLUSH_ERR
            assert status is IbvStatus.SUCCESS or model.state is IbvState.ERR

    @precondition(lambda self: self.qps)
    @rule(number=st.integers(0, 3))
    def destroy(self, number: int) -> None:
        model = self._pick(number)
        self._drain(model)
        self.qps.remove(model)
        self.a.library.call("destroy_qp", model.qp)
        self.b.library.call("destroy_qp", model.peer)

    def _drain(self, model: Model) -> None:
        """Every signalled request is reported, and every receive of a queue pair in ERR."""
        end = time.monotonic() + WATCHDOG_S
        while any(wr_id > 0 for wr_id, _ in model.sends) or (
            model.state is IbvState.ERR and model.receives
        ):
            assert time.monotonic() < end
            self.poll()
            self.b.poll()

    def teardown(self) -> None:
        for model in [*self.qps]:
            self._drain(model)
            self.a.library.call("destroy_qp", model.qp)
            self.b.library.call("destroy_qp", model.peer)
            self.qps.remove(model)
        while self.a.poll() or self.b.poll():
            pass


def _resident(pid: int) -> int:
    status = Path(f"/proc/{pid}/status").read_text()
    (line,) = [line for line in status.splitlines() if line.startswith("VmRSS")]
    return int(line.split()[1])


def test_any_calls_end_as_the_model_says_and_memory_does_not_grow() -> None:
    def act() -> None:
        with fabric():
            Calls.a, Calls.b = (end_in(host, cqe=4096) for host in (HERE, THERE))
            nic = nic_process()
            begun, warm = time.monotonic(), 0
            while (passed := time.monotonic() - begun) < LASTS_S or not warm:
                run_state_machine_as_test(
                    Calls,
                    settings=settings(
                        max_examples=50,
                        stateful_step_count=60,
                        deadline=None,
                        database=None,
                        phases=[Phase.generate],  # to shrink, each try would wait for the network
                        suppress_health_check=list(HealthCheck),
                    ),
                )
                if not warm and passed >= WARM_S:
                    warm = _resident(nic)
            assert _resident(nic) <= warm * GROWTH

    run_in_sandbox(act, timeout_s=WATCHDOG_S + LASTS_S)
