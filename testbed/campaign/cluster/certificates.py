"""Certificates for a cluster that spans machines: made for one campaign, and removed with it."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

_TLS = "distributed.comm.tls"


@contextmanager
def certificates(directory: Path) -> Iterator[dict[str, Any]]:
    """Make a certificate that only those know who can read the campaign's directory.

    Scheduler, workers and client identify themselves by it and trust nothing else. It lies in a
    directory that only its owner may enter, so ssh has to reach the hosts as the same user.

    Args:
        directory: the campaign's; all machines have it under one path.

    Yields:
        The settings of Dask that make all speak TLS by it.
    """
    from distributed import Security  # noqa: PLC0415 - an extra

    security = Security.temporary()
    with TemporaryDirectory(prefix=".tls-", dir=directory.resolve()) as place:
        files = {"ca.pem": security.tls_ca_file, "key.pem": security.tls_client_key}
        files["cert.pem"] = security.tls_client_cert
        for name, content in files.items():
            file = Path(place) / name
            file.touch(mode=0o600)
            file.write_text(content)
        pair = {"key": f"{place}/key.pem", "cert": f"{place}/cert.pem"}
        yield {
            "distributed.comm.default-scheme": "tls",
            "distributed.comm.require-encryption": True,
            f"{_TLS}.ca-file": f"{place}/ca.pem",
            f"{_TLS}.client": pair,
            f"{_TLS}.scheduler": pair,
            f"{_TLS}.worker": pair,
        }
