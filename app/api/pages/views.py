"""Prepares what several pages show: the navigation, refusals, and trees of events."""

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from app.access.grants import Principal, Role
from app.api import problems
from app.api.pages import words
from grovekeeper_common.json_types import JsonMapping
from grovekeeper_common.number_words import grouped
from grovekeeper_forests.errors import GrovekeeperError


@dataclass(frozen=True)
class Link:
    """A link of the navigation.

    Attributes:
        icon: the name of its symbol in ``icons.html``.
        is_current: whether the shown page is the linked page, or one below it.
    """

    path: str
    label: str
    icon: str
    is_current: bool


_PAGES_OF_ALL = [
    ("/", "Home", "home", ("/ui/approvals",)),
    (
        "/ui/datasets",
        "Datasets",
        "datasets",
        ("/ui/datasets", "/ui/statistics", "/ui/profiles"),
    ),
    ("/ui/jobs", "Jobs", "jobs", ("/ui/jobs",)),
    ("/ui/models", "Models", "models", ("/ui/models", "/ui/evaluations")),
    ("/ui/ledger", "Ledger", "ledger", ("/ui/ledger",)),
]
"""Address, name and symbol of a page, and how the addresses of the pages below it
begin.
"""
_POPULATIONS = ("/ui/populations", "Populations", "people", ("/ui/populations",))
_ACTS = ("/ui/acts", "Acts", "acts", ("/ui/acts",))
_ADMINISTRATION = ("/ui/admin", "Administration", "admin", ("/ui/admin",))


def navigation(caller: Principal | None, path: str) -> list[Link]:
    """The links to the pages that a caller may see.

    Args:
        path: the address of the shown page.
    """
    if caller is None:
        return []
    pages = list(_PAGES_OF_ALL)
    if caller.roles:
        pages.append(_POPULATIONS)
    if caller.is_admin or Role.AUDITOR in caller.roles:
        pages.append(_ACTS)
    if caller.is_admin:
        pages.append(_ADMINISTRATION)
    return [
        Link(link, label, icon, path == link or path.startswith(below))
        for link, label, icon, below in pages
    ]


def signed_in_as(caller: Principal | None) -> str:
    """The name of a caller, or the id of a caller without a name, and its global roles."""
    if caller is None:
        return ""
    name = caller.name or caller.key_id
    roles = ", ".join(sorted(caller.roles))
    return f"{name} ({roles})" if roles else name


def may_declare(caller: Principal) -> bool:
    """Whether a caller may declare datasets."""
    return not caller.roles.isdisjoint({Role.OWNER, Role.ADMIN})


_ADVICE = {
    "not-found": "It does not exist, or your key has no grant on it. "
    "The owner of a dataset gives grants.",
    "unavailable": "Nothing was charged by this request. Try again in a moment.",
    "too-many-requests": "Nothing was charged by this request. Try again in a moment.",
}
"""What to do next, by slug of the problem."""


@dataclass(frozen=True)
class WrongField:
    """A field of a refused form.

    Attributes:
        name: of the field, in words.
        words: why it is wrong, as a sentence.
    """

    name: str
    words: str


@dataclass(frozen=True)
class WrongColumn:
    """A column of an upload that does not match the declaration.

    Attributes:
        problem: why, in words.
        cells: how many cells are wrong, and which part of the column.
        first_row: the number of the first row with a wrong cell, if known.
        may_be_accepted: whether the owner may accept the cells as they are.
    """

    name: str
    problem: str
    cells: str
    first_row: str
    may_be_accepted: bool


@dataclass(frozen=True)
class ShownProblem:
    """Why a request was refused.

    Attributes:
        sentence: what is wrong; empty if the fields or the title say it.
        advice: what to do next, or nothing.
        largest_that_fits: the largest ε of a job that fits, if the budget is short.
        columns: columns of an upload that do not match the declaration.
    """

    title: str
    sentence: str
    advice: str = ""
    wrong_fields: Sequence[WrongField] = ()
    largest_that_fits: str | None = None
    columns: Sequence[WrongColumn] = ()


def shown_problem(error: GrovekeeperError) -> tuple[int, ShownProblem]:
    """Return the status of a named error, and its problem."""
    body, row = problems.problem_of(error)
    wrong_fields = list(map(_wrong_field, body.get("errors", ())))
    sentence = words.sentence(body["detail"])
    is_said = "errors" in body or sentence == words.sentence(body["title"])
    return row.status, ShownProblem(
        title=body["title"],
        sentence="" if is_said else sentence,
        advice=_ADVICE.get(row.slug, ""),
        wrong_fields=wrong_fields,
        largest_that_fits=body.get("largest_that_fits"),
        columns=list(map(_wrong_column, body.get("columns", ()))),
    )


_PLACE_IN_TABLE = re.compile("^(/(?:where|quantiles)/)([0-9]+)")
"""A place of a list, which people count from one."""


def _wrong_field(item: JsonMapping) -> WrongField:
    # A form asks for one table.
    at = item["at"].removeprefix("/tables/0")
    if at != item["at"]:
        at = _PLACE_IN_TABLE.sub(lambda found: found[1] + str(int(found[2]) + 1), at)
    place = at.replace("/", " ").replace("_", " ").strip()
    name = place or "the form"
    if "field" in item:
        name = f"{name} {item['field']}"
    # a cell of a row, which the form names by its column
    name = item.get("column", name)
    return WrongField(name, words.field_problem(item["problem"], item.get("accepted")))


def _wrong_column(column: JsonMapping) -> WrongColumn:
    problem = column["problem"].replace("-", " ")
    for part in ("line", "byte"):
        if column.get(part):
            problem += f", {part} {column[part]}"
    if column.get("suspected"):
        problem += f": {column['suspected']}"
    if column.get("option"):
        name, _, value = column["option"].partition("=")
        problem += f"; under How the file is written, choose {name} {value}"
    cells = grouped(column["count"])
    if "percent" in column:
        cells += f" ({column['percent']} %)"
    return WrongColumn(
        name=column["name"] or _place_of(column),
        problem=problem,
        cells=cells,
        first_row=str(column.get("row") or ""),
        may_be_accepted="percent" in column,
    )


def _place_of(column: JsonMapping) -> str:
    """Where a column without a name stands."""
    if not column.get("positions"):
        return "the file"
    positions = ", ".join(map(str, column["positions"]))
    return f"number {positions} of the header"


@dataclass(frozen=True)
class Neighbours:
    """The numbers before and after a number of a chain; ``None`` at its ends."""

    before: int | None
    after: int | None


def neighbours(sequence: int, size: int) -> Neighbours:
    """The neighbours of an entry, or of an act, of so many."""
    return Neighbours(
        before=sequence - 1 if sequence > 1 else None,
        after=sequence + 1 if sequence < size else None,
    )


@dataclass(frozen=True)
class TreeNode:
    """A member of an event.

    Attributes:
        text: its value; empty if the value is an event, or several.
        events: the events that it holds.
        is_list: whether it holds a list of events.
    """

    name: str
    text: str = ""
    events: Sequence[Sequence["TreeNode"]] = ()
    is_list: bool = False


def tree_of(event: JsonMapping) -> list[TreeNode]:
    """The members of an event."""
    return [_node(name, value) for name, value in event.items()]


def _node(name: str, value: Any) -> TreeNode:
    match value:
        case dict():
            return TreeNode(name, events=[tree_of(value)])
        case [dict(), *_]:
            events = list(map(tree_of, value))
            return TreeNode(name, events=events, is_list=True)
        case _:
            return TreeNode(name, str(value))
