"""What `make test-image` makes of what happens in a container: a stand-in for podman tells it."""

import os
from pathlib import Path

import pytest

from tests.commands import completed

ROOT = Path(__file__).parents[2]

ENGINE = """\
#!/usr/bin/env bash
case "$*" in
  *run-scenario*)
    echo scenario >>calls
    status=$(sed -n "$(grep -c scenario calls)p" statuses)
    ((status == 0)) || { echo "make: *** [Makefile:34: run-scenario] Error $status"; exit 2; } ;;
  *"make test"*) echo tests >>calls ;;
  *) echo "error: they cannot be made; run it in a privileged container"; exit 3 ;;
esac
"""


@pytest.mark.parametrize(
    ("statuses", "tries", "passed"),
    [
        ((0,), 1, True),
        ((3, 4, 0), 3, True),
        ((4, 4, 4, 4), 4, False),
        ((5,), 1, False),  # a crash, which no other dilation makes up for
        ((1,), 1, False),
    ],
)
def test_only_a_machine_that_is_too_slow_or_busy_is_given_another_try(
    tmp_path: Path, statuses: tuple[int, ...], tries: int, *, passed: bool
) -> None:
    """The tests run in any case."""
    project = tmp_path / "project"
    (project / "scripts").mkdir(parents=True)
    (project / "scripts/image.sh").symlink_to(ROOT / "scripts/image.sh")
    engine = tmp_path / "engine"
    engine.write_text(ENGINE)
    engine.chmod(0o755)
    (project / "statuses").write_text("".join(f"{status}\n" for status in statuses))
    done = completed(
        ["bash", str(project / "scripts/image.sh"), "test"],
        env=os.environ | {"CONTAINER": str(engine)},
    )
    calls = (project / "calls").read_text().split()
    assert calls == ["scenario"] * tries + ["tests"], done.stderr
    assert (done.returncode == 0) is passed
