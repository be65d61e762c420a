"""The records of runs that were handed in: what they say they are, and when they are believed."""

from typing import TYPE_CHECKING

from testbed.labs.assignment import Assignment
from testbed.labs.grading.submission import Submission
from testbed.labs.journal import Entry
from testbed.model.errors import TestbedError
from testbed.results.code_version import code_version

if TYPE_CHECKING:
    from testbed.results.run_data import RunData

_PARTS = ("topology", "workload", "transport", "timeline")
"""What a run's records have to share with the student's scenario."""


class HandedIn:
    """What a submission says of its runs."""

    def __init__(self, submission: Submission, assignment: Assignment) -> None:
        """Look at a submission.

        Args:
            submission: the submission.
            assignment: the lab as the student should have it.
        """
        self._submission = submission
        self._assignment = assignment
        self._loaded: dict[str, RunData | None] = {}

    def claims_emulation(self, run: str) -> bool:
        """Whether the journal says that a run was made with real packets."""
        last = self._last(run)
        return last is not None and "emulated" in last.content

    def emulated(self, run: str) -> bool:
        """Whether a run was made with real packets, of just this student's scenario."""
        records = self._records(run) if self.claims_emulation(run) else None
        if records is None or records.simulated or not self.whole(run):
            return False
        expected = self._assignment.scenario(run).at_dilation(records.topology.dilation)
        return all(getattr(records.scenario, part) == getattr(expected, part) for part in _PARTS)

    def whole(self, run: str) -> bool:
        """Whether the records of a run can be analysed, and have the student's seed."""
        records = self._records(run)
        return records is not None and records.scenario.seed == self._assignment.seed

    def of_another_version(self, run: str) -> bool:
        """Whether another version of the testbed made a run, by all that names its version."""
        versions = self.versions(run)
        return len(versions) == 1 and code_version() not in versions

    def versions(self, run: str) -> set[str]:
        """The versions of the testbed that submission, journal and records of a run name."""
        begun = [str(e.content.get("code")) for e in self._submission.journal if e.kind == "start"]
        records = self._records(run)
        recorded = [] if records is None else [str(records.manifest.code)]
        return {self._submission.code, *begun, *recorded}

    def changed_code(self, run: str) -> str:
        """The files of the student's code that are not those that a run was made with."""
        last = self._last(run)
        if last is None or last.content.get("code") == self._assignment.code_digest(run):
            return ""
        return ", ".join(self._assignment.directory.lab.runs[run].code_files)

    def _records(self, run: str) -> "RunData | None":
        """The records of a run, read once; None if they cannot be analysed."""
        from testbed.results.run_data import load_run  # noqa: PLC0415 - it takes long

        if run not in self._loaded:
            try:
                self._loaded[run] = load_run(self._submission.run(run))
            except TestbedError:
                self._loaded[run] = None
        return self._loaded[run]

    def _last(self, run: str) -> Entry | None:
        """The journal's entry of a run that was handed in, as `Work.run_to_hand_in` takes it."""
        made = [
            e for e in self._submission.journal if e.kind == "run" and e.content.get("run") == run
        ]
        trusted = [entry for entry in made if entry.content.get("verdict") == "trusted"]
        return next(reversed(trusted or made), None)
