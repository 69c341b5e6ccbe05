"""Shows what the client returns as tables in a notebook. Every text is escaped."""

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import fields
from decimal import Decimal
from html import escape
from typing import Any

from grovekeeper_common.json_types import JsonMapping, JsonObject


class Records(list[dict[str, Any]]):
    """The items of a list of the service, each as the API answers it.

    Args:
        items: of the list.
        columns: the columns that a notebook shows.
        inner: columns for members of members, by the names on the way to them.
    """

    def __init__(
        self,
        items: Iterable[JsonObject],
        *,
        columns: Sequence[str],
        inner: Mapping[str, Sequence[str]] | None = None,
    ) -> None:
        super().__init__(items)
        self.columns = tuple(columns)
        self._inner = dict(inner or {})

    def frame(self) -> Any:
        """The items as a pandas DataFrame, with all their members."""
        import pandas as pd

        return pd.DataFrame(self._rows())

    def _repr_html_(self) -> str:
        return table(self.columns, self._rows())

    def _rows(self) -> list[JsonObject]:
        return [
            {**item, **{name: _at(item, path) for name, path in self._inner.items()}}
            for item in self
        ]


def table(columns: Sequence[str], records: Iterable[JsonMapping]) -> str:
    """HTML of a table with a row for each record."""
    head = "".join(f"<th>{escape(name)}</th>" for name in columns)
    rows = "".join(
        f"<tr>{''.join(_cell(record.get(name)) for name in columns)}</tr>"
        for record in records
    )
    return f"<table><thead><tr>{head}</tr></thead><tbody>{rows}</tbody></table>"


def facts(title: str, values: JsonMapping) -> str:
    """HTML of a table with a row for each name and value; ``None`` is left out."""
    rows = "".join(
        f"<tr><th>{escape(name)}</th>{_cell(value)}</tr>"
        for name, value in values.items()
        if value is not None
    )
    caption = f"<caption>{escape(title)}</caption>"
    return f"<table>{caption}<tbody>{rows}</tbody></table>"


class ShowsFields:
    """A dataclass that a notebook shows as a table of its fields."""

    def _repr_html_(self) -> str:
        shown = [item.name for item in fields(self) if item.repr]  # type: ignore[arg-type]
        values = {name: getattr(self, name) for name in shown}
        return facts(type(self).__name__, values)


def _at(item: Any, path: Sequence[str]) -> Any:
    """The member at the end of a path; ``None`` where one on the way is missing."""
    for name in path:
        item = None if item is None else item[name]
    return item


def _cell(value: Any) -> str:
    return f"<td>{escape(_text(value))}</td>"


def _text(value: Any) -> str:
    match value:
        case None:
            return ""
        case Mapping():
            return json.dumps(dict(value), ensure_ascii=False, default=str)
        case Decimal():
            return f"{value:f}"
        case list() | tuple():
            return ", ".join(map(_text, value))
        case _:
            return str(value)
