"""Commands that tests run to their end."""

import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from tests.waiting import WATCHDOG_S

TESTBED = Path(sys.executable).with_name("testbed")

Completed = subprocess.CompletedProcess[str]


def completed(
    command: Sequence[str | Path],
    *,
    check: bool = False,
    timeout: float = WATCHDOG_S,
    **options: Any,
) -> Completed:
    """Run a command; what it prints comes back as text. `options` are those of `subprocess.run`."""
    return subprocess.run(
        command, capture_output=True, text=True, check=check, timeout=timeout, **options
    )
