"""Rules taken out of the code, one at a time: the test that is named for each must then fail.

`python scripts/conformance.py mutate` tries all of them, each in a copy of the code.
"""

import shutil
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory

from tests.commands import completed

PROJECT = Path(__file__).parents[2]
_FAILED = 1
"""pytest's exit status where tests have failed; others say that they could not be run."""


@dataclass(frozen=True, slots=True)
class Mutation:
    """A change that takes a rule out of the code.

    Attributes:
        rule: the rule.
        file: where it stands.
        code: the code that keeps it, once in the file.
        without: what stands there without it.
        test: the test that proves the rule, by its id.
    """

    rule: str
    file: str
    code: str
    without: str
    test: str


def survives(mutation: Mutation) -> bool:
    """Whether the test still passes without the rule.

    Raises:
        RuntimeError: the test could not be run.
    """
    return _passes([mutation.test], mutation)


def all_pass() -> bool:
    """Whether the tests of all mutations pass in a copy in which nothing was changed.

    Raises:
        RuntimeError: a test could not be run.
    """
    return _passes([mutation.test for mutation in MUTATIONS])


def _passes(tests: Sequence[str], mutation: Mutation | None = None) -> bool:
    with TemporaryDirectory() as directory:
        copy = Path(directory)
        for name in ("testbed", "tests"):
            ignored = shutil.ignore_patterns("__pycache__", "*.so")
            shutil.copytree(PROJECT / name, copy / name, ignore=ignored)
        shutil.copy(PROJECT / "pyproject.toml", copy)
        if mutation is not None:
            file = copy / mutation.file
            file.write_text(file.read_text().replace(mutation.code, mutation.without))
        done = completed([sys.executable, "-m", "pytest", "-q", "-n", "0", "-x", *tests], cwd=copy)
    if done.returncode not in {0, _FAILED}:
        raise RuntimeError(f"{tests} could not be run:\n{done.stdout[-2000:]}{done.stderr}")
    return done.returncode == 0


_MRC = "tests/mrc/"
_VECTORS = f"{_MRC}test_vectors.py::"
_RESPONDER = "testbed/mrc/responder.py"
_CONTROL = "testbed/mrc/wire/control.py"

