"""Check the messages of the commits that are not upstream yet, by CONTRIBUTING's rules.

Upstream is the branch that this one follows; without one, the last commit alone is checked.
"""

import subprocess
import sys
from collections.abc import Iterator

MOST_SUBJECT = 72
MOST_BODY_LINE = 80
FIELD, END = "\x1f", "\x1e"
"""Between the fields of a commit, and after a commit."""


def _git(*arguments: str) -> "subprocess.CompletedProcess[str]":
    command = ["git", *arguments]
    return subprocess.run(command, capture_output=True, check=False, encoding="utf-8")


def faults(subject: str, body: str) -> Iterator[str]:
    """What a message lacks."""
    if len(subject) > MOST_SUBJECT:
        yield f"the subject has {len(subject)} characters, at most {MOST_SUBJECT} are allowed"
    if subject.endswith("."):
        yield "the subject ends with a full stop"
    if not subject[:1].isupper():
        yield "the subject does not begin with a capital letter"
    if not body.strip():
        yield "there is no body, which gives the reason"
    if any(len(line) > MOST_BODY_LINE and " " in line for line in body.splitlines()):
        yield f"a line of the body has more than {MOST_BODY_LINE} characters"


def main() -> int:
    """Print the faults of each commit; the exit status is 1 if there are any."""
    upstream = _git("rev-parse", "--abbrev-ref", "@{upstream}").stdout.strip()
    commits = [f"{upstream}..HEAD"] if upstream else ["-1"]
    listed = _git("log", "--no-merges", f"--format=%h{FIELD}%s{FIELD}%b{END}", *commits)
    if listed.returncode:
        print(f"commits are not checked: {listed.stderr.strip()}")
        return 0
    wrong = 0
    for commit in listed.stdout.split(END)[:-1]:
        number, subject, body = commit.strip("\n").split(FIELD)
        for fault in faults(subject, body):
            print(f"{number} {subject!r}: {fault}")
            wrong += 1
    return min(wrong, 1)


if __name__ == "__main__":
    sys.exit(main())
