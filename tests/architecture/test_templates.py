"""The templates of the dashboard stay readable: one element a line, in short lines, and
no computation. The modules beside them prepare what a template prints.
"""

import re
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
    "place", "verification",
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


def test_a_time_has_its_zone() -> None:
    """In a sentence; a browser checks that a time in a cell has the zone in the head of
    its column (tests/browser/test_pages_in_browser.py).
    """
    bare, n_zones = list[str](), 0
    for template in TEMPLATES:
        before, *others = re.split(
            r"{{ [^}]*\| *(?:minute|hour)\b[^}]*}}", template.read_text("utf-8")
        )
        for after in others:
            if after.startswith(" UTC"):
                n_zones += 1
            elif before.rfind("<td") <= before.rfind("</td>"):
                bare.append(f"{template.name}:{before.count(chr(10)) + 1}")
            before += after
    assert bare == []
    assert n_zones > 20


def test_a_search_that_is_sent_whole_refuses_a_key_in_each_field_of_text() -> None:
    """The address of a search is logged by proxies: a key that was pasted there leaks.
    A form with ``data-live`` is sent while somebody types, before a browser checks it.
    """
    checked = 0
    for template in TEMPLATES:
        text = template.read_text("utf-8")
        for form in re.findall(r'(?s)<form method="get"[^>]*>.*?</form>', text):
            if " data-live>" in form.partition("\n")[0]:
                continue
            fields = re.findall(r"(?s)<input .*?>", form)
            for field in fields:
                if 'type="hidden"' not in field and 'type="date"' not in field:
                    assert "{{ no_secret() }}" in field, (template.name, field)
                    checked += 1
    assert checked > 7
