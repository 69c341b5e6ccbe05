"""What a notebook shows of the client's objects: tables without markup of others."""

import sys
from decimal import Decimal
from types import ModuleType
from typing import Any

import pandas as pd
import pytest

from grovekeeper_client import Balance, Table, views
from grovekeeper_client.amounts import Price
from grovekeeper_client.models import Model

MARKUP = "<script>alert('x')</script>"
ESCAPED = "&lt;script&gt;alert(&#x27;x&#x27;)&lt;/script&gt;"


def test_every_text_is_escaped() -> None:
    records = views.Records(
        [{"id": MARKUP, "aliases": [MARKUP], MARKUP: None}],
        columns=("id", "aliases", MARKUP),
    )
    card = {
        "id": MARKUP, "algorithm": MARKUP, "parameters": {"a": MARKUP}, "guarantee": {},
        "schema": {"label": {"name": MARKUP, "classes": [MARKUP]}}, "scope": {"shard": [MARKUP]},
    }  # fmt: skip
    table = Table(
        {
            "axes": [{"column": MARKUP, "cells": [{"value": MARKUP}]}],
            "rows": [{"cells": [MARKUP], "value": 1.0, "low": 0.0, "high": 2.0}],
            "table": {"statistic": "count"},
        }
    )
    for shown in (records, Model(None, card), table):  # type: ignore[arg-type]
        html = shown._repr_html_()
        assert "<script" not in html
        assert "&lt;script&gt;" in html
    assert records._repr_html_().count(ESCAPED) == 3


def test_a_list_is_a_data_frame_with_all_members() -> None:
    records = views.Records([{"id": "a", "more": 1}], columns=("id",))
    assert list(records.frame().columns) == ["id", "more"]
    assert "more" not in records._repr_html_()
    assert (
        views.Records([], columns=("id",))
        ._repr_html_()
        .endswith("<tbody></tbody></table>")
    )


def test_members_of_members_are_columns() -> None:
    items = [{"id": "a", "price": {"epsilon": "1"}}, {"id": "b", "price": None}]
    records = views.Records(
        items, columns=("id", "epsilon"), inner={"epsilon": ("price", "epsilon")}
    )
    assert list(records) == items
    frame = records.frame()
    assert (frame["epsilon"][0], frame["epsilon"].isna()[1]) == ("1", True)
    assert "<td>1</td>" in records._repr_html_()


def test_a_model_shows_the_bounds_of_the_numbers_that_it_predicts() -> None:
    label = {"name": "days", "type": "number", "lower": 0, "upper": 60}
    card = {"guarantee": {}, "schema": {"label": label}}
    html = Model(None, card)._repr_html_()  # type: ignore[arg-type]
    assert "<th>label</th><td>days</td>" in html
    assert "<th>lower</th><td>0</td></tr><tr><th>upper</th><td>60</td>" in html
    assert "classes" not in html


def test_numbers_of_a_balance_are_exact() -> None:
    amounts = {"cap": "3", "charged": "1.10", "reserved": "0", "remaining": "1.9"}
    balance = Balance(
        unit="epsilon",
        available=Decimal("1.9"),
        limited_by="cap",
        largest_that_fits=Decimal("1.9"),
        tightest_cell={"shard": 3},
        **{name: Decimal(amount) for name, amount in amounts.items()},
    )
    html = balance._repr_html_()
    assert "<caption>Balance</caption>" in html
    assert "<th>charged</th><td>1.10</td>" in html
    assert "{&quot;shard&quot;: 3}" in html


def test_amounts_are_written_as_the_service_writes_them() -> None:
    """Also those for which Python has a power of ten."""
    price: dict[str, Any] = {"amount": "0.00000008", "epsilon": "0.0000001"}
    of_pure = Price.from_json(price | {"unit": "epsilon", "delta": None})
    of_zcdp = Price.from_json(price | {"unit": "rho", "delta": "0.0000002"})
    html = views.facts("Quote", {"price": of_pure, "fits": Decimal("0.0000001")})
    assert "<td>0.00000008 ε</td>" in html
    assert "<td>0.0000001</td>" in html
    words = "0.00000008 ρ (ε = 0.0000001 at δ = 0.0000002)"
    assert f"<td>{words}</td>" in views.facts("Quote", {"price": of_zcdp})


@pytest.mark.parametrize(
    ("cells", "days"),
    [
        ([(2.0, 1.0, 4.0), (None, 0.0, 9.0)], [2.0, None]),
        (
            [
                ("2024-03-01", "2024-02-28", "2024-03-02"),
                (None, "0001-01-01", "9999-12-31"),
            ],
            [738_945.0, None],
        ),
    ],
    ids=["numbers", "dates"],
)
def test_a_table_is_plotted_with_its_intervals(
    monkeypatch: pytest.MonkeyPatch,
    cells: list[tuple[Any, Any, Any]],
    days: list[float | None],
) -> None:
    """By a library of plots that takes notes."""
    plotted: list[tuple[pd.Series, str, dict[str, Any]]] = []
    library = ModuleType(f"plots_of_{type(cells[0][1]).__name__}")
    library.plot = lambda series, kind, **how: plotted.append((series, kind, how))  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, library.__name__, library)
    numbers = ("value", "low", "high")
    table = Table(
        {
            "axes": [{"column": "when", "cells": [{"value": "a"}, {"value": "b"}]}],
            "rows": [
                {"cells": [name], **dict(zip(numbers, row, strict=True))}
                for name, row in zip("ab", cells, strict=True)
            ],
            "table": {"statistic": "median"},
        }
    )
    with pd.option_context("plotting.backend", library.__name__):
        table.plot()
    ((series, kind, how),) = plotted
    assert (kind, list(series.index)) == ("bar", ["a", "b"])
    assert series.astype(object).where(series.notna(), None).tolist() == days
    below, above = how["yerr"]
    assert below["a"] > 0 < above["a"]
