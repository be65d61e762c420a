"""`testbed topo`: what it writes, and what it refuses."""

import errno
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from testbed.exports import FORMS
from testbed.model.files.topologies import load_topology

from .conftest import Call


def test_the_text_picture(call: Call) -> None:
    assert call("topo", "clos-tiny").out == (
        "clos-tiny: 2 planes, 2 hosts of 2 ports, 8 switches, 12 links\n"
        "\n"
        "            plane 0           plane 1\n"
        "T1      p0_t1_0 p0_t1_1   p1_t1_0 p1_t1_1\n"
        "               ><                ><\n"
        "T0      p0_t0_0 p0_t0_1   p1_t0_0 p1_t0_1\n"
        "               |                 |\n"
        "hosts   h0  below p*_t0_0\n"
        "hosts   h1  below p*_t0_1\n"
        "\n"
        "Each T0 is linked to each T1 of its plane (100 Gbit/s),\n"
        "each host to its rack's T0 of every plane (100 Gbit/s).\n"
        "Beside it is the management network, without faults: h0 is 198.18.0.1.\n"
    )


def test_the_text_picture_says_where_the_nics_of_nodes_are(call: Call) -> None:
    text = call("topo", "clos-rails").out
    assert "\nhosts   h0 h4 .. h12  below p*_t0_0, rail 0\n" in text
    assert "\nhosts   h3 h7 .. h15  below p*_t0_3, rail 3\n" in text
    assert text.endswith("NIC k of all below the same T0s; n0 is h0 .. h3.\n")


@pytest.mark.parametrize("name", ["dot", "mmd", "svg"])
def test_pictures_draw_nodes_around_their_hosts(call: Call, name: str) -> None:
    assert call("topo", "clos-rails", "-o", f"x.{name}").status == 0
    picture = Path(f"x.{name}").read_text()
    for node in range(4):
        inside = [f"h{host}" for host in range(4 * node, 4 * node + 4)]
        assert {
            "dot": f'subgraph cluster_n{node} {{ label="n{node}"; {"; ".join(inside)} }}',
            "mmd": f'  subgraph n{node}["n{node}"]\n    ' + "\n    ".join(inside) + "\n  end\n",
            "svg": f">n{node}</text>",
        }[name] in picture


@pytest.mark.parametrize("kind", ["dot", "mmd"])
@pytest.mark.parametrize("name", ["clos-tiny", "clos-4plane", "clos-1plane", "clos-rails"])
def test_graphs_have_every_link_once(call: Call, name: str, kind: str) -> None:
    called = call("topo", name, "-o", f"x.{kind}")
    assert (called.status, called.out) == (0, f"wrote x.{kind}\n")
    found = re.findall(r"^  (\w+) --+ (\w+)$", Path(f"x.{kind}").read_text(), re.MULTILINE)
    topology = load_topology(name)
    assert len(found) == len(topology.links)
    assert {frozenset(ends) for ends in found} == {
        frozenset(port.node.name for port in link.ports) for link in topology.links.values()
    }


@pytest.mark.parametrize("name", ["clos-tiny", "clos-4plane", "clos-16host", "clos-rails"])
def test_pictures_name_every_node_and_are_the_same_each_time(call: Call, name: str) -> None:
    topology = load_topology(name)
    written = []
    for _ in range(2):
        assert call("topo", name, "--output", "x.svg").status == 0
        written.append(Path("x.svg").read_text())
    assert written[0] == written[1]
    texts = set(re.findall(r">([^<>]+)</text>", written[0]))
    assert set(topology.nodes) <= texts
    assert {f"plane {plane}" for plane in range(topology.planes)} <= texts
    assert "management network, without faults: h0 is 198.18.0.1" in texts


def test_a_png_is_one(call: Call) -> None:
    assert call("topo", "clos-8plane", "-o", "x.png").status == 0
    data = Path("x.png").read_bytes()
    assert data.startswith(b"\x89PNG")
    assert int.from_bytes(data[16:20], "big") > 2 * int.from_bytes(data[20:24], "big") > 1000


def test_what_cannot_be_written_or_drawn(call: Call) -> None:
    assert "found x.gif, expected a name that ends in .png, .svg, .dot, .mmd" in (
        call("topo", "clos-tiny", "-o", "x.gif").err
    )
    for name in ("nowhere/x.dot", "nowhere/x.png"):
        called = call("topo", "clos-tiny", "-o", name)
        assert called.status == 2
        assert f"--output: found {name}, expected a file to write" in called.err
    text = "name: x\nplanes: 8\nt0_per_plane: 512\nt1_per_plane: 256\nhosts_per_t0: 256\n"
    Path("x.yaml").write_text(text)
    called = call("topo", "x.yaml")
    assert called.status == 2
    assert "found 2097152 links, expected at most 20000 links" in called.err


@pytest.mark.parametrize("form", FORMS)
def test_an_export_is_a_directory_of_files(call: Call, form: str) -> None:
    called = call("topo", "clos-tiny", "--export", form, "out")
    written = [path for path in Path("out").rglob("*") if path.is_file()]
    things = "files" if len(written) > 1 else "file"
    assert (called.status, called.out) == (0, f"wrote {len(written)} {things} to out\n")
    assert not any(path.name.startswith(".") for path in Path().iterdir())


def test_an_export_that_is_refused_leaves_nothing(
    call: Call, monkeypatch: pytest.MonkeyPatch
) -> None:
    def disk_full(_: object) -> Iterator[tuple[str, str]]:
        yield "a.sh", "true\n"
        raise OSError(errno.ENOSPC, "full")

    Path("there").mkdir()
    Path("there/file").touch()
    text = "name: x\nplanes: 8\nt0_per_plane: 512\nt1_per_plane: 256\nhosts_per_t0: 256\n"
    Path("x.yaml").write_text(text)
    for arguments, message in (
        (("clos-tiny", "--export", "linx", "out"), "--export: found linx, expected one of contain"),
        (("clos-tiny", "--export", "linux", "there"), "expected a new or empty directory"),
        (("clos-tiny", "--export", "linux", "nowhere/out"), "expected a new or empty directory"),
        (("x.yaml", "--export", "linux", "out"), "found 2097152 links, expected at most 100000"),
    ):
        called = call("topo", *arguments)
        assert called.status == 2
        assert message in called.err
    monkeypatch.setitem(FORMS, "linux", disk_full)
    assert call("topo", "clos-tiny", "--export", "linux", "out").status == 3
    assert {path.name for path in Path().iterdir()} == {"there", "x.yaml"}
    assert [path.name for path in Path("there").iterdir()] == ["file"]


@pytest.mark.parametrize("ends", [("n0", "n0"), ("n0", "n9"), ("h0", "n1")])
def test_paths_are_between_two_hosts_or_two_nodes(call: Call, ends: tuple[str, str]) -> None:
    result = call("paths", "clos-rails", *ends)
    assert result.status == 2
    found = f"found {ends[0]} {ends[1]}, expected two hosts, or two different nodes of n0 to n3"
    assert found in result.err
