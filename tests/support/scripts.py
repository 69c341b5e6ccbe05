"""Python files that no package holds: the script of the two commands, revisions of the database."""

import importlib.util
from pathlib import Path
from types import ModuleType


def loaded(file: Path) -> ModuleType:
    """A new module of the file's code; nothing is kept of it between two calls."""
    spec = importlib.util.spec_from_file_location(file.stem, file)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module
