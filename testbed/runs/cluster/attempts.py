"""The attempts at the runs of a campaign on a cluster: begin one, look for those that were lost."""

import os
import platform
import time
from collections.abc import Collection, Sequence
from datetime import datetime

from pydantic import ValidationError

from testbed.model.run_files.layout import MANIFEST, SUMMARY
from testbed.model.run_files.manifest import Manifest
from testbed.model.summary import Summary
from testbed.results.code_version import code_version
from testbed.results.run_directory import TIME_FORMAT
from testbed.runs.attempt import ATTEMPTS, Attempt, Reason
from testbed.runs.cluster.files import StoreFiles
from testbed.runs.job import Job, identity, identity_of

MOST_LOSSES = 4
"""After so many workers that were lost while they made a call, it is given up. Dask allows as many
by default."""


def campaign_of(call: str) -> str:
    """The campaign of a call, which is also the name of the event that stops it."""
    return call.rpartition("/")[0]


def attempts_at(job: Job, files: StoreFiles) -> list[Attempt]:
    """The attempts at a job so far, by all campaigns, in their order."""
    attempts = []
    for name in files.names(_folder(job)):
        if not name.endswith(".json"):
            continue
        try:
            attempts.append(Attempt.model_validate_json(files.read(f"{_folder(job)}/{name}")))
        except (ValidationError, FileNotFoundError):
            continue  # of another version, or removed meanwhile
    return sorted(attempts, key=lambda attempt: attempt.began)


def lost_in(attempts: Sequence[Attempt], call: str) -> list[Attempt]:
    """The attempts of a call whose workers were lost."""
    return [attempt for attempt in attempts if attempt.call == call and attempt.ended is None]


def made_meanwhile(
    job: Job, files: StoreFiles, attempts: Sequence[Attempt], known: Collection[str]
) -> Attempt | None:
    """The newest attempt that has finished a job, of those that the command does not know.

    An earlier command has begun it, and was killed or lost its connection.

    Args:
        job: the run.
        files: the store.
        attempts: all at it so far.
        known: the runs that the command knows, relative to the store.
    """
    for attempt in reversed(attempts):
        if attempt.run is None or attempt.run in known:
            continue
        if _summary_of(job, files, attempt.run) is not None:
            return attempt
    return None


def finish_lost(
    job: Job, files: StoreFiles, earlier: Sequence[Attempt], call: str
) -> Attempt | None:
    """Note the end of an attempt whose worker was lost after its run was finished.

    Args:
        job: the run.
        files: the store.
        earlier: the attempts at it so far.
        call: by which call.

    Returns:
        The attempt, which ends now; None if no worker that was lost had finished its run.
    """
    known = {attempt.run for attempt in earlier}
    for attempt in reversed(lost_in(earlier, call)):
        for name in reversed(files.names(job.folder)):
            run = f"{job.folder}/{name}"
            if not name[0].isdigit() or name < attempt.stamp or run in known:
                continue
            if (summary := _summary_of(job, files, run)) is not None:
                status = summary.exit_status(require_trusted=job.how.require_trusted)
                end = {"ended": time.time(), "status": status, "run": run}
                ended = attempt.model_copy(update=end | {"verdict": summary.verdict})
                write(job, files, ended)
                return ended
    return None


def _summary_of(job: Job, files: StoreFiles, run: str) -> Summary | None:
    """The summary of a run in the store, if it is finished and the job's."""
    if not {MANIFEST, SUMMARY} <= {*files.names(run)}:
        return None
    manifest = Manifest.model_validate_json(files.read(f"{run}/{MANIFEST}"))
    if identity_of(manifest) != identity(job.form, job.scenario, code_version()):
        return None
    return Summary.model_validate_json(files.read(f"{run}/{SUMMARY}"))


def lost_times(losses: int) -> str:
    """The error text of a call that was given up after this many workers were lost."""
    return f"the worker that made it was lost, {losses} times"


def begin(
    job: Job, files: StoreFiles, earlier: Sequence[Attempt], call: str, worker: str
) -> Attempt:
    """Note that a worker begins a run, in this process.

    Args:
        job: the run.
        files: the store.
        earlier: the attempts at it so far.
        call: by which call.
        worker: who makes it.
    """
    campaign, code = campaign_of(call), code_version()
    again = any(
        attempt.campaign == campaign or (attempt.verdict is not None and attempt.code == code)
        for attempt in earlier
    )
    reason: Reason = "not trusted" if again else "first"
    if earlier and earlier[-1].campaign == campaign and earlier[-1].refused:
        reason = "machine cannot"
    if lost_in(earlier, call):
        reason = "worker lost"
    began = datetime.now().astimezone()
    attempt = Attempt(
        campaign=campaign,
        call=call,
        reason=reason,
        worker=worker,
        host=platform.node(),
        pid=os.getpid(),
        code=code,
        began=began.timestamp(),
        stamp=began.strftime(TIME_FORMAT),
    )
    write(job, files, attempt)
    return attempt


def write(job: Job, files: StoreFiles, attempt: Attempt) -> None:
    """Write an attempt into the store."""
    name = f"{attempt.began:.3f}-{attempt.worker}"
    files.write(f"{_folder(job)}/{name}.json", attempt.model_dump_json(indent=1) + "\n")


def _folder(job: Job) -> str:
    return str(job.file.with_suffix(ATTEMPTS))
