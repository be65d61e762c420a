"""Who can ask a run of programs for something by hand, and whom that holds up."""

import os
import socket
import stat
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from select import select
from typing import Any

import pytest

from testbed.cli.live import ask_controller
from testbed.device.paced.run import requests_from, taking_commands
from testbed.emulation.controller.live import SOCKET, Client, socket_of
from testbed.model.errors import InputError, MachineError, RunFailedError
from testbed.model.run_files.layout import LOGS
from testbed.sandbox.processes import Child, call
from tests.device.paced.test_run import listening
from tests.waiting import WATCHDOG_S, wait_until

NOBODY = 65534


@contextmanager
def taking(directory: Path) -> Iterator[tuple[Child, Path]]:
    """The process of a run in a directory, once it listens, and its socket."""
    (directory / LOGS).mkdir(parents=True)
    with taking_commands(directory) as child:
        at = wait_until(lambda: listening(directory), "it listens")
        assert at is not None
        yield child, at


def next_request(child: Child) -> dict[str, Any]:
    (request,) = child.receive(WATCHDOG_S)
    return request


def faults(at: Path) -> list[dict[str, Any]]:
    with Client(at) as client:
        return client.faults()


def probe(at: Path) -> dict[str, Any]:
    with Client(at) as client:
        return client.operate({"kind": "probe", "flow": "h0->h4", "within": "60 min"})


def test_who_is_slow_or_probes_for_long_holds_up_nobody(tmp_path: Path) -> None:
    """In a directory whose name is longer than the kernel takes for a socket."""
    with taking(tmp_path / ("long" * 50)) as (child, at), ThreadPoolExecutor() as pool:
        half = [socket.socket(socket.AF_UNIX) for _ in range(3)]
        descriptor = os.open(at.parent, os.O_PATH)
        for number, client in enumerate(half):
            client.connect(f"/proc/self/fd/{descriptor}/{SOCKET}")
            client.sendall(b"POST /faults HTTP/1.1\r\nContent-Length: 9\r\n\r\n{"[: 20 * number])
        probing: Future[Any] = pool.submit(probe, at)
        probed = next_request(child)
        assert (probed["method"], probed["path"]) == ("POST", "/operator")
        listed = pool.submit(faults, at)
        request = next_request(child)
        assert (request["method"], request["path"]) == ("GET", "/faults")
        child.send({"number": request["number"], "status": 200, "content": []})
        assert listed.result(WATCHDOG_S) == []
        assert not probing.done()
        child.send({"number": probed["number"], "status": 200, "content": {"evs": [1]}})
        assert probing.result(WATCHDOG_S) == {"evs": [1]}
        probing = pool.submit(probe, at)
        next_request(child)
        child.kill()
        with pytest.raises(RunFailedError):  # the run has ended: it is not waited for
            probing.result(WATCHDOG_S)
        for client in half:
            client.close()
        os.close(descriptor)
    assert not at.exists()


def test_who_passes_requests_on_need_not_wait_for_the_answers(tmp_path: Path) -> None:
    """As the process that watches an emulated run; if the run ends, that is the answer."""
    with taking(tmp_path / "run") as (child, at):
        answers: list[tuple[int, Any]] = []
        for number in range(2):
            asked = ask_controller(at.parent, "POST", "/operator", "{}", answers.append)
            assert asked is not None
            next_request(child)
            assert len(answers) == number
            if number:
                child.kill()
            else:
                child.send({"number": 0, "status": 200, "content": {"evs": [1]}})
            assert select([asked], [], [], WATCHDOG_S)[0]
            asked.finish()
        assert answers[0] == (200, {"evs": [1]})
        assert answers[1][0] == 500
    assert ask_controller(at.parent, "GET", "/faults", "", answers.append) is None
    assert answers[2][0] == 409


def test_nobody_else_can_ask_whatever_the_umask(tmp_path: Path) -> None:
    """Also where the results are behind a link."""
    (tmp_path / "there").mkdir()
    (tmp_path / "results").symlink_to("there")
    usual = os.umask(0)
    try:
        with taking(tmp_path / "results" / "run") as (_, at):
            assert stat.S_IMODE(at.stat().st_mode) == 0o600
            assert socket_of(tmp_path / "results") == at
    finally:
        os.umask(usual)


def test_why_nobody_can_ask_is_told(tmp_path: Path) -> None:
    """Such as on a file system without sockets; here something else is in its place."""
    (tmp_path / LOGS).mkdir()
    (tmp_path / SOCKET).touch()
    with taking_commands(tmp_path) as child, pytest.raises(MachineError, match="no socket can be"):
        wait_until(lambda: requests_from(child), "it has tried")


@pytest.mark.root
def test_another_user_is_told_whose_run_it_is(open_place: Path) -> None:
    """Not that nothing runs there."""

    def ask() -> str:
        os.seteuid(NOBODY)
        with pytest.raises(InputError) as refused:
            socket_of(open_place / "run")
        return str(refused.value)

    with taking(open_place / "run"):
        assert "a run of yours" in call(ask, isolated=False)
