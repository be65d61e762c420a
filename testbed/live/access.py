"""Who may call an interface over HTTP.

Any page that a browser of this machine shows can send requests to its loopback, and lead a name of
its own there (DNS rebinding). So a request has to have a token, which only those know who were
given the address; a name of the server in `Host`; the server's own origin in `Origin` if it changes
something; and content in JSON, which a page of another origin cannot send unasked.
"""

import secrets
from collections.abc import Mapping
from dataclasses import dataclass, field
from http import HTTPStatus

_READING = frozenset({"GET", "HEAD"})


@dataclass(frozen=True, slots=True)
class Access:
    """The rules of one server.

    Attributes:
        hosts: the values of the header `Host` under which it may be called.
        token: what its paths begin with; None: it only shows what anybody here may see.
        only_pages: whether what changes something has to come from its own page; else programs,
            which send no `Origin`, may do so as well.
    """

    hosts: frozenset[str]
    token: str | None = field(default_factory=lambda: secrets.token_urlsafe(16))
    only_pages: bool = True

    def refusal(
        self, method: str, path: str, headers: Mapping[str, str]
    ) -> tuple[HTTPStatus, str] | None:
        """Why a request is refused; None if it is not.

        Args:
            method: the request's.
            path: the request's, decoded.
            headers: the request's; names in lower case are found.
        """
        host = headers.get("host", "")
        if host not in self.hosts:
            return HTTPStatus.MISDIRECTED_REQUEST, "called by an unknown name"
        if self.token is not None:
            token = path.removeprefix("/").partition("/")[0]
            if not secrets.compare_digest(token.encode(errors="replace"), self.token.encode()):
                return HTTPStatus.NOT_FOUND, "no such page: the address has a token"
        if method in _READING:
            return None
        origin = headers.get("origin")
        if origin != f"http://{host}" and (origin is not None or self.only_pages):
            return HTTPStatus.FORBIDDEN, "asked for by another page"
        kind = headers.get("content-type", "").partition(";")[0].strip().lower()
        if method == "POST" and kind != "application/json":
            return HTTPStatus.UNSUPPORTED_MEDIA_TYPE, "not JSON: Content-Type: application/json"
        return None
