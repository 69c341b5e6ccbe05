"""The files that documents for maintainers name exist."""

import re
from pathlib import Path

import pytest

from tests.support.ruler import ROOT

FORESTS = ROOT / "packages" / "forests" / "grovekeeper_forests"
SHORT = {
    "forests/": FORESTS,
    "common/": ROOT / "clients" / "python" / "grovekeeper_common",
}
"""How docs/architecture.md shortens two packages."""
FOLDERS = (ROOT, ROOT / "app", FORESTS)
_FILE = re.compile(r"`([\w/.-]+\.(?:py|md|toml|txt|json))`")


@pytest.mark.parametrize("document", ["CONTRIBUTING.md", "docs/architecture.md"])
def test_a_named_file_exists(document: str) -> None:
    """A name without a folder is that of some module: the text around it says where."""
    modules = {path.name for path in ROOT.glob("[!.]*/**/*.py")}
    named = set(_FILE.findall((ROOT / document).read_text("utf-8")))
    assert len(named) > 1, "the expression finds names"
    assert [name for name in sorted(named) if not _exists(name, modules)] == []


def _exists(name: str, modules: set[str]) -> bool:
    for short, folder in SHORT.items():
        if name.startswith(short):
            return (folder / name.removeprefix(short)).is_file()
    paths: list[Path] = [folder / name for folder in FOLDERS]
    return any(path.is_file() for path in paths) or name in modules
