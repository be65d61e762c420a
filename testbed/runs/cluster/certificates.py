"""Certificates for a cluster that spans machines: made for one campaign, and removed with it."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from testbed.model.errors import MachineError
from testbed.runs.cluster.files import KEYS

_TLS = "distributed.comm.tls"


def require_certificate(place: str) -> None:
    """Require that Dask's configuration has what a client speaks TLS with.

    Args:
        place: where the scheduler is, for errors.

    Raises:
        MachineError: it has none, or names files that cannot be used.
    """
    from distributed import Security

    remedy = (
        "name its files in Dask's configuration: DASK_DISTRIBUTED__COMM__TLS__CA_FILE, "
        "..._TLS__CLIENT__CERT and ..._TLS__CLIENT__KEY (docs/campaigns.md)"
    )
    try:
        context = Security().get_connection_args("client")["ssl_context"]
    except (OSError, ValueError) as error:
        what = f"{place}: the certificate of Dask's configuration cannot be used: {error}"
        raise MachineError(what, remedy) from None
    if context is None:
        raise MachineError(f"{place}: Dask's configuration has no certificate for TLS", remedy)


@contextmanager
def certificates(directory: Path) -> Iterator[None]:
    """Make a certificate that only those know who can read the campaign's directory.

    Scheduler, workers and client identify themselves by it and trust nothing else. It lies in a
    directory that only its owner may enter, so ssh has to reach the hosts as the same user.

    During the block Dask's configuration makes all speak TLS by it.

    Args:
        directory: the campaign's; all machines have it under one path.
    """
    import dask
    from distributed import Security

    security = Security.temporary()
    with TemporaryDirectory(prefix=KEYS, dir=directory.resolve()) as place:
        files = {"ca.pem": security.tls_ca_file, "key.pem": security.tls_client_key}
        files["cert.pem"] = security.tls_client_cert
        for name, content in files.items():
            file = Path(place) / name
            file.touch(mode=0o600)
            file.write_text(content, encoding="utf-8")
        pair = {"key": f"{place}/key.pem", "cert": f"{place}/cert.pem"}
        settings: dict[str, Any] = {
            "distributed.comm.default-scheme": "tls",
            "distributed.comm.require-encryption": True,
            f"{_TLS}.ca-file": f"{place}/ca.pem",
            f"{_TLS}.client": pair,
            f"{_TLS}.scheduler": pair,
            f"{_TLS}.worker": pair,
        }
        with dask.config.set(settings):
            yield
