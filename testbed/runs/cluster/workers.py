"""The workers of a cluster: what each offers, and why it makes no runs of a form."""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from testbed.results.code_version import package_version
from testbed.runs.cluster.place import EXECUTES, is_protected
from testbed.runs.job import FORMS, Form

EMULATION = "emulation"
"""The Dask resource that an emulation takes: a worker stands for a machine and has one of it. A
simulation takes one of the worker's threads, which are as many as the machine's cores."""


@dataclass(frozen=True, slots=True)
class Worker:
    """A worker of the cluster.

    Attributes:
        address: where the scheduler reaches it.
        offers: how many jobs of each form it makes at a time.
        directory: its own, which no other worker has, not even a later one at the same address.
        description: what it says of its machine (`worker.describe`).
        unfit: why it makes no runs of a form; empty for those that it makes.
    """

    address: str
    offers: Mapping[Form, int]
    directory: str = ""
    description: Mapping[str, Any] = field(default_factory=dict)
    unfit: Mapping[Form, str] = field(default_factory=dict)

    @property
    def answered(self) -> bool:
        """Whether it has said what it can do, or that it cannot say it."""
        return _SILENT not in self.unfit.values()

    def reason(self, form: Form) -> str:
        """Why it makes no runs of a form; empty if it does."""
        if not self.offers[form]:
            return f"it does not offer the resource {EMULATION!r}"
        return self.unfit.get(form, "")

    def as_record(self) -> dict[str, Any]:
        """What a campaign keeps of it."""
        return {
            "address": self.address,
            **self.description,
            "offers": dict(self.offers),
            "unfit": dict(self.unfit),
        }

    @property
    def name(self) -> str:
        """Its host, or its address if it does not say."""
        return str(self.description.get("host") or self.address)


_SILENT = "it has not answered yet"


def described(worker: Worker, reply: Any) -> Worker:
    """A worker with what it said of itself, or with the error that it answered."""
    if not isinstance(reply, Mapping):
        answer = "nothing" if reply is None else f"{type(reply).__name__}: {reply}"
        reason = f"asked for its version of the testbed, it answers {answer}"
        return replace(worker, description={}, unfit=dict.fromkeys(FORMS, reason))
    unfit: dict[Form, str] = {}
    if (version := reply.get("package")) != package_version():
        reason = f"it has another version of the testbed ({version}, not {package_version()})"
        unfit = dict.fromkeys(FORMS, reason)
    elif not reply.get("doctor", {"able": True})["able"]:
        missing = [
            finding["name"]
            for finding in reply["doctor"].get("findings", ())
            if finding["required"] and not finding["ok"]
        ]
        failed = f"testbed doctor fails there: {reply['doctor'].get('error', 'no reason given')}"
        unfit["emulated"] = f"it lacks: {', '.join(missing)}" if missing else failed
    answered = replace(worker, description=reply, unfit=unfit)
    return answered if version != package_version() else unprotected(answered, reply["listens"])


def unprotected(worker: Worker, address: str) -> Worker:
    """A worker that makes no runs if others than its machine's users reach it without TLS.

    Args:
        worker: it.
        address: where it is reached, or where it listens, which may be more addresses than one.
    """
    if is_protected(address):
        return worker
    reason = (
        f"it speaks plain TCP at {address}, and {EXECUTES} "
        "(start it with TLS, or on the scheduler's machine with --host 127.0.0.1)"
    )
    return replace(worker, unfit=dict.fromkeys(FORMS, reason))


def unanswered(address: str, offers: Mapping[Form, int], directory: str = "") -> Worker:
    """A worker that was asked what it can do, and has not answered yet."""
    return Worker(address, offers, directory, unfit=dict.fromkeys(FORMS, _SILENT))
