"""Where the runs of a campaign are made: what `--on` says."""

import ipaddress
import re
from dataclasses import dataclass
from pathlib import Path
from typing import Literal, get_args
from urllib.parse import urlsplit

from testbed.model.errors import InputError, did_you_mean

Kind = Literal["local", "dask", "ssh", "slurm"]

FORMS_OF_PLACE = "local, dask:ADDRESS, ssh:HOSTFILE, slurm or slurm:JOBS"

_OPTION = "--on"

EXECUTES = "a worker executes what its scheduler sends"
"""Why no cluster speaks plain TCP with other machines."""


@dataclass(frozen=True, slots=True)
class Place:
    """Where runs are made.

    Attributes:
        kind: by what the workers are started; `dask`: they and their scheduler run already.
        target: the scheduler's address, the file of hosts or the number of Slurm's jobs.
    """

    kind: Kind
    target: str = ""

    def __str__(self) -> str:
        """As it is written on the command line."""
        return f"{self.kind}:{self.target}" if self.target else self.kind


def place_of(text: str) -> Place:
    """Read the value of `--on`.

    Raises:
        InputError: there is no such place or file, or others would reach it.
    """
    name, _, target = text.partition(":")
    kind = next((kind for kind in get_args(Kind) if kind == name), None)
    if kind is None:
        raise InputError.of(_OPTION, text, FORMS_OF_PLACE, did_you_mean(name, get_args(Kind)))
    if kind in ("dask", "ssh") and not target:
        raise InputError.of(_OPTION, text, FORMS_OF_PLACE)
    if kind == "local" and target:
        raise InputError.of(_OPTION, text, "local, without an address")
    if kind == "dask":
        require_protected(target, text)
    if kind == "ssh" and not Path(target).is_file():
        expected = "a file with a host on each line"
        raise InputError.of(_OPTION, f"{text}: no such file", expected)
    if kind == "slurm" and target and not re.fullmatch(r"[1-9][0-9]{0,4}", target):
        remedy = "all else is Dask's configuration, jobqueue.slurm (docs/campaigns.md)"
        raise InputError.of(_OPTION, text, "slurm:JOBS, the number of jobs", remedy)
    return Place(kind, target)


def is_protected(address: str) -> bool:
    """Whether others than this machine's users are kept out at an address: TLS or loopback.

    Raises:
        ValueError: it is no address.
    """
    parts = urlsplit(address if "://" in address else f"tcp://{address}")
    _ = parts.port  # raises
    return parts.scheme == "tls" or (parts.scheme == "tcp" and _is_loopback(parts.hostname))


def require_protected(address: str, found: str) -> None:
    """Refuse plain TCP to another machine, or no address at all; the error says what was found."""
    expected = "tls://HOST:PORT, or tcp:// on loopback"
    try:
        if is_protected(address):
            return
    except ValueError as error:
        raise InputError.of(_OPTION, found, expected, f"no address: {error}") from None
    remedy = (
        f"{EXECUTES}. Start both with TLS (docs/campaigns.md), or with --host 127.0.0.1; "
        "ssh -L reaches a scheduler on another machine's loopback"
    )
    raise InputError.of(_OPTION, found, expected, remedy)


def _is_loopback(host: str | None) -> bool:
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host or "").is_loopback
    except ValueError:
        return False


def hosts_in(file: Path) -> list[str]:
    """The hosts of a host file: one on each line; `#` begins a comment.

    Raises:
        InputError: it cannot be read, names none, or a line has more than a host.
    """
    try:
        lines = file.read_text(encoding="utf-8").splitlines()
    except (OSError, UnicodeError) as error:
        expected = f"a file of text with a host on each line ({error})"
        raise InputError.of(str(file), "", expected) from None
    hosts = []
    for number, line in enumerate(lines, 1):
        words = line.partition("#")[0].split()
        if len(words) > 1 or any("@" in word for word in words):
            remedy = "~/.ssh/config says its user and port"
            raise InputError.of(f"{file}:{number}", line.strip(), "one host", remedy)
        hosts += words
    if not hosts:
        raise InputError.of(str(file), "no host", "a host on each line")
    return hosts
