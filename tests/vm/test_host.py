"""What a machine may have that a run must neither stumble over nor change.

Each condition is brought about on the machine itself.
"""

import json
import subprocess
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path

import pytest

from testbed.model.errors import ExitStatus
from testbed.model.run_files.layout import SUMMARY
from testbed.model.summary import Summary
from tests.commands import TESTBED, completed
from tests.waiting import wait_until

pytestmark = [
    pytest.mark.root,
    pytest.mark.vm,
    pytest.mark.skipif(
        not Path("/etc/test-vm").exists(), reason="changes the machine: make test-vm runs it"
    ),
]

DILATION = 100_000
SCENARIO = f"""\
name: tiny
topology: {{base: clos-tiny, dilation: {DILATION}}}
duration: 20 s
workload: {{kind: write_bw, pairs: [[h0, h1]], message_size: 64 KiB}}
"""
FAULT = "timeline: [{kind: blackhole, target: p0_t0_0--p0_t1_1, at: 6 s, for: 6 s}]\n"
HOUR_S = 3600.0


def do(*commands: str) -> str:
    """Run shell commands, which must succeed; returns what they print."""
    done = completed(["bash", "-ec", "\n".join(commands)])
    assert done.returncode == 0, done.stderr
    return done.stdout


def state(*commands: str) -> list[str]:
    """What a run could change of the machine, and what further commands print."""
    names = "ip -br link | cut -d' ' -f1"
    settings = "sysctl -a 2>/dev/null | grep -E '^net\\.(ipv[46]|mptcp|core|mpls)' | sort"
    return [do(command) for command in (names, "ip -br addr", "ip -6 route", settings, *commands)]


@contextmanager
def under_way(here: Path, scenario: str) -> Iterator[list[Summary]]:
    """A run; at the end of the block it is awaited, and its summary put into what was yielded."""
    (here / "tiny.yaml").write_text(scenario)
    summaries: list[Summary] = []
    command = [str(TESTBED), "run", "tiny.yaml", "--force", "--no-figures"]
    with subprocess.Popen(command, cwd=here, stderr=subprocess.PIPE, text=True) as process:
        yield summaries
        _, printed = process.communicate()
    assert process.returncode in {ExitStatus.AS_EXPECTED, ExitStatus.UNTRUSTED}, printed
    (run,) = here.glob("results/tiny/2*")
    summaries.append(Summary.model_validate_json((run / SUMMARY).read_text()))


def assert_all_arrived(summaries: list[Summary]) -> None:
    """Nothing is lost or corrupted."""
    (summary,) = summaries
    assert summary.integrity.intact, summary.integrity
    assert all(flow.packets_sent for flow in summary.flows)


def test_a_clock_that_is_set_in_mid_run_changes_nothing(tmp_path: Path) -> None:
    """Kernel timestamps are of that clock: packets would be held back, or come too early."""
    with under_way(tmp_path, SCENARIO) as summaries:
        wait_until(lambda: list(tmp_path.glob("results/tiny/2*/health.jsonl")), "the run begins")
        for step_s in (HOUR_S, -2 * HOUR_S):  # ahead, then behind
            time.sleep(4)
            time.clock_settime(time.CLOCK_REALTIME, time.time() + step_s)
        time.sleep(4)
        time.clock_settime(time.CLOCK_REALTIME, time.time() + HOUR_S)
    assert_all_arrived(summaries)
    for flow in summaries[0].flows:
        assert flow.packets_retransmitted < 0.01 * flow.packets_sent, flow


