"""Debian's perftest, as it is, at the prompt of a live fabric."""

import re
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.perftest.test_programs import run_testbed

pytestmark = [
    pytest.mark.root,
    pytest.mark.skipif(shutil.which("ib_write_bw") is None, reason="needs perftest"),
]

ROW = re.compile(r"^ (\d+) +(\d+) +([\d.]+) +([\d.]+) ", re.MULTILINE)
"""Bytes, iterations, peak, average; of ib_write_lat the least and the greatest."""

READY = "sleep 2"
"""perftest's client does not wait for its server, as nobody types that fast."""


def run(*lines: str, status: int = 0) -> str:
    typed = "".join(f"{line}\n" for line in lines)
    return run_testbed("shell", "clos-tiny", typed=typed, status=status)


def both(program: str, *, options: str = "") -> Iterator[str]:
    """The lines that run a program in two hosts."""
    yield f"h1 {program} -d mrc0 {options} > /dev/null &"
    yield f"h0 {READY}"
    yield f"h0 {program} -d mrc0 {options} h1; echo status $?"
    yield "h1 wait %1; echo status $?"


def rows(text: str) -> list[tuple[int, int, float, float]]:
    return [
        (int(size), int(count), float(peak), float(average))
        for size, count, peak, average in ROW.findall(text)
    ]


def test_the_package_is_as_debian_has_it() -> None:
    done = subprocess.run(["dpkg", "--verify", "perftest"], capture_output=True, check=False)
    assert not done.stdout


@pytest.mark.parametrize(
    ("options", "count"),
    [("-n 40", 40), ("-n 20 -q 4", 80), ("-n 40 -b", 40), ("-n 40 --report_gbits", 40)],
)
def test_ib_write_bw_measures(options: str, count: int) -> None:
    """At most what two ports of 10 Mbit/s carry each way, and it says what that is unscaled."""
    text = run(*both("ib_write_bw", options=options))
    ((size, iterations, _, average),) = rows(text)
    assert (size, iterations) == (65_536, count)
    ways = 2 if "-b" in options else 1
    most = 0.02 * ways if "gbits" in options else 20e6 * ways / 8 / 2**20
    assert 0 < average < most
    assert text.count("status 0") == 2
    assert "time runs 10000 times slower here, so at full speed this is" in text


def test_ib_write_bw_measures_every_size() -> None:
    """From 2 B to 8 MiB."""
    text = run(*both("ib_write_bw", options="-a -n 5"))
    assert [size for size, *_ in rows(text)] == [1 << power for power in range(1, 24)]


def test_ib_write_lat_measures_the_way_through_a_t1() -> None:
    """It waits for the last byte in memory, without a call: the NIC is a process of its own."""
    text = run(*both("ib_write_lat", options="-n 6"))
    ((size, iterations, least, _),) = rows(text)
    assert (size, iterations) == (2, 6)
    assert least > 130_800 / 2  # us


def test_an_endless_measurement_ends_with_its_client() -> None:
    """Which prints a row every five seconds until SIGINT; the server then exits 1."""
    text = run(
        "h1 ib_write_bw -d mrc0 --run_infinitely > /dev/null &",
        f"h0 {READY}",
        "h0 timeout --signal INT 13 ib_write_bw -d mrc0 --run_infinitely h1",
        "h1 wait %1; echo status $?",
        status=124,  # of timeout
    )
    assert rows(text)
    assert "status 1" in text


def test_many_programs_run_at_once() -> None:
    """Eight on two hosts, all between the same two, and each gets its share."""
    ports = range(20_001, 20_005)
    server = " & ".join(f"ib_write_bw -d mrc0 -n 20 -p {port} > /dev/null" for port in ports)
    client = " & ".join(f"ib_write_bw -d mrc0 -n 20 -p {port} h1" for port in ports)
    all_listen = f"[ $(ss -ltn | grep -c :2000) = {len(ports)} ]"
    ready = f"h1 timeout 60 sh -c 'until {all_listen}; do sleep 1; done'"
    text = run(f"h1 ({server} & wait) &", ready, f"h0 ({client} & wait)", "h1 wait")
    averages = [average for *_, average in rows(text)]
    assert len(averages) == len(ports)
    assert max(averages) < 1.5 * min(averages)


def test_it_goes_on_when_a_cable_is_pulled() -> None:
    text = run(
        "h1 ib_write_bw -d mrc0 -n 100 > /dev/null &",
        f"h0 {READY}",
        "h0 (ib_write_bw -d mrc0 -n 100 h1; echo status $?) &",
        f"h0 {READY}",
        "link h0 p0_t0_0 down",
        "h0 wait",
        "h1 wait",
    )
    assert "status 0" in text
    assert [count for _, count, *_ in rows(text)] == [100]


def test_the_machines_own_tools_show_the_device(tmp_path: Path) -> None:
    """ibv_devices and ibv_devinfo, outside a host as well; a name resolves, ping as before."""
    script = tmp_path / "tools"
    script.write_text("ibv_devices; ibv_devinfo -v; getent ahostsv4 h1\n")
    text = run(f"h0 sh {script}", "h0 ping -c1 h1", "p0_t0_0 ibv_devices || true", "sh true")
    assert re.search(r"mrc0 +\t[0-9a-f]{16}", text)
    assert "PORT_ACTIVE" in text
    assert "RoCE v2" in text
    assert "198.18.0.2" in text
    assert "PING h1(h1 (fd4d:5243" in text


@pytest.mark.skipif(shutil.which("valgrind") is None, reason="needs valgrind")
def test_both_ends_are_clean_under_valgrind(tmp_path: Path) -> None:
    """Apart from perftest's own: it writes uninitialised bytes to its peer by TCP."""
    own = tmp_path / "own.supp"
    own.write_text(
        "{\n   handshake\n   Memcheck:Param\n   write(buf)\n   fun:write\n   obj:*/ib_write_bw\n}\n"
    )
    program = f"valgrind --quiet --error-exitcode=99 --suppressions={own} ib_write_bw"
    for _ in range(3):  # beside other programs perftest may find the CPU's clock too uneven
        text = run(
            f"h1 {program} -d mrc0 -n 20 > /dev/null &",
            "h0 sleep 15",
            f"h0 {program} -d mrc0 -n 20 h1; echo status $?",
            "h1 wait %1; echo status $?",
        )
        if "Correlation coefficient" not in text:
            break
    assert text.count("status 0") == 2, text
