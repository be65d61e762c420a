"""Programs of all hosts of a workload, in virtual time, joined by flows that keep their order."""

from collections import Counter, defaultdict
from heapq import heappop, heappush
from itertools import count
from pathlib import Path
from random import Random
from typing import Any

from testbed.host.plan import plan_endpoints
from testbed.host.workloads.programs import FlowEnd, Operation, Post, Program, program_of
from testbed.model.fabric.topology import Topology
from testbed.model.files.topologies import load_topology
from testbed.model.flows import flows_of
from testbed.model.scenario import Scenario
from testbed.mrc import NEVER

TOPOLOGY = load_topology("clos-4plane")

NODES = Topology(
    name="nodes",
    planes=1,
    t0_per_plane=2,
    t1_per_plane=1,
    hosts_per_t0=3,
    nics_per_node=2,
    rails=True,
    dilation=1,
)
"""Three nodes of two NICs: h0 h2 h4 on rail 0, h1 h3 h5 on rail 1."""

LOOK_NS = NODES.propagation_rtt_ns // 40
"""How often a NIC looks whether the others of its node are done."""


class Crew:
    """The programs, and every message that they post.

    Attributes:
        posted: (time, flow, post) in order.
        arrived: (time, flow) of the immediates received, in order.
        finished: the operations of every host.
    """

    def __init__(
        self,
        workload: dict[str, Any],
        *,
        lanes: int = 1,
        seed: int = 0,
        topology: Topology = TOPOLOGY,
    ) -> None:
        """Prepare the programs; delays of messages are drawn from 1 to 100 ns."""
        self.scenario = Scenario.model_validate(
            {
                "name": "crew",
                "topology": topology,
                "workload": workload,
                "transport": {"qps": lanes},
            }
        )
        self.posted: list[tuple[int, int, Post]] = []
        self.arrived: list[tuple[int, int]] = []
        self.finished: dict[str, list[Operation]] = defaultdict(list)
        self._random = Random(seed)
        self._order = count()
        self._events: list[tuple[int, int, str, int | None, str, int]] = []
        self._free_ns: Counter[int] = Counter()
        self._outstanding: Counter[int] = Counter()
        self._flows = flows_of(self.scenario)
        depth = self.scenario.depth
        self._depth = depth
        plans = plan_endpoints(self.scenario, Path())
        self._meetings = {host.name: plan.meetings.get(0) for host, plan in plans.items()}
        self._programs: dict[str, Program] = {
            host: self._program(host) for host in sorted(self._meetings)
        }

    def _program(self, host: str) -> Program:
        sends = [FlowEnd(f.number, f.dst.name, f.lane) for f in self._flows if f.src.name == host]
        receives = [
            FlowEnd(f.number, f.src.name, f.lane) for f in self._flows if f.dst.name == host
        ]
        (job,) = self.scenario.job_list
        return program_of(self.scenario, job, host, sends, receives, self._meetings[host])

    def run(self, until_ns: int) -> None:
        """Let time pass."""
        for host, program in self._programs.items():
            program.begin(0)
            self._poll(host, 0)
        while self._events and self._events[0][0] <= until_ns:
            now_ns, _, host, flow, what, data = heappop(self._events)
            program = self._programs[host]
            if what == "arrives" and flow is not None:
                self.arrived.append((now_ns, flow))
                program.received_immediate(flow, data, now_ns)
            elif what == "completes" and flow is not None:
                self._outstanding[flow] -= 1
                program.completed(flow, now_ns)
            self._poll(host, now_ns)

    def _poll(self, host: str, now_ns: int) -> None:
        program = self._programs[host]
        for post in program.posts(now_ns):
            self._post(host, post, now_ns)
        self.finished[host] += program.finished
        program.finished.clear()
        if program.wake_ns < NEVER:
            self._at(program.wake_ns, host, None, "wakes")

    def _post(self, host: str, post: Post, now_ns: int) -> None:
        flow = self._flows[post.flow]
        assert flow.src.name == host
        assert 1 <= post.size <= self.scenario.longest_bytes
        self._outstanding[post.flow] += 1
        assert self._outstanding[post.flow] <= self._depth
        self.posted.append((now_ns, post.flow, post))
        there_ns = max(self._free_ns[post.flow], now_ns + self._random.randint(1, 100))
        back_ns = there_ns + self._random.randint(1, 100)
        self._free_ns[post.flow] = there_ns
        if post.immediate is not None:
            self._at(there_ns, flow.dst.name, post.flow, "arrives", post.immediate)
        self._at(max(back_ns, self._free_ns[-1 - post.flow]), host, post.flow, "completes")
        self._free_ns[-1 - post.flow] = back_ns

    def _at(self, time_ns: int, host: str, flow: int | None, what: str, data: int = 0) -> None:
        heappush(self._events, (time_ns, next(self._order), host, flow, what, data))
