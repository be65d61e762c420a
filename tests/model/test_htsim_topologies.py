"""Topologies in htsim's format: what they become, and what is refused."""

import gzip
import os
from pathlib import Path

import pytest

from testbed.exports import FORMS
from testbed.model.errors import InputError
from testbed.model.fabric.topology import Topology
from testbed.model.files.scenarios import load_scenario
from testbed.model.files.topologies import load_topology

LEAF_SPINE = """\
Nodes 1024
Tiers 2
Podsize 1024

Tier 0
Downlink_speed_Gbps 100
Radix_Down 32
Radix_Up 8
Downlink_Latency_ns 1000
Oversubscribed 4
Switch_Latency_ns 0

Tier 1
Downlink_speed_Gbps 100
Radix_Down 32
Downlink_Latency_ns 1000
Switch_Latency_ns 0
"""
"""uet-htsim's leaf_spine_1024_oversub.topo."""


def loaded(directory: Path, text: str) -> Topology:
    file = directory / "fabric.topo"
    file.write_text(text)
    return load_topology(str(file))


def refused(directory: Path, text: str) -> str:
    """What is said of a file that is refused."""
    with pytest.raises(InputError) as error:
        loaded(directory, text)
    assert len(error.value.problems) == 1
    return str(error.value).replace(f"{directory}/", "")


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (
            LEAF_SPINE.encode("utf-16"),
            "text in UTF-16, expected a topology of htsim\n  remedy: save",
        ),
        (
            gzip.compress(b"", mtime=0),
            "compressed data, expected a topology of htsim\n  remedy: unpack it wit",
        ),
    ],
    ids=["UTF-16", "gzip"],
)
def test_what_is_no_text_is_told_with_what_to_do(tmp_path: Path, data: bytes, message: str) -> None:
    file = tmp_path / "x.topo"
    file.write_bytes(data)
    with pytest.raises(InputError, match=rf"x\.topo: found {message}"):
        load_topology(str(file))


@pytest.mark.parametrize(
    ("file", "name"),
    [("leaf_spine (1).topo", "leaf_spine-1"), ("+.topo", "htsim"), ("_a+b.topo", "a-b")],
)
def test_whatever_the_file_is_called_the_fabric_has_a_name(
    tmp_path: Path, file: str, name: str
) -> None:
    (tmp_path / file).write_text(LEAF_SPINE)
    assert load_topology(str(tmp_path / file)).name == name


def test_a_leaf_spine_fabric_is_one_plane(tmp_path: Path) -> None:
    fabric = loaded(tmp_path, LEAF_SPINE)
    shape = fabric.planes, fabric.t0_per_plane, fabric.t1_per_plane, fabric.hosts_per_t0
    assert shape == (1, 32, 8, 32)
    assert (fabric.port_rate, fabric.t0_t1_rate) == (100_000_000_000,) * 2
    assert fabric.name == "fabric"


@pytest.mark.parametrize(
    ("low", "high", "leaf", "spine"),
    [(1000, 1000, 0, 0), (900, 400, 30, 50), (1_000_001, 400, 30, 50)],
)
def test_ways_take_as_long_as_in_htsim(
    tmp_path: Path, low: int, high: int, leaf: int, spine: int
) -> None:
    """Over one leaf, and over a spine, each as its `get_two_point_diameter_latency` says."""
    tiers = LEAF_SPINE.split("Tier 1")
    for i, (link, switch) in enumerate(((low, leaf), (high, spine))):
        tiers[i] = tiers[i].replace("Latency_ns 1000", f"Latency_ns {link}")
        tiers[i] = tiers[i].replace("Switch_Latency_ns 0", f"Switch_Latency_ns {switch}")
    fabric = loaded(tmp_path, "Tier 1".join(tiers))
    real = fabric.model_copy(update={"dilation": 1.0})
    assert real.one_way_ns(1) == 2 * low + leaf
    assert real.one_way_ns(3) == 2 * low + 2 * high + 2 * leaf + spine


def test_queues_are_where_packets_are_trimmed(tmp_path: Path) -> None:
    text = LEAF_SPINE.replace("Radix_Up 8", "Radix_Up 8\nQueue_Up 90000\nQueue_Down 70000")
    fabric = loaded(tmp_path, text)
    assert str(fabric.queue.t0_up.trim) == "90 KB"
    assert str(fabric.queue.last_hop.trim) == "70 KB"
    assert fabric.queue.t1_down == Topology.model_fields["queue"].default.t1_down


