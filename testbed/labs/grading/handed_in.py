"""The records of runs that were handed in: what they say they are, and when they are believed."""

from testbed.labs.assignment import Assignment
from testbed.labs.grading.submission import Submission
from testbed.labs.journal import Entry
from testbed.model.errors import TestbedError
from testbed.results.code_version import code_version

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

    def claims_emulation(self, run: str) -> bool:
        """Whether the journal says that a run was made with real packets."""
        last = self._last(run)
        return last is not None and "emulated" in last.content

    def emulated(self, run: str) -> bool:
        """Whether a run was made with real packets, of just this student's scenario."""
        records = self._submission.run(run)
        if not self.claims_emulation(run) or not self.whole(run):
            return False
        from testbed.results.run_data import load_run  # noqa: PLC0415 - it takes long

        run_data, expected = load_run(records), self._assignment.scenario(run)
        expected = expected.at_dilation(run_data.topology.dilation)
        return not run_data.simulated and all(
            getattr(run_data.scenario, part) == getattr(expected, part) for part in _PARTS
        )

    def whole(self, run: str) -> bool:
        """Whether the records of a run can be analysed, and have the student's seed."""
        from testbed.results.run_data import load_run  # noqa: PLC0415 - it takes long

        try:
            return load_run(self._submission.run(run)).scenario.seed == self._assignment.seed
        except TestbedError:
            return False

    def of_another_version(self, run: str) -> bool:
        """Whether another version of the testbed made a run, by all that names its version."""
        versions = self.versions(run)
        return len(versions) == 1 and code_version() not in versions

    def versions(self, run: str) -> set[str]:
        """The versions of the testbed that submission, journal and records of a run name."""
        from testbed.results.run_data import load_run  # noqa: PLC0415 - it takes long

        begun = [str(e.content.get("code")) for e in self._submission.journal if e.kind == "start"]
        try:
            recorded = [str(load_run(self._submission.run(run)).manifest.code)]
        except TestbedError:
            recorded = []
        return {self._submission.code, *begun, *recorded}

    def changed_code(self, run: str) -> str:
        """The files of the student's code that are not those that a run was made with."""
        last = self._last(run)
        if last is None or last.content.get("code") == self._assignment.code_digest(run):
            return ""
        return ", ".join(self._assignment.directory.lab.runs[run].code_files)

    def _last(self, run: str) -> Entry | None:
        """The journal's entry of the records that were handed in: as `Work.made_run` takes it."""
        made = [
            e for e in self._submission.journal if e.kind == "run" and e.content.get("run") == run
        ]
        trusted = [entry for entry in made if entry.content.get("verdict") == "trusted"]
        return next(reversed(trusted or made), None)
