"""The recorders of one process, and those of a host's tables."""

from collections.abc import Callable, Mapping
from contextlib import ExitStack
from pathlib import Path
from typing import Final

from testbed.host.plan import QpPlan
from testbed.host.roce import wire as roce
from testbed.model.closeable import Closeable
from testbed.model.fabric.topology import Topology
from testbed.mrc import Datagram
from testbed.mrc.constants import ICRC_BYTES
from testbed.mrc.wire.datagram import Outbound
from testbed.mrc.wire.headers import IPV6, UDP
from testbed.mrc.wire.kinds import ENDPOINT_RESPONSE, KIND_OF
from testbed.results import records
from testbed.results.records import CONTROL_DILATION, Recorder, raw_path


class _NoRecorder:
    """Takes rows like a `Recorder`, and records nothing."""

    def append(self, *_: object) -> None:
        """Drop a row."""

    def extend(self, _: object) -> None:
        """Drop rows."""


class Recorders(Closeable):
    """The recorders that one process has opened; without a directory they record nothing."""

    def __init__(self, directory: Path | None, *, stay_open: bool = True) -> None:
        """Open recorders in `directory` from now on; `stay_open` is for each one's file."""
        self._directory = directory
        self._stay_open = stay_open
        self._files = ExitStack()
        self._recorders: list[Recorder] = []

    def open(self, process: str, table: records.Table) -> Recorder | _NoRecorder:
        """Create the raw file of a table, with the rows of a process."""
        if self._directory is None:
            return _NoRecorder()
        path = raw_path(self._directory, process, table)
        recorder = Recorder(path, table, stays_open=self._stay_open)
        self._recorders.append(self._files.enter_context(recorder))
        return recorder

    def flush(self) -> None:
        """Hand everything recorded so far to the kernel: it remains if the process is killed."""
        for recorder in self._recorders:
            recorder.flush()

    def close(self) -> None:
        self._files.close()


class Tables(Recorders):
    """The tables of one host, each a function that records a row.

    `arrivals`, `transmissions` and `round_trips` take many rows at once.
    """

    def __init__(self, directory: Path | None, host: str, *, stay_open: bool = True) -> None:
        super().__init__(directory, stay_open=stay_open)
        self.host = host
        self.arrivals = self.open(host, records.ARRIVALS).extend
        self.transmissions = self.open(host, records.TRANSMISSIONS).extend
        self.round_trips = self.open(host, records.ROUND_TRIPS).extend
        self.losses = self.open(host, records.LOSSES).append
        self.ev_events = self.open(host, records.EV_EVENTS).append
        self.qp = self.open(host, records.QP).append
        self.completions = self.open(host, records.COMPLETIONS).append
        self.operations = self.open(host, records.OPERATIONS).append
        self.operator = self.open(host, records.OPERATOR).append

    def control(self) -> Callable[..., None]:
        """A function that records a control packet; its raw file is created now."""
        return self.open(self.host, records.CONTROL).append

    def algorithm(self) -> Callable[..., None]:
        """A function that records what a class of the user's own does; its file is created now."""
        return self.open(self.host, records.ALGORITHM).append


# --------------------------------------------------------------------------------------------------
# Records the control packets of a host, for a person who follows single packets.


_OPCODE: Final = IPV6.size + UDP.size
"""Where the opcode of the BTH is in an inner packet."""

_CONTROL: Final = {
    **{code: (kind.recorded, kind.of_responder) for code, kind in KIND_OF.items() if kind.recorded},
    roce.Opcode.ACKNOWLEDGE: ("ack", True),
}
"""What records call packets, by the opcode of MRC or RoCE, and whether the responder sends them.
RoCE's CNPs are not recorded."""


class ControlLog:
    """Records each control packet as it is sent, and as it arrives."""

    def __init__(self, append: Callable[..., None], received: Mapping[bytes, int | None]) -> None:
        """Record with `append`, a function of the table `control`.

        `received` has the flow that comes from each peer, by its NIC address.
        """
        self._append = append
        self._received = received

    def sent(self, plan: QpPlan, datagram: Datagram, plane: int, now_ns: int) -> None:
        """Record a packet of a queue pair: SACKs belong to the flow that is received."""
        if (recorded := _CONTROL.get(datagram.header[_OPCODE])) is not None:
            _, of_responder = recorded
            flow = plan.receives if of_responder else plan.sends
            self._record(flow, recorded, datagram, plane, now_ns)

    def answered(self, answer: Outbound, plane: int, now_ns: int) -> None:
        """Record the answer to a probe: it belongs to the flow of the peer that asked."""
        recorded = _CONTROL[ENDPOINT_RESPONSE.opcodes[0]]
        self._record(self._received.get(answer.peer), recorded, answer.datagram, plane, now_ns)

    def _record(
        self,
        flow: int | None,
        recorded: tuple[str, bool],
        datagram: Datagram,
        plane: int,
        now_ns: int,
    ) -> None:
        if flow is not None:
            name, back = recorded
            icrc = int.from_bytes(datagram.trailer[-ICRC_BYTES:], "big")
            self._append(now_ns, flow, plane, datagram.ev, name, icrc, True, back)

    def arrived(self, packet: memoryview, now_ns: int) -> None:
        """Record the arrival of a packet, if it is a control packet."""
        recorded = _CONTROL.get(packet[_OPCODE]) if len(packet) > _OPCODE + ICRC_BYTES else None
        if recorded is not None:
            name, back = recorded
            icrc = int.from_bytes(packet[-ICRC_BYTES:], "big")
            self._append(now_ns, -1, -1, 0, name, icrc, False, back)


def control_log(
    topology: Topology, tables: Tables, received: Mapping[bytes, int | None]
) -> ControlLog | None:
    """The log of a host, if time is so dilated that a person can follow single packets."""
    if topology.dilation < CONTROL_DILATION:
        return None
    return ControlLog(tables.control(), received)
