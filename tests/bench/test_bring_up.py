"""What is compared of building a fabric, where a program to compare with is missing as well."""

import os
import shutil
import socket
from collections.abc import Callable
from pathlib import Path

import pytest

from testbed.emulation.fabric import requests
from testbed.emulation.fabric.netlink import Netlink
from testbed.emulation.fabric.requests import Interface
from testbed.sandbox import namespaces
from testbed.studies.bench import bring_up
from testbed.studies.bench.bring_up import Built, per_link
from testbed.studies.bench.measure import Measurement, Setting
from tests.sandbox import in_sandbox


@pytest.fixture
def _builds_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Ours is up in 0.2 s; what is compared with it answers without a sandbox."""
    monkeypatch.setattr(bring_up, "_build", lambda _: Built(64, 0.2, 0.3, 0.01, 0.5, 1 << 20))

    def call(measure: Callable[[], object]) -> object:
        return measure()

    monkeypatch.setattr(bring_up, "in_sandbox", call)
    monkeypatch.setattr(bring_up, "batches_up_s", lambda _: 0.1)
    monkeypatch.setattr(bring_up, "mininet_up_s", lambda _: 2.2)


def _measured(tmp_path: Path) -> dict[str, Measurement]:
    figures = bring_up.bring_up(Setting(2, tmp_path, lambda _: None))
    return {figure.name: figure for figure in figures}


@pytest.mark.usefixtures("_builds_at_once")
def test_without_what_mininet_needs_the_comparison_is_missing_and_does_not_hold(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(shutil, "which", lambda _: None)
    figure = _measured(tmp_path)["Mininet's / ours"]
    assert not figure.holds
    assert figure.missing.startswith("no mnexec, ifconfig, ethtool: apt install")


@pytest.mark.usefixtures("_builds_at_once")
def test_with_it_the_comparison_is_a_figure(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(shutil, "which", lambda name: f"/usr/bin/{name}")
    figure = _measured(tmp_path)["Mininet's / ours"]
    assert figure.holds
    assert figure.samples == pytest.approx((11.0, 11.0))


@pytest.mark.parametrize(("seconds", "holds"), [(8.2, True), (12.0, True), (12.6, False)])
def test_time_that_grows_faster_than_links_is_told(seconds: float, holds: bool) -> None:
    """2 s for 256 links are 8 s for 1024, where time is linear."""
    small = [Built(256, 1.0, 2.0, 0.1, 0.2, 0)] * 2
    large = [Built(1024, 4.0, seconds, 0.4, 0.8, 0)] * 2
    figure = per_link(small, large)
    assert figure.name == "time of a link of 1024 / of 256"
    assert figure.holds == holds


@pytest.mark.root
@in_sandbox
def test_all_is_given_back_when_the_last_namespace_is() -> None:
    """Of twenty that were let go before, none is left: their ends of veths are gone."""
    own = os.open(namespaces.OWN_NETNS, os.O_RDONLY)
    with Netlink("sandbox") as netlink:
        for number in range(20):
            ifindex = 200 + 2 * number
            fd = namespaces.create_netns(f"n{number}")
            here = Interface(f"here{number}", ifindex, f"02:00:00:00:01:{number:02x}", own)
            there = Interface("there", ifindex + 1, f"02:00:00:00:02:{number:02x}", fd)
            netlink.send([requests.new_veth(here, there, 1500)])
            os.close(fd)
    assert len(socket.if_nameindex()) >= 21
    for number in range(20):
        namespaces.unmount(str(namespaces.NETNS_DIR / f"n{number}"))
    bring_up.all_given_back()
    assert {name for _, name in socket.if_nameindex()} == {"lo"}
