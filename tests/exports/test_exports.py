"""What `testbed topo --export` writes: golden files, and packets over what it says.

After a wanted change: `python -m tests.exports.test_exports` writes the golden files anew.
"""

import json
import re
import shutil
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path

import pytest
import yaml

from testbed.emulation.fabric import routes
from testbed.emulation.fabric.fabric import Fabric, wait_until_up
from testbed.emulation.fabric.interfaces import write_sysctl
from testbed.emulation.fabric.layout import Layout
from testbed.exports import FORMS
from testbed.model.fabric.addressing import link_address, paths
from testbed.model.fabric.nodes import Node, Tier
from testbed.model.fabric.topology import Topology
from tests.commands import completed
from tests.fabric.packets import arrives, in_node
from tests.sandbox import in_sandbox
from tests.waiting import wait_until

GOLDEN = Path(__file__).parent / "golden"
TINY = Topology(name="tiny", planes=1, t0_per_plane=2, t1_per_plane=1, hosts_per_t0=1)
WHOLE = Topology(name="whole", planes=2, t0_per_plane=2, t1_per_plane=2, hosts_per_t0=2)

DAEMONS = Path("/usr/lib/frr")
SIDS_SINCE = (10, 3)
"""The version of FRR that has static SIDs."""


def written(topology: Topology, form: str) -> dict[str, str]:
    return dict(FORMS[form](topology))


@pytest.mark.parametrize("form", FORMS)
def test_files_are_the_golden_ones(form: str) -> None:
    there = {
        path.relative_to(GOLDEN / form).as_posix(): path.read_text()
        for path in (GOLDEN / form).rglob("*")
        if path.is_file()
    }
    assert written(TINY, form) == there


def expected(topology: Topology, node: Node) -> tuple[set[tuple[str, str, str]], str]:
    """A node's static routes as (prefix, next hop, port), and its uN as iproute2 shows it."""
    layout = Layout(topology)
    tables = routes.expected(layout, node)
    by_port = {near.name: far for near, far, _ in topology.adjacency[node]}
    hops, un = set(), ""
    for route in tables.routes:
        device = layout.device_name(route.oif)
        if route.action is None:
            hop = str(link_address(by_port[device]))
            hops.add((str(route.destination), hop, device))
        else:
            un = route.text(layout.device_name)
    return hops, un


@pytest.mark.parametrize("topology", [TINY, WHOLE], ids=lambda topology: topology.name)
def test_every_form_has_the_routes_that_the_emulation_writes(topology: Topology) -> None:
    files = {form: written(topology, form) for form in FORMS}
    for node in topology.nodes.values():
        hops, un = expected(topology, node)
        script = files["linux"][f"{node.name}.sh"]
        assert {*re.findall(r"route replace (\S+) via (\S+) dev (\S+)", script)} == hops
        assert re.findall(r"route replace (.* encap .*)", script) == ([un] if un else [])
        if node.tier is Tier.HOST:
            continue
        frr = files["frr"][f"{node.name}/frr.conf"]
        assert {*re.findall(r"^ipv6 route (\S+) (\S+) (\S+)$", frr, re.MULTILINE)} == hops
        prefix = un.partition(" ")[0]
        assert f"   sid {prefix} locator MAIN behavior uN\n" in frr
        sonic = json.loads(files["sonic"][f"{node.name}.json"])
        ports = {name: port["description"].split()[0] for name, port in sonic["PORT"].items()}
        assert hops == {
            (key.partition("|")[2], route["nexthop"], ports[route["ifname"]])
            for key, route in sonic["STATIC_ROUTE"].items()
        }
        assert [*sonic["SRV6_MY_SIDS"]] == [f"MAIN|{prefix}"]


def test_containerlab_has_each_node_and_each_link_once() -> None:
    files = written(WHOLE, "containerlab")
    lab = yaml.safe_load(files.pop("whole.clab.yml"))
    assert [*lab["topology"]["nodes"]] == [*WHOLE.nodes]
    ends = [frozenset(link["endpoints"]) for link in lab["topology"]["links"]]
    assert ends == [
        frozenset(f"{port.node.name}:{port.name}" for port in link.ports)
        for link in WHOLE.links.values()
    ]
    binds = [
        bind.partition(":")[0]
        for node in lab["topology"]["nodes"].values()
        for bind in node.get("binds", ())
    ]
    assert binds == [*files]
    assert files == written(WHOLE, "frr")


def test_sonic_names_only_what_it_declares() -> None:
    """Each profile, map and port that a row names has a row of its own, and says what trims."""
    for name, text in written(WHOLE, "sonic").items():
        if not name.endswith(".json"):
            continue
        db = json.loads(text)
        for table in ("INTERFACE", "PORT_QOS_MAP", "BUFFER_QUEUE", "QUEUE"):
            assert {key.partition("|")[0] for key in db[table]} == {*db["PORT"]}
        for row in db["PORT_QOS_MAP"].values():
            for field, value in row.items():
                assert value in db[field.upper()]
        assert {row["profile"] for row in db["BUFFER_QUEUE"].values()} == {*db["BUFFER_PROFILE"]}
        for row in db["QUEUE"].values():
            assert row["scheduler"] in db["SCHEDULER"]
            assert row.get("wred_profile") in {None, *db["WRED_PROFILE"]}
        trimming = db["SWITCH_TRIMMING"]["GLOBAL"]
        assert all(trimming["tc_value"] in row for row in db["TC_TO_DSCP_MAP"].values())
        assert trimming["tc_value"] not in db["DSCP_TO_TC_MAP"]["MRC"].values()
        numbers = [
            value
            for row in (db["PORT"] | db["BUFFER_PROFILE"] | db["WRED_PROFILE"]).values()
            for value in row.values()
        ]
        assert all(isinstance(value, str) for value in numbers)


