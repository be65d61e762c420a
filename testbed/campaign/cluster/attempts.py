"""Each time that a worker began a run: who made it, why, and what became of it.

Of a worker that is lost nothing else remains, so it is written before the run begins.
"""

import os
import platform
import time
from collections.abc import Sequence
from typing import Literal

from pydantic import BaseModel, ConfigDict, ValidationError

from testbed.campaign.cluster.files import StoreFiles
from testbed.campaign.job import Job

Reason = Literal["first", "worker lost", "not trusted"]
"""Why a run is made: each reason for making it again has a budget of its own."""

_FOLDER = ".attempts"


class Attempt(BaseModel):
    """The content of a file in `scenarios/<name>.attempts/` of the store.

    Attributes:
        campaign: which command asked for it.
        call: by which of its calls: what one call makes again, it makes because a worker was lost.
        reason: why it is made.
        worker: whose machine it is (a file of this name in `workers/` says more).
        host: the machine's name.
        pid: the worker's process there.
        began: when (UNIX time, seconds).
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
    began: float
    ended: float | None = None
    status: int | None = None
    run: str | None = None
    verdict: str | None = None
    message: str = ""


def attempts_at(job: Job, files: StoreFiles) -> list[Attempt]:
    """The attempts at a job so far, by all campaigns, in their order."""
    found = []
    for name in files.names(_folder(job)):
        if not name.endswith(".json"):
            continue
        try:
            found.append(Attempt.model_validate_json(files.read(f"{_folder(job)}/{name}")))
        except (ValidationError, FileNotFoundError):
            continue  # of another version, or removed meanwhile
    return sorted(found, key=lambda attempt: attempt.began)


def lost_in(attempts: Sequence[Attempt], call: str) -> list[Attempt]:
    """The attempts of a call whose workers were lost."""
    return [attempt for attempt in attempts if attempt.call == call and attempt.ended is None]


def begin(
    job: Job, files: StoreFiles, earlier: Sequence[Attempt], call: str, worker: str
) -> Attempt:
    """Note that a worker begins a run, in this process.

    Args:
        job: the run.
        files: the store.
        earlier: the attempts at it so far.
        call: by which call; its campaign is what stands before the last `/`.
        worker: who makes it.
    """
    campaign = call.rpartition("/")[0]
    again = any(attempt.campaign == campaign for attempt in earlier)
    reason: Reason = "not trusted" if again else "first"
    if lost_in(earlier, call):
        reason = "worker lost"
    attempt = Attempt(
        campaign=campaign,
        call=call,
        reason=reason,
        worker=worker,
        host=platform.node(),
        pid=os.getpid(),
        began=time.time(),
    )
    write(job, files, attempt)
    return attempt


def write(job: Job, files: StoreFiles, attempt: Attempt) -> None:
    """Write an attempt into the store."""
    stamp = f"{attempt.began:.3f}-{attempt.worker}"
    files.write(f"{_folder(job)}/{stamp}.json", attempt.model_dump_json(indent=1) + "\n")


def _folder(job: Job) -> str:
    return str(job.file.with_suffix(_FOLDER))
