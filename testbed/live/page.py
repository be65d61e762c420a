"""The page: its files as a server serves them, or all in one file that works offline."""

import base64
import gzip
import json
from collections.abc import Iterable
from pathlib import Path
from typing import Literal

from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup

from testbed.live.stream.records import StreamRecord, to_line

PageOffer = Literal["control", "break", "fork", "watch"]
"""What a page offers: to break the run, to fork and to end it; to break it; to fork it; or nothing.

A fabric with a prompt can be broken only: it has no scenario, and ends at the prompt."""

PAGE = Path(__file__).parent / "page"
STYLES = ("vendor/uPlot.min.css", "style.css")
LIBRARY = "vendor/uPlot.iife.min.js"
"""A script of the old kind, which defines `uPlot`."""

_PREFIX = "live/"
"""The modules import each other by this name: an import map says where they are, so that they need
no bundler."""


def modules() -> tuple[str, ...]:
    return tuple(sorted(file.name for file in PAGE.glob("*.js")))


def served(nonce: str, *, offer: PageOffer) -> str:
    """The page for a server that has the files of `PAGE` below `page/`.

    Args:
        nonce: that of its content security policy, for the import map.
        offer: what the page offers.
    """
    where = {_PREFIX + name: f"./page/{name}" for name in modules()}
    styles = [Markup('<link rel="stylesheet" href="page/{}">').format(name) for name in STYLES]
    scripts = [
        Markup('<script type="importmap" nonce="{}">{}</script>').format(nonce, _json(where)),
        Markup('<script src="page/{}"></script>').format(LIBRARY),
        Markup('<script type="module" src="page/main.js"></script>'),
    ]
    return _render("MRC testbed", styles, scripts, offer=offer)


def exported(records: Iterable[StreamRecord], title: str) -> str:
    """The page with all that it needs, and the stream of a finished run."""
    lines = "".join(map(to_line, records)).encode()
    stream = base64.b64encode(gzip.compress(lines, mtime=0)).decode()
    where = {_PREFIX + name: _data_url(PAGE / name) for name in modules()}
    styles = [Markup("<style>{}</style>").format(Markup(_text(name))) for name in STYLES]  # noqa: S704 - our own files
    scripts = [
        Markup('<script type="importmap">{}</script>').format(_json(where)),
        Markup("<script>{}</script>").format(Markup(_text(LIBRARY))),  # noqa: S704 - as above
        Markup('<script type="text/plain" id="stream">{}</script>').format(stream),
        Markup('<script type="module">import "live/main.js";</script>'),
    ]
    return _render(title, styles, scripts, offer="watch")


def _render(
    title: str, styles: Iterable[Markup], scripts: Iterable[Markup], *, offer: PageOffer
) -> str:
    environment = Environment(
        loader=PackageLoader("testbed.live", "page"), autoescape=True, undefined=StrictUndefined
    )
    page = environment.get_template("index.html")
    head, end = Markup("\n").join(styles), Markup("\n").join(scripts)
    return page.render(title=title, head=head, scripts=end, offer=offer)


def _json(imports: dict[str, str]) -> Markup:
    return Markup(json.dumps({"imports": imports}))  # noqa: S704 - names and base64 only


def _text(name: str) -> str:
    return (PAGE / name).read_text(encoding="utf-8")


def _data_url(file: Path) -> str:
    return "data:text/javascript;base64," + base64.b64encode(file.read_bytes()).decode()