# --- with packets -------------------------------------------------------------------------------


@contextmanager
def emptied(topology: Topology) -> Iterator[Fabric]:
    """A fabric without routes, neighbours and addresses, whose links resolve neighbours."""
    with Fabric(topology) as fabric:
        for node in topology.nodes.values():
            ports = [near.name for near, _, _ in topology.adjacency[node]]
            commands = ["route flush table main", "neighbour flush nud permanent"]
            commands += ["address flush dev lo"] if node.tier is Tier.HOST else []
            for port in ports:  # as on any machine; the fabric's own are silent
                commands += [f"link set {port} down multicast on", f"link set {port} up"]
            with in_node(node):
                for port in ports:
                    write_sysctl(f"ipv6/conf/{port}/addr_gen_mode", "0")
                given = "\n".join(commands)
                subprocess.run(["ip", "-6", "-batch", "-"], input=given, text=True, check=True)
        wait_until_up(fabric.layout, fabric.namespaces)
        yield fabric


def run_script(node: Node, script: str) -> None:
    """Run a script in a node, as root of a switch would."""
    with in_node(node):
        subprocess.run(["sh", "-e"], input=script, text=True, check=True)


@pytest.mark.root
@pytest.mark.kernel
@in_sandbox
def test_all_paths_carry_with_the_exported_commands() -> None:
    with emptied(WHOLE) as fabric:
        for name, script in written(WHOLE, "linux").items():
            run_script(WHOLE.nodes[name.removesuffix(".sh")], script)
        fabric.sweep()


@pytest.mark.root
@pytest.mark.kernel
@pytest.mark.skipif(not (DAEMONS / "staticd").exists(), reason="FRR is not installed (apt: frr)")
@in_sandbox
def test_all_paths_carry_with_frr(tmp_path: Path) -> None:
    """FRR gives the switches all that it can: before 10.3 not their uNs, which `ip` gives them."""
    knows_uns = frr_version() >= SIDS_SINCE
    with emptied(WHOLE):
        scripts, configurations = written(WHOLE, "linux"), written(WHOLE, "frr")
        for name, node in WHOLE.nodes.items():
            script = scripts[f"{name}.sh"]
            if node.tier is Tier.HOST:
                run_script(node, script)
                continue
            file = tmp_path / f"{name}.conf"
            file.write_text(configurations[f"{name}/frr.conf"])
            if knows_uns:
                run_script(node, SR0)
            else:
                file.write_text(file.read_text().partition("segment-routing\n")[0])
                run_script(node, "\n".join(line for line in script.splitlines() if not_frrs(line)))
            start_frr(node, file)
        for node in WHOLE.switches:
            count = len(WHOLE.adjacency[node]) + knows_uns
            wait_until(partial(has_from_frr, node, count), "FRR's routes", within_s=60)
        assert not [
            (src.name, dst.name, path.name)
            for src in WHOLE.hosts
            for dst in WHOLE.hosts
            for path in paths(WHOLE, src, dst)
            if src != dst and not arrives(WHOLE, src, dst, path)
        ]


SR0 = "ip link add sr0 type veth peer name sr0-peer; ip link set sr0 up; ip link set sr0-peer up"
"""What containerlab's file does with a dummy interface, which not every kernel has."""


def not_frrs(line: str) -> bool:
    """Whether a line of a switch's script is nothing that FRR before 10.3 does."""
    return " via " not in line and " address " not in line


def start_frr(node: Node, file: Path) -> None:
    """Start FRR in a switch with a configuration."""
    place = Path("/run/frr") / node.name  # the sandbox's own /run
    place.mkdir(parents=True)
    for path in (place.parent, place):
        shutil.chown(path, "frr", "frr")
    commands = [
        f"{DAEMONS}/{daemon} -d -N {node.name}"
        for daemon in ("mgmtd", "zebra", "staticd")
        if (DAEMONS / daemon).exists()
    ]
    with in_node(node), (file.parent / "said").open("w+") as said:
        for command in [*commands, f"vtysh -N {node.name} -f {file}"]:
            done = subprocess.run(command.split(), stdout=said, stderr=said, check=False)
            assert done.returncode == 0, (command, (file.parent / "said").read_text())


def has_from_frr(node: Node, count: int) -> bool:
    """Whether FRR's staticd has given a switch so many routes."""
    with in_node(node):
        command = ["ip", "-6", "-j", "route", "show", "proto", "196"]  # RTPROT_ZSTATIC
        shown = completed(command, check=True).stdout
    return len(json.loads(shown or "[]")) == count


def frr_version() -> tuple[int, int]:
    """The version of the FRR here; zeros if there is none."""
    if not (DAEMONS / "staticd").exists():
        return 0, 0
    command = [f"{DAEMONS}/staticd", "--version"]
    shown = completed(command).stdout
    found = re.search(r"version (\d+)\.(\d+)", shown)
    return (int(found[1]), int(found[2])) if found else (0, 0)


@pytest.mark.skipif(frr_version() < SIDS_SINCE, reason="FRR 10.3 or newer is not installed")
def test_frr_knows_every_line(tmp_path: Path) -> None:
    for name, text in written(WHOLE, "frr").items():
        file = tmp_path / "frr.conf"
        file.write_text(text)
        checked = completed(["vtysh", "-C", "-f", file])
        assert (checked.returncode, checked.stderr) == (0, ""), name


if __name__ == "__main__":
    for each in FORMS:
        for name, text in written(TINY, each).items():
            path = GOLDEN / each / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text)
