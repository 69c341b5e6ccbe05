"""The templates of the dashboard stay readable: one element a line, in short lines, and
no computation. The modules beside them prepare what a template prints.
"""

from pathlib import Path

from jinja2 import Environment, nodes

PAGES = Path(__file__).parents[2] / "app" / "api" / "pages"
TEMPLATES = sorted((PAGES / "templates").glob("*.html"))
LONGEST = 120
"""Characters of a line."""

COMPUTATIONS = (
    nodes.Sub,
    nodes.Mul,
    nodes.Div,
    nodes.FloorDiv,
    nodes.Mod,
    nodes.Pow,
    nodes.Slice,
)
WRITING_FILTERS = {
    "capitalize", "cell", "clock", "covered", "entry", "few_digits", "format", "grouped", "hour", "join", "left",
    "length", "minute", "percent", "replace", "reverse", "sentence", "share", "spent", "striptags", "urlencode",
}  # fmt: skip
"""Filters that write a value in another way. Those that choose or compute values belong
into Python: ``map``, ``selectattr``, ``sum``, ``max`` and their like.
"""


def test_a_line_of_a_template_is_short() -> None:
    assert len(TEMPLATES) > 30
    assert [
        f"{template.name}:{number}"
        for template in TEMPLATES
        for number, line in enumerate(template.read_text("utf-8").splitlines(), 1)
        if len(line) > LONGEST
    ] == []


def test_a_template_computes_nothing() -> None:
    for template in TEMPLATES:
        parsed = Environment(autoescape=True).parse(template.read_text("utf-8"))
        computed = [node.lineno for node in parsed.find_all(COMPUTATIONS)]
        assert computed == [], template.name
        filters = {node.name for node in parsed.find_all(nodes.Filter)}
        assert filters <= WRITING_FILTERS, template.name
