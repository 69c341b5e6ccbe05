"""Commands that documents and pages show exist, with their options; a guide names every
kind of entry.
"""

import re
from html import unescape
from pathlib import Path
from typing import Any

import pytest
import typer

from app.api import pages
from app.cli.main import app
from app.ledger.tables import EntryKind

ROOT = Path(__file__).parents[2]
DOCUMENTS = (ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md")))
TEMPLATES = sorted(Path(pages.__file__).with_name("templates").glob("*.html"))


def _shown(path: Path) -> list[str]:
    """What follows ``grovekeeper`` in commands: in a line of code, a code span or an
    element of a page.
    """
    text = unescape(path.read_text(encoding="utf-8")).replace("\\\n", " ")
    return re.findall(
        r"(?:^|[`>(]|&& )grovekeeper +([a-z-]+[^`<\n]*)", text, flags=re.MULTILINE
    )


def _problem(shown: str) -> str | None:
    """What is wrong with a shown command: an unknown name or option."""
    command: Any = typer.main.get_command(app)
    words = re.split(r"[ |]+", shown.partition(" # ")[0].partition(" && ")[0].strip())
    while words and (commands := getattr(command, "commands", None)):
        if words[0].startswith("--"):
            break
        name = words.pop(0)
        if name not in commands:
            return f"no command {name}"
        command = commands[name]
    options = {
        name
        for parameter in command.params
        for name in (*parameter.opts, *parameter.secondary_opts)
    }
    unknown = [
        word
        for word in words
        if word.startswith("--") and word.partition("=")[0] not in {*options, "--help"}
    ]
    return f"no option {unknown[0]}" if unknown else None


@pytest.mark.parametrize("path", [*DOCUMENTS, *TEMPLATES], ids=lambda path: path.name)
def test_shown_commands_exist(path: Path) -> None:
    assert {shown: _problem(shown) for shown in _shown(path) if _problem(shown)} == {}


def test_commands_are_found_and_judged() -> None:
    assert sum(len(_shown(path)) for path in DOCUMENTS) > 150
    assert sum(len(_shown(path)) for path in TEMPLATES) >= 5
    assert _problem("keys destroy") == "no command destroy"
    assert _problem("--price") == "no option --price"
    assert _problem("plan census --price 3") == "no option --price"
    assert _problem("plan census --epsilon 1") is None


def test_the_guide_of_the_auditor_names_every_kind_of_entry() -> None:
    guide = (ROOT / "docs" / "guides" / "auditor.md").read_text(encoding="utf-8")
    cells = re.findall(r"^\| (`.*?) \|", guide, re.MULTILINE)
    assert {kind.value for kind in EntryKind} <= set(
        re.findall(r"`([a-z-]+)`", " ".join(cells))
    )
