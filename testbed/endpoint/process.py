"""The process in a host: hands packets and times to the MRC core, and its packets to the kernel.

The loop never waits for packets, only for times: the NIC (nic.py) keeps what arrives until it is
due. It wakes a few hundred times a second and does all that has become due.
"""

import gc
import json
import os
import select
import socket

from testbed.endpoint.clock import now_ns
from testbed.endpoint.health import HealthLog
from testbed.endpoint.kernel.stack import kernel_stack
from testbed.endpoint.nic import Nic
from testbed.endpoint.port_monitor import PortMonitor
from testbed.host.plan import MAX_MESSAGE, EndpointPlan
from testbed.host.queue_pairs import Stack, sans_io_stack
from testbed.host.recording import Tables
from testbed.host.traffic import Traffic, slot_bytes
from testbed.model.fabric.topology import PAYLOAD_MTU
from testbed.model.transport import Mptcp, Tcp
from testbed.workloads.pattern import Block

TICKS_PER_RTT = 40
"""The loop wakes at most this often per base RTT: waking up is what costs on a small machine."""

RTT_TIMEOUT_S = 10


class Endpoint:
    """One host's queue pairs, NIC and records; `run` is its event loop."""

    def __init__(self, plan: EndpointPlan, control: socket.socket) -> None:
        """Open everything; the process must be in the host's network namespace already."""
        topology = plan.topology
        self._plan = plan
        self._control = control
        self._monitor = PortMonitor.of(topology, plan.host)
        self._tick_ns = topology.propagation_rtt_ns // TICKS_PER_RTT
        self._nic = Nic(topology, plan.host, self._tick_ns)
        self._bin_ns = topology.propagation_rtt_ns // 16
        start = now_ns()
        self._tables = Tables(plan.raw_directory, plan.host.name)
        block = Block(plan.seed, slot_bytes(plan.longest_bytes))
        self._traffic = Traffic(plan, _stack(plan), block, self._tables, self._nic.send, start)
        self._health = HealthLog(plan.raw_directory.parent / "health.jsonl", plan.host.name, start)
        self._next_bin_ns = start
        self._told_ns = start
        self._ports_full_until_ns = 0
        self._stop_ns: int | None = None
        self._start_ns: int | None = None
        self._drained = False
        self._finished = False

    # --- the loop -----------------------------------------------------------------------------

    def run(self) -> None:
        """Work until the parent says finish; raises what nobody foresaw."""
        wake_ns = now_ns()
        watched: list[socket.socket | PortMonitor] = [self._control, self._monitor]
        while not self._finished:
            now = now_ns()
            self._receive(now, behind_ns=max(now - wake_ns, 0))
            self._work(now)
            self._send(now_ns())
            self._keep_records(now)
            wake_ns = max(self._next_wake_ns(now), now + self._tick_ns)
            timeout_ns = max(wake_ns - now_ns(), 0)
            ready = select.select(watched, [], [], timeout_ns / 1e9)[0]
            if ready:
                wake_ns = self._told_ns = now_ns()
            if self._monitor in ready:
                for plane, up in self._monitor.changes():
                    self._traffic.port_changed(plane, up=up, now_ns=wake_ns)
            if self._control in ready:
                self._obey()
                wake_ns = now_ns()

    def _receive(self, now: int, behind_ns: int = 0) -> None:
        """Take in what is due, so much later than the loop meant to wake.

        What was due before that has waited for its tick as well, which is no lag.
        """
        lag, receive = self._health.lag, self._traffic.receive
        lag(behind_ns)
        for packet, arrival, late_ns in self._nic.arrivals(now, self._told_ns):
            lag(min(late_ns, behind_ns))
            receive(memoryview(packet), arrival)

    def _work(self, now: int) -> None:
        """Keep the workload going, and say when the last WRITE has completed."""
        traffic = self._traffic
        if self._start_ns is not None and now >= self._start_ns:
            self._start_ns = None
            traffic.begin(now)
        stopped = self._stop_ns is not None and now >= self._stop_ns
        if stopped:
            traffic.end()
        traffic.work(now)
        if stopped and not self._drained and traffic.idle:
            self._drained = True
            self._tell({"drained": True})

    def _send(self, now: int) -> None:
        """Send what is due."""
        nic = self._nic
        self._told_ns = now
        room = self._traffic.transmit(now, nic.room(now))
        nic.flush()
        self._ports_full_until_ns = nic.next_room_ns(now) if room <= 0 else 0

    def _next_wake_ns(self, now: int) -> int:
        full_until_ns = self._ports_full_until_ns
        wake_ns = min(
            self._nic.next_arrival_ns(now),
            self._traffic.deadline_ns(now, full=bool(full_until_ns)),
        )
        return min(wake_ns, full_until_ns) if full_until_ns else wake_ns

    def _keep_records(self, now: int) -> None:
        if now >= self._next_bin_ns:
            self._next_bin_ns = now + self._bin_ns
            self._traffic.sample(now)
            self._tables.flush()
        if now >= self._health.due_ns:
            self._health.write(now, {"raw_socket": self._nic.overflowed})

    # --- the parent's words -------------------------------------------------------------------

    def _tell(self, message: dict[str, object]) -> None:
        self._control.send(json.dumps(message).encode())

    def _obey(self) -> None:
        data = self._control.recv(MAX_MESSAGE)
        if not data:
            raise ConnectionError("the run that this endpoint belongs to has ended")
        command = json.loads(data)
        match command:
            case {"measure_rtt": flow}:
                self._tell({"rtt_ns": self._measure_rtt(flow)})
            case {"start_ns": start}:
                self._start_ns = start
            case {"stop_ns": stop}:
                self._stop_ns = stop
            case {"deny": directions}:
                self._told_ns = now_ns()
                self._traffic.deny(frozenset(directions), self._told_ns)
            case {"killed": hosts}:
                self._traffic.write_off(hosts)
            case {"finish": True}:
                self._finish()
            case _:
                raise ValueError(f"unknown command {command}")

    def _measure_rtt(self, flow: int) -> int:
        """One base RTT sample: from handing a full packet to the socket to processing its SACK."""
        sender = self._traffic.senders[flow]
        sender.post(PAYLOAD_MTU)
        sent_ns = now_ns()
        self._send(sent_ns)
        deadline_ns = sent_ns + RTT_TIMEOUT_S * 1_000_000_000
        while (now := now_ns()) < deadline_ns:
            self._receive(now)
            self._traffic.work(now)
            if sender.idle:
                return now_ns() - sent_ns
            self._send(now_ns())
            wake_ns = max(self._next_wake_ns(now), now + self._tick_ns)
            select.select([], [], [], max(wake_ns - now_ns(), 0) / 1e9)
        raise TimeoutError(f"no SACK within {RTT_TIMEOUT_S} s on an idle fabric")

    def _finish(self) -> None:
        self._finished = True
        self._health.write(now_ns(), {"raw_socket": self._nic.overflowed})
        self._health.close()
        self._tables.close()
        self._tell({"finished": self._report()})
        self._nic.close()
        self._monitor.close()

    def _report(self) -> dict[str, object]:
        return {**self._traffic.report(), "send_errors": self._nic.send_errors}


def _stack(plan: EndpointPlan) -> Stack:
    """The stack of the plan's transport: the kernel's or this process's."""
    if isinstance(plan.transport, Tcp | Mptcp):
        return kernel_stack(plan, plan.transport)
    return sans_io_stack(plan)


def run_endpoint(plan: EndpointPlan, control: socket.socket) -> int:
    """Be the endpoint of a host until the parent says finish; returns the exit status."""
    gc.freeze()
    gc.disable()  # nothing here makes cycles; a collection would stop the loop at a bad moment
    endpoint = Endpoint(plan, control)
    control.send(b'{"ready": true}')
    endpoint.run()
    return os.EX_OK
