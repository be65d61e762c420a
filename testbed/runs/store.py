"""The runs of a campaign that have been made: their directories are the only record."""

import platform
import time
from collections.abc import Iterable, Mapping
from datetime import datetime
from pathlib import Path

from pydantic import ValidationError

from testbed.model.run_files.layout import MANIFEST
from testbed.model.run_files.manifest import Manifest
from testbed.model.summary import State
from testbed.results.code_version import code_version
from testbed.results.run_directory import RunDirectory, is_locked
from testbed.runs.job import (
    SLOWED,
    STATES,
    JobRecord,
    PlannedRun,
    as_recorded,
    identity,
    identity_of,
    slowed,
)
from testbed.runs.result import Result


def manifest_of(run: Path) -> Manifest:
    return Manifest.model_validate_json((run / MANIFEST).read_text(encoding="utf-8"))


def may_be_made_elsewhere(run: Path, limit_s: float) -> bool:
    """Whether another machine has begun a run, no longer ago than this: its lock is not seen."""
    if time.time() - run.stat().st_mtime > limit_s:
        return False
    try:
        return manifest_of(run).host not in {"", platform.node()}
    except (FileNotFoundError, ValidationError):  # it is just being begun, or of another version
        return False


def machine_of(run: Path) -> str:
    """The kind of machine on which a run depends: its CPUs and kernel; empty of a simulated one."""
    if not (run / MANIFEST).is_file():
        return ""
    manifest = manifest_of(run)
    if manifest.simulated:
        return ""
    return f"{manifest.cpus} x {manifest.cpu}, {manifest.machine}, kernel {manifest.kernel}"


Results = Mapping[str, Result]
"""Finished runs by name."""


class Store:
    """Finds the runs of a campaign below its directory."""

    def __init__(
        self, directory: Path, since: datetime | None = None, *, exclusive: bool = True
    ) -> None:
        """Look for runs in a directory.

        Args:
            directory: the campaign's.
            since: look only for runs that were started after this time. (Their names do not say
                that: they are in the time of the machine that made them.)
            exclusive: whether no others but the campaign's runs are made there.
        """
        self.directory = directory
        self._exclusive = exclusive
        self._since_s = 0 if since is None else int(since.timestamp())
        self._identities: dict[Path, str] = {}

    def attempts(self, planned: PlannedRun) -> tuple[Result, ...]:
        """The finished runs of just this scenario, form and code, oldest first.

        Those that were slowed down are among them: all that is measured of a run is in round
        trips, or as at full speed.
        """
        directories = self._directories(planned)
        if not directories:
            return ()
        identities = {
            identity(
                planned.job.form, as_recorded(slowed(planned.scenario, factor)), code_version()
            )
            for factor in SLOWED
        }
        return tuple(
            Result(directory.path)
            for directory in directories
            if self._identity(directory) in identities
        )

    def best(self, planned: PlannedRun) -> Result | None:
        """The run that counts: that with the best verdict, of these the newest."""
        return min(
            reversed(self.attempts(planned)),
            key=lambda run: STATES.index(planned.verdict(run.summary)),
            default=None,
        )

    def record(self, planned: PlannedRun) -> JobRecord | None:
        """What became of a run that was made before; None if it was not, or not finished.

        Of several attempts, that which counts.
        """
        run = self.best(planned)
        return None if run is None else self._record(planned, run)

    def records(self, planned: PlannedRun) -> tuple[JobRecord, ...]:
        """What became of all attempts at a run that were finished, oldest first."""
        return tuple(self._record(planned, run) for run in self.attempts(planned))

    def _record(self, planned: PlannedRun, run: Result) -> JobRecord:
        status = run.summary.exit_status(require_trusted=planned.job.how.require_trusted)
        return JobRecord(status, run.seconds, str(run.directory.relative_to(self.directory)))

    def state(self, planned: PlannedRun, record: JobRecord) -> State | None:
        """Whether a run that has just been made can be trusted; None if it was not finished."""
        if record.run is None:
            return None
        return planned.verdict(Result(self.directory / record.run).summary)

    def clean(self, runs: Iterable[PlannedRun]) -> None:
        """Remove the directories of killed runs, unless another machine may be making them.

        Locks are not seen from one machine to another: what a worker elsewhere may be making stays.
        """
        if not self._exclusive:
            return
        for planned in {planned.job.folder: planned for planned in runs}.values():
            for directory in self._directories(planned):
                if directory.finished or is_locked(directory.path):
                    continue
                if not may_be_made_elsewhere(directory.path, planned.job.timeout_s):
                    directory.remove()

    def _identity(self, directory: RunDirectory) -> str | None:
        """That of a run; None if it is not finished, or was started before the campaign.

        It is read once: large campaigns ask often.
        """
        if directory.path not in self._identities:
            manifest = directory.path / MANIFEST
            if not directory.finished or manifest.stat().st_mtime < self._since_s:
                return None
            self._identities[directory.path] = identity_of(manifest_of(directory.path))
        return self._identities[directory.path]

    def _directories(self, planned: PlannedRun) -> list[RunDirectory]:
        paths = sorted((self.directory / planned.job.folder).glob("[0-9]*"))
        return [RunDirectory(path) for path in paths if path.is_dir()]
