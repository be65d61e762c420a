"""`make soak`: every fault for longer, then every shipped scenario on the fabric, and a table.

scripts/soak.py RESULTS [SCENARIO ...]: with names, these scenarios instead of all. All take half
an hour, ten minutes of which are those of `chaos-long`. Exit status: 0 all was as expected, 1
something was not, or could not be trusted.
"""

import json
import os
import subprocess
import sys
import time
from pathlib import Path

ROOT = Path(__file__).parents[1]
TESTBED = Path(sys.executable).with_name("testbed")
MATRIX = ("-m", "pytest", "-q", "tests/controller/test_matrix.py")
ROW = "{:24} {:>7} {:10} {:>12} {:>12} {:>8}  {}"


def main() -> int:
    """Run everything, one after the other, and say how it went."""
    results, *names = sys.argv[1:]
    names = names or sorted(path.stem for path in (ROOT / "scenarios").glob("*.yaml"))
    _row("", "seconds", "verdict", "bytes sent", "lost", "in error", "")
    matrix = _matrix()
    fine = [_scenario(name, results) for name in names]
    return 0 if matrix and all(fine) else 1


def _matrix() -> bool:
    """Every kind of fault on every target, a second each."""
    began = time.monotonic()
    environment = os.environ | {"TESTBED_SOAK": "1"}
    done = subprocess.run(  # noqa: S603 - our own tests
        [sys.executable, *MATRIX],
        check=False,
        cwd=ROOT,
        env=environment,
        capture_output=True,
        text=True,
    )
    lines = done.stdout.strip().splitlines()
    said = lines[-1] if lines else done.stderr
    _say("faults on targets", began, "passed" if not done.returncode else "FAILED", said)
    return done.returncode == 0


def _scenario(name: str, results: str) -> bool:
    """One scenario on the emulated fabric."""
    began = time.monotonic()
    command = [TESTBED, "run", name, "--results", results, "--json"]
    done = subprocess.run(command, check=False, cwd=ROOT, capture_output=True, text=True)  # noqa: S603 - our own command
    if not done.stdout:
        _say(name, began, "FAILED", done.stderr.strip().splitlines()[-1])
        return False
    summary = json.loads(done.stdout)["summary"]
    integrity = summary["integrity"]
    failed = [one for one in summary["expectations"] if not one["holds"]]
    reasons = [f"{one['figure']} {one['value']}, not {one['bound']}" for one in failed]
    _say(
        name,
        began,
        summary["verdict"],
        "; ".join([*reasons, *summary["reasons"]]),
        f"{integrity['bytes_sent']:,}",
        f"{integrity['bytes_lost'] + integrity['bytes_corrupted']:,}",
        str(summary["qps_in_error"]),
    )
    return done.returncode == 0


def _say(name: str, began: float, verdict: str, why: str, *figures: str) -> None:
    sent, lost, wrong = figures or ("", "", "")
    seconds = round(time.monotonic() - began)
    _row(name, str(seconds), verdict, sent, lost, wrong, why)


def _row(*cells: str) -> None:
    sys.stdout.write(ROW.format(*cells).rstrip() + "\n")
    sys.stdout.flush()


sys.exit(main())
