"""Messages of commits, by CONTRIBUTING's rules."""

import subprocess
from pathlib import Path

import pytest

from scripts.commits import faults, main

REASON = "The first figure stood three screens down."


def test_a_message_with_a_reason_is_fine() -> None:
    assert not [*faults("Begin a report with the picture", REASON)]


@pytest.mark.parametrize(
    ("subject", "body", "fault"),
    [
        ("B" * 73, REASON, "the subject has 73 characters, at most 72 are allowed"),
        ("Begin a report.", REASON, "the subject ends with a full stop"),
        ("begin a report", REASON, "the subject does not begin with a capital letter"),
        ("Begin a report", "\n", "there is no body, which gives the reason"),
        ("Begin a report", "so " * 40, "a line of the body has more than 80 characters"),
    ],
)
def test_what_a_message_lacks_is_named(subject: str, body: str, fault: str) -> None:
    assert [*faults(subject, body)] == [fault]


def test_a_commit_without_a_body_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    author = ["-c", "user.name=x", "-c", "user.email=x@x"]
    subprocess.run(["git", "init", "-q"], check=True)
    message = ["--allow-empty", "-m", "Begin a report"]
    subprocess.run(["git", *author, "commit", "-q", *message], check=True)
    assert main() == 1
    assert "'Begin a report': there is no body" in capsys.readouterr().out
