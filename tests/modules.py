"""Programs beside the package, such as those of `scripts/`, as modules."""

import importlib.util
import sys
from pathlib import Path
from types import ModuleType

SCRIPTS = Path(__file__).parents[1] / "scripts"


def module_at(path: Path) -> ModuleType:
    """Load a program under its own name; what it imports from beside it must be on `sys.path`."""
    spec = importlib.util.spec_from_file_location(path.stem, path)
    assert spec is not None
    assert spec.loader is not None
    module = sys.modules[path.stem] = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module
