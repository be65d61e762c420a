"""Each time that a worker of a cluster began a run: who made it, why, and what became of it.

Of a worker that is lost nothing else remains, so it is written before the run begins.
"""

from collections.abc import Iterator
from contextlib import suppress
from glob import escape
from pathlib import Path
from typing import Literal

from pydantic import BaseModel, ConfigDict, ValidationError

from testbed.model.errors import ExitStatus
from testbed.runs.job import SCENARIO_FILES

Reason = Literal["first", "worker lost", "not trusted", "machine cannot"]
"""Why a run is made: each reason for making it again has a budget of its own."""

ATTEMPTS = ".attempts"
"""The suffix of the directory of the attempts at a job, which is named like its scenario's file."""


class Attempt(BaseModel):
    """The content of a file in `scenarios/<name>.attempts/` of the store.

    Attributes:
        campaign: which command asked for it.
        call: by which of its calls: what one call makes again, it makes because a worker was lost.
        reason: why it is made.
        worker: whose machine it is (a file of this name in `workers/` says more).
        host: the machine's name.
        pid: the worker's process there.
        code: the version of the code that makes it.
        began: when (UNIX time, seconds).
        stamp: when, as run directories of the machine are named: in its time zone.
        ended: when; None if the worker was lost, or is still at it.
        status: the exit status of the run.
        run: its run directory, relative to the store; None if it was not finished.
        verdict: whether it can be trusted.
        message: why it was not finished.
    """

    model_config = ConfigDict(frozen=True)

    campaign: str
    call: str
    reason: Reason
    worker: str
    host: str
    pid: int
    code: str = ""
    began: float
    stamp: str = ""
    ended: float | None = None
    status: int | None = None
    run: str | None = None
    verdict: str | None = None
    message: str = ""

    @property
    def refused(self) -> bool:
        """Whether the machine could not make it."""
        return self.run is None and self.status == ExitStatus.MACHINE_CANNOT


def unended_in(folder: Path, name: str) -> Iterator[Attempt]:
    """The attempts without an end at the runs of a folder, whatever their seeds.

    Args:
        folder: where `scenarios/` is.
        name: that of the folder of the runs.
    """
    for file in (folder / SCENARIO_FILES).glob(f"{escape(name)}-seed-*{ATTEMPTS}/*.json"):
        if not file.parent.stem.removeprefix(f"{name}-seed-").isdecimal():
            continue  # of a folder whose name begins alike
        with suppress(ValidationError, FileNotFoundError):  # of another version, or removed
            attempt = Attempt.model_validate_json(file.read_text(encoding="utf-8"))
            if attempt.ended is None:
                yield attempt
