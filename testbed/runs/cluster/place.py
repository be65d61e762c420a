"""Where the runs of a campaign are made: what `--on` says."""

import ipaddress
from dataclasses import dataclass
from pathlib import Path
from typing import Literal, get_args
from urllib.parse import urlsplit

from testbed.model.errors import InputError, did_you_mean

Kind = Literal["local", "dask", "ssh", "slurm"]

FORMS_OF_PLACE = "local, dask:ADDRESS, ssh:HOSTFILE, slurm or slurm:FILE"

_OPTION = "--on"

_WORDS = 2
"""On a line of a host file: an address and a port."""

_PORTS = range(1, 1 << 16)


@dataclass(frozen=True, slots=True)
class Place:
    """Where runs are made.

    Attributes:
        kind: by what the workers are started; `dask`: they and their scheduler run already.
        target: the scheduler's address, the file of hosts or that of Slurm's options; empty for
            none.
    """

    kind: Kind
    target: str = ""

    def __str__(self) -> str:
        """As it is written on the command line."""
        return f"{self.kind}:{self.target}" if self.target else self.kind


def place_of(text: str) -> Place:
    """Read the value of `--on`.

    Raises:
        InputError: it names no such place, a file that does not exist, or an address that would
            have runs started over an unprotected network.
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
    elif target and not Path(target).is_file():
        expected = "a file with a host on each line" if kind == "ssh" else "a file of its options"
        raise InputError.of(_OPTION, f"{text}: no such file", expected)
    return Place(kind, target)


EXECUTES = "a worker executes what its scheduler sends"
"""Why no cluster speaks plain TCP with other machines."""


def is_protected(address: str) -> bool:
    """Whether others than this machine's users are kept out at an address of Dask: TLS or loopback.

    Raises:
        ValueError: it is no address.
    """
    parts = urlsplit(address if "://" in address else f"tcp://{address}")
    _ = parts.port  # raises
    return parts.scheme == "tls" or (parts.scheme == "tcp" and _is_loopback(parts.hostname))


def require_protected(address: str, found: str) -> None:
    """Refuse plain TCP to another machine: a worker executes whatever its scheduler sends.

    Args:
        address: of a scheduler.
        found: what the error says was found.

    Raises:
        InputError: it is such an address, or none at all.
    """
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


@dataclass(frozen=True, slots=True)
class SshHost:
    """A host of a host file: its address, and what ssh needs to know beside it."""

    address: str
    user: str = ""
    port: int = 22

    @property
    def options(self) -> dict[str, object]:
        """As options of asyncssh."""
        options: dict[str, object] = {"port": self.port}
        if self.user:
            options["username"] = self.user
        return options


def hosts_in(file: Path) -> list[SshHost]:
    """The hosts of a host file: one on each line, [USER@]ADDRESS[ PORT]; `#` begins a comment.

    Raises:
        InputError: it cannot be read, names none, or a line has no address or a wrong port.
    """
    try:
        lines = file.read_text(encoding="utf-8").splitlines()
    except (OSError, UnicodeError) as error:
        expected = f"a file of text with a host on each line ({error})"
        raise InputError.of(str(file), "", expected) from None
    hosts = []
    for number, line in enumerate(lines, 1):
        words = line.partition("#")[0].split()
        if not words:
            continue
        user, _, address = words[0].rpartition("@")
        port = words[1] if len(words) > 1 else "22"
        is_port = port.isdecimal() and int(port) in _PORTS
        if len(words) > _WORDS or not address or not is_port:
            expected = f"[USER@]ADDRESS [PORT], the port from {_PORTS[0]} to {_PORTS[-1]}"
            raise InputError.of(f"{file}:{number}", line.strip(), expected)
        hosts.append(SshHost(address, user, int(port)))
    if not hosts:
        raise InputError.of(str(file), "no host", "a host on each line, such as user@node1")
    return hosts