@pytest.mark.parametrize("name", ["clos-1plane", "clos-16host"])
def test_what_is_exported_is_read_as_the_same_fabric(tmp_path: Path, name: str) -> None:
    fabric = load_topology(name)
    ((file, text),) = FORMS["htsim"](fabric)
    assert file == f"{name}.topo"
    read = loaded(tmp_path, text)
    same = ("planes", "t0_per_plane", "t1_per_plane", "hosts_per_t0", "port_rate", "t0_t1_rate")
    assert [getattr(read, key) for key in same] == [getattr(fabric, key) for key in same]
    for switches in (1, 3):
        assert read.one_way_ns(switches) == pytest.approx(
            fabric.one_way_ns(switches) * read.dilation / fabric.dilation
        )


def test_a_scenario_names_one_and_changes_it(tmp_path: Path) -> None:
    loaded(tmp_path, LEAF_SPINE)
    scenario = tmp_path / "scenario.yaml"
    scenario.write_text(
        "name: x\ntopology: {base: fabric.topo, dilation: 1}\nduration: 1 ms\n"
        "workload: {kind: write_bw, pairs: [[h0, h1]]}\n"
    )
    assert load_scenario(str(scenario)).topology.t0_per_plane == 32


def without(word: str, text: str = LEAF_SPINE) -> str:
    """The text without the first line that begins with a word."""
    lines = text.splitlines()
    lines.remove(next(line for line in lines if line.startswith(word)))
    return "\n".join(lines)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (
            LEAF_SPINE.replace("Tiers 2", "Tiers 3"),
            ":2: found Tiers 3, expected Tiers 2",
        ),
        (LEAF_SPINE.replace("Radix_Up 8", "Radix_Upp 8"), "fabric.topo:8: found Radix_Upp 8, "),
        (LEAF_SPINE.replace("Radix_Up 8", "Radix_Up"), "fabric.topo:8: found Radix_Up, expected"),
        (LEAF_SPINE.replace("Radix_Up 8", "Radix_Up 0"), "fabric.topo:8: found Radix_Up 0, expect"),
        (LEAF_SPINE.replace("Radix_Up 8", "Radix_Up 8\nRadix_Up 8"), ":9: found Radix_Up 8, expec"),
        (LEAF_SPINE.replace("Radix_Up 8", "Radix_Up 2000"), ":10: found Oversubscribed 4, expect"),
        (LEAF_SPINE.replace("Podsize 1024", "Podsize 64"), ":3: found Podsize 64, expected Pods"),
        (
            LEAF_SPINE.replace("1024", "1000"),
            ":1: found Nodes 1000, expected Nodes 1024",
        ),
        (LEAF_SPINE + "Bundle 2\n", "fabric.topo:18: found Bundle 2, expected Bundle 1"),
        (LEAF_SPINE + "Tier 2\nRadix_Down 4\n", ":18: found Tier 2, expected Tier 0 or Tier 1"),
        (
            LEAF_SPINE.replace("Latency_ns 1000", "Latency_ns 10", 1),
            ":9: found Downlink_Latency",
        ),
        (
            LEAF_SPINE.replace("Latency_ns 1000", "Latency_ns 0"),
            "fabric.topo:9: expected a bandwidth-delay product of 8 packets or more a port",
        ),
        (LEAF_SPINE.replace("100\n", "0\n", 1), ":6: found Downlink_speed_Gbps 0, expected 1 or"),
        (
            LEAF_SPINE.replace("Radix_Up 8", "Radix_Up 600").replace(
                "subscribed 4", "subscribed 0"
            ),
            ":8: t1_per_plane: found Radix_Up 600, expected at most 512",
        ),
        (without("Radix_Up"), "fabric.topo: expected a line Radix_Up in Tier 0"),
        (without("Tiers"), "fabric.topo: expected a line Tiers in the header"),
        ("Radix_Up 8\n", "fabric.topo:1: found Radix_Up 8, expected Radix_Up below a line Tier"),
        ("", "fabric.topo: expected a line Tiers in the header"),
        ("Nodes 1\n" * 100_000, "fabric.topo:2: found Nodes 1, expected one line Nodes"),
        ("\0\x01\x02", "fabric.topo:1: found"),
    ],
)
def test_what_is_damaged_is_told_once_with_its_line(
    tmp_path: Path, text: str, message: str
) -> None:
    assert message in refused(tmp_path, text)


def test_what_is_not_there_is_told(tmp_path: Path) -> None:
    for name in ("nowhere.topo", "."):
        with pytest.raises(InputError, match="expected"):
            load_topology(str(tmp_path / name / "x.topo"))
    (tmp_path / "dir.topo").mkdir()
    with pytest.raises(InputError, match="is a directory, expected a topology of htsim"):
        load_topology(str(tmp_path / "dir.topo"))


def test_a_pipe_is_not_waited_for(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "x.topo")
    with pytest.raises(InputError, match=r"x\.topo: found a pipe, expected a topology of htsim"):
        load_topology(str(tmp_path / "x.topo"))