DOCKER = """
modprobe br_netfilter
sysctl -q net.ipv4.ip_forward=1
sysctl -q net.bridge.bridge-nf-call-iptables=1 net.bridge.bridge-nf-call-ip6tables=1
ip link add docker0 type bridge
ip addr add 172.17.0.1/16 dev docker0
ip link set docker0 up
for tables in iptables-nft ip6tables-nft; do
  $tables -P FORWARD DROP
  for chain in DOCKER DOCKER-USER DOCKER-FORWARD DOCKER-BRIDGE DOCKER-CT; do $tables -N $chain; done
  $tables -A DOCKER-USER -j RETURN
  $tables -A FORWARD -j DOCKER-USER
  $tables -A FORWARD -j DOCKER-FORWARD
  $tables -A DOCKER-CT -o docker0 -m conntrack --ctstate RELATED,ESTABLISHED -j ACCEPT
  $tables -A DOCKER-FORWARD -j DOCKER-CT
  $tables -A DOCKER-FORWARD -i docker0 -j ACCEPT
  $tables -A DOCKER ! -i docker0 -o docker0 -j DROP
done
iptables-nft -t nat -A POSTROUTING -s 172.17.0.0/16 ! -o docker0 -j MASQUERADE
"""
"""What Docker 28 sets up as it starts."""


RULES = ("iptables-nft -S", "iptables-nft -t nat -S", "ip6tables-nft -S")

SWITCH = """
mkdir -p /etc/openvswitch /run/openvswitch /var/log/openvswitch
[ -e /etc/openvswitch/conf.db ] || ovsdb-tool create
ovsdb-server --remote=punix:/run/openvswitch/db.sock --pidfile --detach --log-file
ovs-vsctl --no-wait init
ovs-vswitchd --pidfile --detach --log-file
ovs-vsctl add-br ours -- set bridge ours datapath_type={datapath} -- add-port ours own \
  -- set interface own type=internal
ovs-ofctl add-flow ours priority=7,actions=drop
"""


SWITCH_QUERIES = (
    "ovs-vsctl show",
    "ovs-ofctl --no-stats dump-flows ours",
    "cat /run/openvswitch/*.pid",
    "kill -0 $(cat /run/openvswitch/ovs-vswitchd.pid)",
)


@contextmanager
def open_vswitch(datapath: str) -> Iterator[None]:
    """Open vSwitch runs as a service would, in user space or with the kernel's module."""
    if datapath == "system":
        do("modprobe openvswitch")
    do(SWITCH.format(datapath=datapath))
    yield
    do("ovs-vsctl del-br ours", "ovs-appctl exit", "ovs-appctl -t ovsdb-server exit")
    wait_until(lambda: not list(Path("/run/openvswitch").glob("*.pid")), "Open vSwitch ends")


@contextmanager
def ipv6_off() -> Iterator[None]:
    """IPv6 is switched off by sysctl: the namespaces of a run have their own."""
    switches = [f"net.ipv6.conf.{which}.disable_ipv6" for which in ("all", "default")]
    do(*(f"sysctl -q {switch}=1" for switch in switches))
    yield
    do(*(f"sysctl -q {switch}=0" for switch in switches))


@contextmanager
def docker() -> Iterator[None]:
    """Docker's bridge and rules are there, and stay."""
    do(DOCKER)
    yield


@pytest.mark.parametrize(
    ("other", "datapath"),
    [(ipv6_off, "netdev"), (docker, "system")],
    ids=lambda one: getattr(one, "__name__", one),
)
def test_what_the_machine_has_goes_on_as_it_was(
    tmp_path: Path, other: Callable[[], AbstractContextManager[None]], datapath: str
) -> None:
    """Two conditions at a time, since each run takes minutes where QEMU translates."""
    queries = (*RULES, *SWITCH_QUERIES)
    with other(), open_vswitch(datapath):
        before = state(*queries)
        with under_way(tmp_path, SCENARIO + FAULT) as summaries:
            pass
        assert_all_arrived(summaries)
        (faults,) = tmp_path.glob("results/tiny/2*/faults.jsonl")
        records = [json.loads(line) for line in faults.read_text().splitlines()]
        assert {record["actuator"] for record in records} == {"openflow"}
        assert state(*queries) == before
