"""Where runs are made, as `--on` says it, and what is refused before anything starts."""

import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import pytest

from testbed.model.errors import InputError, MachineError
from testbed.results.code_version import package_version
from testbed.results.run_directory import locked
from testbed.runs.cluster import worker
from testbed.runs.cluster.place import Place, SshHost, hosts_in, place_of
from testbed.runs.cluster.ssh import ssh_cluster
from testbed.runs.cluster.worker import _doctor, _measured, require_sound
from testbed.runs.cluster.workers import Worker, described, unanswered
from testbed.runs.job import Form, How, Job
from testbed.runs.turns import EMULATION_LOCK
from tests.waiting import WATCHDOG_S

OFFERS: dict[Form, int] = {"emulated": 1, "simulated": 4}


@pytest.mark.parametrize(
    ("text", "place"),
    [
        ("local", Place("local")),
        ("dask:127.0.0.1:8786", Place("dask", "127.0.0.1:8786")),
        ("dask:tcp://localhost:8786", Place("dask", "tcp://localhost:8786")),
        ("dask:tcp://[::1]:8786", Place("dask", "tcp://[::1]:8786")),
        ("dask:tls://node7:8786", Place("dask", "tls://node7:8786")),
    ],
)
def test_a_place_is_read_as_it_is_written(text: str, place: Place) -> None:
    assert place_of(text) == place
    assert str(place) == text


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("moon", "expected local, dask:ADDRESS, ssh:HOSTFILE, slurm or slurm:FILE"),
        ("slurm:nowhere", "no such file, expected a file of its options"),
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
    file.write_text("# ours\nnode1\n\nme@node2 2222  # the other\n")
    hosts = hosts_in(file)
    assert hosts == [SshHost("node1"), SshHost("node2", "me", 2222)]
    assert hosts[0].options == {"port": 22}
    assert hosts[1].options == {"port": 2222, "username": "me"}


@pytest.mark.parametrize(
    "content",
    [
        "",
        "# none\n",
        "node1 ssh\n",
        "node1 22 23\n",
        "node1 99999\n",
        "node1 0\n",
        "lab@ 22\n",
        "n\xf6de1\n",
    ],
)
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
        ssh_cluster(file, {}, lambda: WATCHDOG_S)


ANSWER = {"host": "n1", "package": package_version(), "listens": "tcp://127.0.0.1:1"}


def _able(*, able: bool, **finding: object) -> dict[str, object]:
    return {**ANSWER, "doctor": {"able": able, "findings": [finding]}}


def _reasons(of: Worker) -> tuple[str, str]:
    return of.reason("emulated"), of.reason("simulated")


def test_a_worker_says_why_it_makes_no_runs() -> None:
    assert _reasons(described(unanswered("a", OFFERS), ANSWER)) == ("", "")
    without_root = _able(able=False, name="root", ok=False, required=True)
    assert _reasons(described(unanswered("a", OFFERS), without_root)) == ("it lacks: root", "")
    other = described(unanswered("a", OFFERS), {"host": "n1", "package": "0" * 16})
    assert all("another version of the testbed (0000" in reason for reason in _reasons(other))
    broken = described(unanswered("a", OFFERS), ModuleNotFoundError("No module named 'testbed'"))
    assert all("No module named 'testbed'" in reason for reason in _reasons(broken))
    everywhere = described(unanswered("a", OFFERS), {**ANSWER, "listens": "tcp://10.0.0.1:1"})
    assert all("plain TCP at tcp://10.0.0.1:1" in reason for reason in _reasons(everywhere))
    no_resource = described(unanswered("a", OFFERS | {"emulated": 0}), ANSWER)
    assert _reasons(no_resource) == ("it does not offer the resource 'emulation'", "")


def test_a_worker_that_cannot_become_root_says_what_sudo_needs(
    tmp_path: Path,
) -> None:
    """And what `sudo` said."""
    sudo = tmp_path / "sudo"
    sudo.write_text("#!/bin/sh\necho 'sudo: a password is required' >&2\nexit 1\n")
    sudo.chmod(0o755)
    found = _doctor(str(sudo), "-n")
    reply = {**ANSWER, "doctor": found}
    reason = described(unanswered("a", OFFERS), reply).reason("emulated")
    assert reason.startswith(
        "testbed doctor fails there: exit status 1: sudo: a password is required; "
    )
    assert f"ALL=(root) NOPASSWD: {sys.executable} -P -m testbed run *" in reason


def test_a_machine_where_others_emulate_is_not_measured_at_the_start(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The campaign waits for the answer, so it comes soon, with the reason."""
    monkeypatch.setattr(worker, "_doctor", lambda *_: {"able": True})  # nobody has measured it yet
    with locked(EMULATION_LOCK):
        found = _measured({"able": True}, (), turn_s=0.1)
    reply = {**ANSWER, "doctor": found}
    reason = described(unanswered("a", OFFERS), reply).reason("emulated")
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
    assert _measured({"able": True}, (), turn_s=None) == found


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
