"""The process in a host: the event loop of its queue pairs, with the commands of the run."""

import gc
import os
from typing import Any

from testbed.emulation.endpoint.clock import HealthLog, now_ns
from testbed.emulation.endpoint.event_loop import EventLoop, PortMonitor
from testbed.emulation.endpoint.kernel_tcp import kernel_stack
from testbed.emulation.endpoint.nic import Nic
from testbed.host.operator import Answer
from testbed.host.plan import ENDPOINT_ROUNDS_PER_RTT, EndpointPlan, rtt_timeout_s
from testbed.host.queue_pairs import Stack, sans_io_stack
from testbed.host.recording import Tables
from testbed.host.rounds import HostTransport, PortScheduler
from testbed.host.traffic import SAMPLES_PER_RTT, Traffic, slot_bytes
from testbed.host.workloads.messages import Block
from testbed.model.fabric.topology import PAYLOAD_MTU
from testbed.model.operator.commands import TOO_LATE, Command, parse_command
from testbed.model.run_files.layout import HEALTH
from testbed.model.transport import KernelTransport
from testbed.model.units import NS_PER_S
from testbed.sandbox.channel import Channel


class Endpoint:
    """One host's queue pairs, NIC and records; `run` is its event loop."""

    rounds_per_rtt = ENDPOINT_ROUNDS_PER_RTT

    def __init__(self, plan: EndpointPlan, channel: Channel) -> None:
        """Open everything; the process must be in the host's network namespace already."""
        topology = plan.scenario.topology
        self._rtt_timeout_s = rtt_timeout_s(topology)
        self._channel = channel
        self._plan = plan
        self._nic = Nic(topology, plan.host, topology.propagation_rtt_ns // self.rounds_per_rtt)
        self._sample_ns = topology.propagation_rtt_ns // SAMPLES_PER_RTT
        start = now_ns()
        self._tables = Tables(plan.raw_directory, plan.host.name)
        block = Block(plan.scenario.seed, slot_bytes(plan.scenario.longest_bytes))
        stack = _stack(plan, self._nic.ports, self._tables)
        self._traffic = Traffic(plan, stack, block, self._tables, self._nic.send, start)
        monitor = PortMonitor.of(topology, plan.host)
        self._loop = EventLoop(self._nic, monitor, self._transport())
        self._health = HealthLog(plan.raw_directory.parent / HEALTH, plan.host.name, start)
        self._next_sample_ns = start
        self._stop_ns: int | None = None
        self._start_ns: int | None = None
        self._drained = False
        self._finished = False

    def run(self) -> None:
        """Work until the run's command to finish.

        Raises:
            ConnectionError: the run has ended without that command.
        """
        wake_ns = now_ns()
        while not self._finished:
            now = now_ns()
            self._receive(now, behind_ns=max(now - wake_ns, 0))
            self._work(now)
            self._loop.send(now_ns())
            self._keep_records(now)
            wake_ns, woken = self._loop.sleep(now, self._watched())
            if woken:
                self._wake_up()
                wake_ns = now_ns()

    # What a host does besides in which programs run as well: `EndpointWithPrograms`, device/nic.py.

    def _transport(self) -> HostTransport:
        """What its rounds drive."""
        return self._traffic

    def _watched(self) -> list[int]:
        """The descriptors that end a sleep."""
        return [self._channel.fileno()]

    def _wake_up(self) -> None:
        self._handle_commands()

    def _carry_out(self, command: Command, answer: Answer) -> None:
        self._traffic.operator.handle(command, self._loop.time_ns(), answer)

    def _receive(self, now: int, behind_ns: int = 0) -> None:
        """Take in what is due, `behind_ns` after the loop meant to wake.

        What was due before that has waited for its round as well, which is no lag.
        """
        lag = self._health.lag
        lag(behind_ns)
        for late_ns in self._loop.receive(now):
            lag(min(late_ns, behind_ns))

    def _work(self, now: int) -> None:
        """Keep the workload going, and report when the last WRITE has completed."""
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
            self._channel.send({"drained": True})

    def _keep_records(self, now: int) -> None:
        if now >= self._next_sample_ns:
            self._next_sample_ns = now + self._sample_ns
            self._traffic.sample(now)
            self._tables.flush()
        if now >= self._health.due_ns:
            self._health.write(now, {"raw_socket": self._nic.sockets.overflowed})

    def _handle_commands(self) -> None:
        commands = self._channel.receive()
        if commands is None:
            raise ConnectionError("the run that this endpoint belongs to has ended")
        for command in commands:
            self._handle_command(command)

    def _handle_command(self, command: dict[str, Any]) -> None:
        match command:
            case {"measure_rtt": flow}:
                self._channel.send({"rtt_ns": self._measure_rtt(flow)})
            case {"start_ns": start}:
                self._start_ns = start
            case {"stop_ns": stop}:
                self._stop_ns = stop
                self._traffic.operator.end_at(stop)
            case {"deny": directions}:
                now = self._loop.time_ns()
                self._traffic.operator.deny_crossing(frozenset(directions), now)
            case {"operate": number, "until_ns": until} if self._loop.time_ns() > until:
                self._channel.send({"operated": number, "content": TOO_LATE})
            case {"operate": number, "command": values}:
                self._operate(number, values)
            case {"operate": number, "busy": state}:
                content = {"busy": state, "refused": self._traffic.set_busy(state)}
                self._channel.send({"operated": number, "content": content})
            case {"killed": hosts}:
                self._traffic.write_off(hosts)
            case {"finish": True}:
                self._finish()
            case _:
                raise ValueError(f"unknown command {command}")

    def _operate(self, number: int, values: dict[str, Any]) -> None:
        """Carry out an operator's command, and send the answer when it has taken effect."""

        def answer(content: dict[str, Any]) -> None:
            self._channel.send({"operated": number, "content": content})

        self._carry_out(parse_command(values), answer)

    def _measure_rtt(self, flow: int) -> int:
        """One base RTT sample: from handing a full packet to the socket to processing its SACK."""
        sender = self._traffic.senders[flow]
        sender.post(PAYLOAD_MTU)
        sent_ns = now_ns()
        self._loop.send(sent_ns)
        timeout_s = self._rtt_timeout_s
        deadline_ns = sent_ns + round(timeout_s * NS_PER_S)
        while (now := now_ns()) < deadline_ns:
            self._receive(now)
            self._traffic.work(now)
            if sender.idle:
                return now_ns() - sent_ns
            self._loop.send(now_ns())
            self._loop.sleep(now)
        raise TimeoutError(f"no SACK within {timeout_s:g} s on an idle fabric")

    def _finish(self) -> None:
        self._finished = True
        self._health.write(now_ns(), {"raw_socket": self._nic.sockets.overflowed})
        self._health.close()
        self._tables.close()
        outcome = {**self._traffic.report(), "send_errors": self._nic.sockets.send_errors}
        self._channel.send({"finished": outcome})
        self._loop.close()


def _stack(plan: EndpointPlan, ports: PortScheduler, tables: Tables) -> Stack:
    """The stack of the plan's transport: the kernel's or this process's."""
    if isinstance(plan.scenario.transport, KernelTransport):
        return kernel_stack(plan, plan.scenario.transport)
    return sans_io_stack(plan, ports, tables)


def run_endpoint(plan: EndpointPlan, channel: Channel, kind: type[Endpoint] = Endpoint) -> int:
    """Be the endpoint of a host until the run's command to finish; returns the exit status."""
    gc.freeze()
    gc.disable()  # nothing here makes cycles; a collection would stop the loop at a bad moment
    endpoint = kind(plan, channel)
    channel.send({"ready": True})
    endpoint.run()
    return os.EX_OK
