"""Mininet's prompt works on the fabric."""

import contextlib
import io
import os
import tempfile
from pathlib import Path

import pytest
from mininet.log import lg

from testbed.emulation.fabric.fabric import Fabric
from testbed.emulation.fabric.net import ClosTopo, FabricCLI
from testbed.model.fabric.topology import Topology
from tests.sandbox import in_sandbox, run_in_sandbox

LINK = "p0_t0_0--p0_t1_0"


def test_the_mininet_topology_is_the_model(four_planes: Topology) -> None:
    """All hosts, switches and links, under the model's names."""
    topo = ClosTopo(four_planes)
    assert set(topo.hosts()) == {host.name for host in four_planes.hosts}
    assert set(topo.switches()) == {switch.name for switch in four_planes.switches}
    found = {frozenset(ends) for ends in topo.links()}
    assert found == {
        frozenset(port.node.name for port in link.ports) for link in four_planes.links.values()
    }


def typed(topology: Topology, *lines: str) -> str:
    """Build a fabric, type lines at Mininet's prompt and return what it prints."""

    def type_them() -> str:
        printed = io.StringIO()
        lg.handlers[0].stream = printed
        with Fabric(topology) as fabric, tempfile.NamedTemporaryFile("w") as script:
            script.write("\n".join(lines) + "\n")
            script.flush()
            reader, _silent = os.pipe()
            with contextlib.redirect_stdout(printed), os.fdopen(reader) as keyboard:
                FabricCLI(fabric.net, stdin=keyboard, script=script.name)
        return printed.getvalue()

    return run_in_sandbox(type_them)


@pytest.mark.root
def test_net_nodes_links_and_dump(tiny: Topology) -> None:
    """The words that Mininet's users know, with the fabric's names."""
    text = typed(tiny, "nodes", "net", "links", "dump")
    assert "h0 h1 p0_t0_0" in text
    assert "h0 h0-p0:p0_t0_0-d0 h0-p1:p1_t0_0-d0" in text
    assert "p0_t0_0-u1<->p0_t1_1-d0 (OK OK)" in text
    assert text.count("(OK OK)") == len(tiny.links)
    assert "<FabricHost h1: h1-p0:fd4d:5243:1::10,h1-p1:fd4d:5243:1::11" in text


@pytest.mark.root
def test_commands_run_in_the_node(tiny: Topology) -> None:
    """A shell is started when one is first asked for, and again asked it is the same."""
    text = typed(
        tiny,
        "h0 ip -6 route",
        "p0_t1_1 ip -6 route",
        "h1 X=kept",
        "h1 echo is $X",
        "h0 ping -6 -c1 -W1 h0 || ip -6 addr show dev lo",
    )
    assert "5f00:0:1000::/48 via fe80::1 dev h0-p0 proto static" in text
    assert "5f00:0:1200::/48 via fe80::1 dev h0-p1 proto static" in text
    assert "encap seg6local action End flavors next-csid lblen 32 nflen 16" in text
    assert "is kept" in text
    assert "fd4d:5243::1" in text


@pytest.mark.root
def test_link_down_and_up_bring_the_routes_back(tiny: Topology) -> None:
    """Mininet's `link` at the prompt cuts at both ends, and restores."""
    text = typed(tiny, "link p0_t0_0 p0_t1_0 down", "links", "link p0_t1_0 p0_t0_0 up", "links")
    assert text.count("(DOWN DOWN)") == 1
    assert text.count("(OK OK)") == 2 * len(tiny.links) - 1


@pytest.mark.root
@in_sandbox
def test_popen_runs_in_the_node_without_a_shell(tiny: Topology) -> None:
    """As Mininet's scripts use it."""
    with Fabric(tiny) as fabric:
        out, err, status = fabric.net["h1"].pexec("ip -br link show h1-p0")
        assert fabric.net["h1"].shell is None
    assert (err, status) == ("", 0)
    assert out.startswith("h1-p0@if")


@pytest.mark.root
@in_sandbox
def test_ctrl_c_reaches_the_command(tiny: Topology) -> None:
    """Mininet's prompt sends it to the node's terminal."""
    with Fabric(tiny) as fabric:
        node = fabric.net["h0"]
        # One process, which Ctrl-C ends from its first word on: between two commands the shell
        # itself may take the signal, and go on.
        node.sendCmd("sh -c 'echo begun; exec sleep infinity'")
        while "begun" not in node.monitor():
            pass
        node.sendInt()
        node.waitOutput()


def test_the_prompt_writes_no_history(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Mininet's own writes ~/.mininet_history."""
    monkeypatch.setenv("HOME", str(tmp_path))
    FabricCLI.initReadline()
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("line", "left"),
    [
        ("ev list h0-h4#1", "ev list h0-h4#1"),
        ("ev list h0-h4#1 # the second", "ev list h0-h4#1 "),
        ("# nothing", ""),
    ],
)
def test_a_comment_begins_with_a_word(line: str, left: str) -> None:
    """The name of a second queue pair has a # within."""
    assert FabricCLI.precmd(FabricCLI.__new__(FabricCLI), line) == left
