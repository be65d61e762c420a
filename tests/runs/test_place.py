"""Where runs are made, as `--on` says it, and what is refused before anything starts."""

import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import pytest

from testbed.model.errors import InputError, MachineError
from testbed.results.run_directory import locked
from testbed.runs.cluster import worker
from testbed.runs.cluster.launch import _ssh_cluster
from testbed.runs.cluster.place import Place, hosts_in, place_of
from testbed.runs.cluster.worker import _description, _doctor, _measured, require_sound
from testbed.runs.job import FORMS, How, Job
from testbed.runs.process import EMULATION_LOCK


@pytest.mark.parametrize(
    ("text", "place"),
    [
        ("local", Place("local")),
        ("dask:127.0.0.1:8786", Place("dask", "127.0.0.1:8786")),
        ("dask:tcp://localhost:8786", Place("dask", "tcp://localhost:8786")),
        ("dask:tcp://[::1]:8786", Place("dask", "tcp://[::1]:8786")),
        ("dask:tls://node7:8786", Place("dask", "tls://node7:8786")),
        ("slurm", Place("slurm")),
        ("slurm:8", Place("slurm", "8")),
    ],
)
def test_a_place_is_read_as_it_is_written(text: str, place: Place) -> None:
    assert place_of(text) == place
    assert str(place) == text


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("moon", "expected local, dask:ADDRESS, ssh:HOSTFILE, slurm or slurm:JOBS"),
        ("slurm:slurm.yaml", "expected slurm:JOBS, the number of jobs"),
        ("slurm:0", "expected slurm:JOBS"),
        ("lokal", "did you mean local"),
        ("dask", "dask:ADDRESS"),
        ("local:2", "local, without an address"),
        ("ssh:nowhere", "no such file"),
        ("dask:tcp://10.1.2.3:8786", "a worker executes what its scheduler sends"),
        ("dask:node7:8786", "tls://HOST:PORT"),
        ("dask:tcp://127.0.0.1.example.org:8786", "tls://HOST:PORT"),
        ("dask:ucx://127.0.0.1:8786", "tls://HOST:PORT"),
        ("dask:[::1", "no address: Invalid IPv6 URL"),
        ("dask:127.0.0.1:99999", "no address: Port out of range"),
    ],
)
def test_what_is_no_place_or_would_be_unprotected_is_refused(text: str, said: str) -> None:
    with pytest.raises(InputError, match="--on") as caught:
        place_of(text)
    assert said in str(caught.value)


def test_a_host_file_has_a_host_on_each_line(tmp_path: Path) -> None:
    file = tmp_path / "hosts"
    file.write_text("# ours\nnode1\n\nnode2  # the other\n")
    assert hosts_in(file) == ["node1", "node2"]


@pytest.mark.parametrize("content", ["", "# none\n", "node1 22\n", "lab@node1\n", "n\xf6de1\n"])
def test_a_host_file_without_hosts_or_with_more_is_refused(tmp_path: Path, content: str) -> None:
    """Or one of another encoding than UTF-8."""
    file = tmp_path / "hosts"
    file.write_text(content, "latin-1")
    with pytest.raises(InputError, match="hosts"):
        hosts_in(file)


def test_an_address_that_is_none_is_named(tmp_path: Path) -> None:
    file = tmp_path / "hosts"
    file.write_text("a..b\n")
    with pytest.raises(MachineError, match=r"hosts: a\.\.b: Unicode(Encode)?Error"):
        _ssh_cluster(file)


LOOPBACK = "tcp://127.0.0.1:1"


def _reason(monkeypatch: pytest.MonkeyPatch, doctor: dict[str, Any]) -> str:
    """Why a worker does not emulate, if `testbed doctor` finds this."""
    monkeypatch.setattr(worker, "_doctor", lambda *_, **__: doctor)
    unfit = _description(LOOPBACK, emulates=True).get("unfit", {})
    assert "simulated" not in unfit
    return str(unfit.get("emulated", ""))


def test_a_worker_says_why_it_does_not_emulate(monkeypatch: pytest.MonkeyPatch) -> None:
    assert _reason(monkeypatch, {"able": True, "capacity": {"cpus": 2}}) == ""
    root = {"name": "root", "ok": False, "required": True}
    assert _reason(monkeypatch, {"able": False, "findings": [root]}) == "it lacks: root"
    failed = _reason(monkeypatch, {"able": False, "error": "exit status 7"})
    assert failed == "testbed doctor fails there: exit status 7"


def test_a_worker_that_others_reach_makes_no_runs() -> None:
    unfit = _description("tcp://10.0.0.1:1", emulates=False)["unfit"]
    assert all("plain TCP at tcp://10.0.0.1:1" in unfit[form] for form in FORMS)
    assert not _description("tls://10.0.0.1:1", emulates=False)


def test_a_worker_that_cannot_become_root_says_what_sudo_needs(
    tmp_path: Path,
) -> None:
    """And what `sudo` said."""
    sudo = tmp_path / "sudo"
    sudo.write_text("#!/bin/sh\necho 'sudo: a password is required' >&2\nexit 1\n")
    sudo.chmod(0o755)
    found = _doctor(str(sudo), "-n")
    assert not found["able"]
    reason = found["error"]
    assert reason.startswith("exit status 1: sudo: a password is required; ")
    assert f"ALL=(root) NOPASSWD: {sys.executable} -P -m testbed run *" in reason


def test_a_machine_where_others_emulate_is_not_measured_at_the_start(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The campaign waits for the answer, so it comes soon, with the reason."""
    monkeypatch.setattr(worker, "_TURN_S", 0.1)
    with locked(EMULATION_LOCK):
        reason = _reason(monkeypatch, {"able": True})  # nobody has measured it yet
    assert "another campaign emulates there" in reason


@pytest.mark.parametrize("is_ours", [True, False])
def test_what_another_worker_of_the_machine_has_measured_is_taken(
    monkeypatch: pytest.MonkeyPatch, is_ours: bool
) -> None:
    """Each would need so long again that the next ones had no time left."""
    found = {"able": True, "capacity": {"cpus": 2}}

    @contextmanager
    def turn(_: object, on_wait: Callable[[], object]) -> Iterator[bool]:
        on_wait()
        yield is_ours

    def doctor(*_: str, options: Sequence[str] = ()) -> dict[str, object]:
        assert not options
        return found

    monkeypatch.setattr(worker, "turn", turn)
    monkeypatch.setattr(worker, "_doctor", doctor)
    assert _measured({"able": True}, ()) == found


HOW = How(drawn=False, force=True, pcap=("h0",))
SOUND = Job("a", "emulated", {"seed": 1}, "figures/a", 1.0, HOW)


def test_a_worker_takes_the_jobs_of_campaigns() -> None:
    require_sound(SOUND)


@pytest.mark.parametrize(
    "wrong",
    [
        {"form": "run; reboot"},
        {"folder": "/etc"},
        {"folder": "a/../../b"},
        {"folder": "--hold"},
    ],
)
def test_a_worker_refuses_what_no_campaign_asks_for(wrong: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match="a job"):
        require_sound(replace(SOUND, **wrong))


def test_a_job_says_nothing_else_of_how_it_is_made() -> None:
    """A run that is held, say, would keep a machine for ever."""
    with pytest.raises(TypeError, match="hold"):
        worker._job({**asdict(SOUND), "how": {"hold": True}})
    assert worker._job(asdict(SOUND)) == SOUND
