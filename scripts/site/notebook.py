"""An executed notebook as a page: its texts, its code, and its outputs."""

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any


def as_markdown(file: Path) -> str:
    """The page of a notebook."""
    cells = json.loads(file.read_text(encoding="utf-8"))["cells"]
    return "\n\n".join(part for cell in cells for part in _parts(cell)) + "\n"


def _parts(cell: dict[str, Any]) -> Iterator[str]:
    source = "".join(cell["source"])
    if cell["cell_type"] == "markdown":
        yield source
        return
    yield f"```python\n{source}\n```"
    for output in cell["outputs"]:
        yield _output(output)


def _output(output: dict[str, Any]) -> str:
    """What a notebook shows of an output: the richest form that it has."""
    data = {kind: "".join(content) for kind, content in output.get("data", {}).items()}
    if "image/svg+xml" in data:
        svg = data["image/svg+xml"]
        return f'<div class="output">{_one_line(svg[svg.index("<svg") :])}</div>'
    if "image/png" in data:
        return f"![output](data:image/png;base64,{data['image/png'].strip()})"
    if "text/html" in data:
        return f'<div class="output">{_one_line(data["text/html"])}</div>'
    text = "".join(output.get("text", ())) or data.get("text/plain", "")
    return f"```text\n{text.rstrip()}\n```"


def _one_line(html: str) -> str:
    """HTML without lines of its own, which Markdown would read."""
    return re.sub(r"\s*\n\s*", " ", html)