MUTATIONS = (
    Mutation(
        "a transport version other than 0 is refused",
        "testbed/mrc/wire/codec.py",
        """    if flags & _TRANSPORT_VERSION:
        raise DecodeError(DecodeReason.WRONG_VERSION)
    if is_write:
""",
        """    if is_write:
""",
        f"{_VECTORS}test_any_changed_bit_is_read_as_declared_or_refused[V3]",
    ),
    Mutation(
        "byte 4 of the BTH is masked in the iCRC",
        "testbed/mrc/wire/codec.py",
        'MASKED_RESERVED: Final = 0xFFFFFFFF & ~BTH.mask("dqp")',
        "MASKED_RESERVED: Final = 0",
        f"{_MRC}test_wire.py::test_the_icrc_is_that_of_rocev2",
    ),
    Mutation(
        "both UDP ports are accepted",
        "testbed/mrc/wire/kinds.py",
        "frozenset((ROCE_UDP_PORT, OTHER_UDP_PORT))",
        "frozenset((ROCE_UDP_PORT,))",
        f"{_MRC}test_wire.py::test_both_udp_ports_are_accepted_and_one_may_be_chosen",
    ),
    Mutation(
        "BTH.psn of a SACK is cack_psn",
        _CONTROL,
        "return Opcode.SACK, packet.qpn, packet.cack_psn,",
        "return Opcode.SACK, packet.qpn, 0,",
        f"{_VECTORS}test_control_vectors[V4]",
    ),
    Mutation(
        "cc_type of a NACK is 2",
        _CONTROL,
        '2 << NETH.shift("cc_type")',
        '0 << NETH.shift("cc_type")',
        f"{_VECTORS}test_control_vectors[V5]",
    ),
    Mutation(
        "m = 3 is read as no mark",
        _CONTROL,
        "EvMark.ALWAYS_SKIP, EvMark.NONE)",
        "EvMark.ALWAYS_SKIP, EvMark.ALWAYS_SKIP)",
        f"{_VECTORS}test_any_changed_bit_is_read_as_declared_or_refused[V4]",
    ),
    Mutation(
        "a SACK echoes rtx",
        _RESPONDER,
        "retransmitted=trigger.retransmitted,",
        "retransmitted=False,",
        f"{_MRC}test_responder.py::test_a_sack_echoes_that_a_retransmission_triggered_it",
    ),
    Mutation(
        "rcvd_bytes is rounded up",
        _RESPONDER,
        "-(-self._rcvd_bytes // RCVD_BYTES_UNIT)",
        "(self._rcvd_bytes // RCVD_BYTES_UNIT)",
        f"{_MRC}test_responder.py::test_received_bytes_are_whole_inner_packets_rounded_up",
    ),
    Mutation(
        "the window includes cack + MPR",
        _RESPONDER,
        """        if seq > self._edge or position < -_BEHIND:
            self._refuse""",
        """        if seq >= self._edge or position < -_BEHIND:
            self._refuse""",
        f"{_MRC}test_responder.py::test_the_window_ends_mpr_packets_above_cack[True]",
    ),
    Mutation(
        "a packet above the window is answered by a NACK",
        _RESPONDER,
        "if self._config.nack_beyond and seq > self._cack:",
        "if False:",
        f"{_MRC}test_responder.py::test_the_window_ends_mpr_packets_above_cack[True]",
    ),
    Mutation(
        "mpr is 0 unless both ends agreed on dynamic MPR",
        _RESPONDER,
        "mpr=self._mpr if config.dynamic_mpr else 0,",
        "mpr=self._mpr,",
        f"{_MRC}test_capabilities.py::test_the_window_is_advertised_only_where_both_ends_agree",
    ),
    Mutation(
        "a response is matched by its id, whatever op it shows",
        "testbed/mrc/endpoint.py",
        "if request is None or request.peer != response.source:",
        "if request is None or request.op != response.op:",
        f"{_MRC}test_demux.py::test_a_response_is_matched_by_its_id_whatever_op_it_shows",
    ),
    Mutation(
        "a port status update concerns every queue pair with that peer",
        "testbed/mrc/endpoint.py",
        "ports = self._ports.get(peer)\n",
        "ports = None\n",
        f"{_MRC}test_demux.py::test_one_port_status_holds_for_every_queue_pair_with_that_peer",
    ),
    Mutation(
        "1 in a port mask is a port that is reachable",
        "testbed/mrc/endpoint.py",
        "return _ALL & ~self._own",
        "return self._own",
        f"{_MRC}test_ports.py::test_the_update_says_which_port_and_is_sent_once_if_answered",
    ),
    Mutation(
        "a SACK completes no work request",
        "testbed/mrc/requester.py",
        "        self._on_acked(acked, cack, sack, now_ns, newest=newest)\n",
        """        self._on_acked(acked, cack, sack, now_ns, newest=newest)
        self._ack_wait.acknowledged(cack, now_ns)
""",
        f"{_MRC}test_acks.py::test_nothing_completes_without_acks_and_all_when_they_are_repeated",
    ),
    Mutation(
        "a packet from below the window is answered by an ACK too",
        _RESPONDER,
        """            if position < 0:
                self.delivery.ack_due = True
""",
        "",
        f"{_MRC}test_responder.py::test_a_packet_from_below_the_window_is_acknowledged_twice",
    ),
    Mutation(
        "more immediates than agreed are refused",
        "testbed/mrc/responder.py",
        "if self._immediates > self._config.capabilities.immediates:",
        "if False:",
        f"{_MRC}test_responder.py::test_more_immediates_than_agreed_are_an_invalid_request",
    ),
)
