"""The commands that pages of the dashboard show are commands of the command line."""

import re
from html import unescape
from pathlib import Path

import pytest
from typer.testing import CliRunner

from app.api import pages
from app.cli.main import app

SHOWN = sorted(
    {
        unescape(command)
        for path in (Path(pages.__file__).with_name("templates")).glob("*.html")
        for command in re.findall(r"grovekeeper ([a-z][^<\n]*)", path.read_text(encoding="utf-8"))
        if not command.startswith("serve")
    }
)


def test_pages_show_commands() -> None:
    assert len(SHOWN) >= 5


@pytest.mark.parametrize("command", SHOWN)
def test_a_command_exists_with_its_options(command: str) -> None:
    words = re.match(r"[a-z]+( [a-z]+(?= |$))?", command)
    assert words is not None
    names = words[0].split()
    if names[0] == "verify":
        names = names[:1]
    help_text = CliRunner().invoke(app, [*names, "--help"], terminal_width=200)
    assert help_text.exit_code == 0, help_text.output
    for option in re.findall(r"--[a-z-]+", command):
        assert option in help_text.output
