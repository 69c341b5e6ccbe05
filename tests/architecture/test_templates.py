"""The templates of the dashboard stay readable: short lines, so one element a line."""

from pathlib import Path

TEMPLATES = Path(__file__).parents[2] / "app" / "api" / "pages" / "templates"
LONGEST = 120
"""Characters of a line."""


def test_a_line_of_a_template_is_short() -> None:
    templates = sorted(TEMPLATES.glob("*.html"))
    assert len(templates) > 30
    lines = [
        (template.name, number, line)
        for template in templates
        for number, line in enumerate(template.read_text("utf-8").splitlines(), 1)
    ]
    assert [
        f"{name}:{number}" for name, number, line in lines if len(line) > LONGEST
    ] == []
