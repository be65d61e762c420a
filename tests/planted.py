"""Modules in a directory that nothing may import: each says that it was executed, and ends that."""

from pathlib import Path

NAMES = ("json", "testbed", "numpy", "sitecustomize", "signal", "random", "multiprocessing")

_CODE = """
with open({mark!r}, "a") as mark:
    mark.write(__name__ + "\\n")
raise SystemExit("this was not to be executed")
"""


class Planted:
    """A directory of such modules.

    Attributes:
        directory: where they are.
    """

    def __init__(self, directory: Path) -> None:
        self.directory = directory / "planted"
        self.directory.mkdir()
        self._mark = directory / "executed"
        for name in NAMES:
            text = _CODE.format(mark=str(self._mark))
            (self.directory / f"{name}.py").write_text(text, encoding="utf-8")

    @property
    def executed(self) -> list[str]:
        """The names of those that were executed."""
        return self._mark.read_text(encoding="utf-8").split() if self._mark.exists() else []
