"""What a machine must be able to do, found out by trying it in a throwaway sandbox."""

import os
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from testbed.model.errors import TestbedError
from testbed.sandbox.endings import ProcessFailedError
from testbed.sandbox.processes import call


@dataclass(frozen=True, slots=True)
class Requirement:
    """One thing that this machine must, or may, be able to do.

    Attributes:
        name: short name.
        remedy: what to install or change if it is missing.
        run: tries it; raises OSError or TestbedError, or returns what is wrong, if anything is.
        needed_for: what cannot be done without it.
        required: whether no run is possible without it.
    """

    name: str
    remedy: str
    run: Callable[[], str | None]
    needed_for: str = "every run"
    required: bool = True

    def result(self) -> "RequirementResult":
        """Try it and return the result."""
        try:
            wrong = self.run()
        except (OSError, TestbedError) as error:
            wrong = str(error).split("\n", maxsplit=1)[0]
        return self._result(wrong)

    def not_tried(self, reason: str) -> "RequirementResult":
        """Return the result if it could not be tried."""
        return self._result(f"not tried: {reason}")

    def _result(self, wrong: str | None) -> "RequirementResult":
        remedy = "" if wrong is None else self.remedy
        return RequirementResult(
            self.name, wrong is None, wrong or "", self.needed_for, remedy, required=self.required
        )


@dataclass(frozen=True, slots=True)
class RequirementResult:
    """Whether a machine meets a requirement.

    Attributes:
        name: what was tried.
        ok: whether this machine can do it.
        detail: what is wrong, or what was measured.
        needed_for: what cannot be done without it.
        remedy: what to install or change; empty if nothing needs to be.
        required: whether no run is possible without it.
    """

    name: str
    ok: bool
    detail: str
    needed_for: str
    remedy: str
    required: bool


_ROOT = Requirement("root", "run as root, such as with sudo", lambda: None)
_SANDBOX = Requirement(
    "PID, network and mount namespaces",
    "run outside a container, or in a privileged one (docker run --privileged)",
    lambda: None,
)


def examine(requirements: Sequence[Requirement]) -> list[RequirementResult]:
    """Try each requirement in a throwaway sandbox, after root and the sandbox itself.

    They are tried in order, in the sandbox's own namespaces. Each depends on the required ones
    before it: if one of those fails, the rest is not tried.
    """
    if os.geteuid() != 0:
        reason = "it needs root"
        root = _ROOT._result("namespaces need it")  # noqa: SLF001 - of this module
        return [root, *(requirement.not_tried(reason) for requirement in (_SANDBOX, *requirements))]
    try:
        results = call(lambda: _try_all(requirements))
    except ProcessFailedError:
        sandbox = _SANDBOX._result("they cannot be made")  # noqa: SLF001 - of this module
        rest = [requirement.not_tried("it needs namespaces") for requirement in requirements]
        return [_ROOT.result(), sandbox, *rest]
    return [_ROOT.result(), _SANDBOX.result(), *(RequirementResult(**result) for result in results)]


def _try_all(requirements: Sequence[Requirement]) -> list[dict[str, Any]]:
    results: list[RequirementResult] = []
    lacking = ""
    for requirement in requirements:
        result = requirement.not_tried(f"it needs {lacking}") if lacking else requirement.result()
        results.append(result)
        if result.required and not result.ok and not lacking:
            lacking = requirement.name
    return [asdict(result) for result in results]
