"""Tests the admission of rows against a small model, over random uploads of which some
fail.
"""

import tempfile
from collections import Counter
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from app.core.sealed_files import DataKey
from app.datasets import admission

pytestmark = pytest.mark.property

KEY = DataKey(bytes(range(32)))
UNITS = ["ann", "ben", "cleo", "dan"]
IDS = dict(
    zip(UNITS, admission.unit_row_ids(UNITS, dataset_key=KEY.secret), strict=True)
)
UPLOADS = st.lists(
    st.tuples(
        st.lists(st.lists(st.sampled_from(UNITS), max_size=6), max_size=3),
        st.sampled_from(["kept", "lost", "cut"]),
    ),
    max_size=8,
)


@settings(max_examples=60, deadline=None)
@given(uploads=UPLOADS, max_rows=st.integers(1, 4))
def test_a_row_is_admitted_while_its_unit_has_fewer_rows_than_the_limit(
    uploads: list[tuple[list[list[str]], str]], max_rows: int
) -> None:
    admitted_before: Counter[str] = Counter()
    committed: list[str] = []
    with tempfile.TemporaryDirectory() as folder:
        for number, (blocks, end) in enumerate(uploads):
            admitted_now: Counter[str] = Counter()
            with admission.opened_home_book(
                Path(folder), "ds_a", max_rows=max_rows, key=KEY
            ) as book:
                book.begin(f"ep_{number}", committed=committed)
                for block in blocks:
                    admitted = book.admit([IDS[unit] for unit in block])
                    for unit, is_admitted in zip(block, admitted, strict=True):
                        assert is_admitted == (
                            admitted_before[unit] + admitted_now[unit] < max_rows
                        )
                        admitted_now[unit] += bool(is_admitted)
                if end != "cut":
                    book.commit()
            if end == "kept":
                committed.append(f"ep_{number}")
                admitted_before += admitted_now


@settings(max_examples=60, deadline=None)
@given(
    uploads=st.lists(st.lists(st.sampled_from(UNITS), max_size=8), max_size=5),
    max_rows=st.integers(1, 3),
)
def test_other_units_do_not_decide_about_a_row(
    uploads: list[list[str]], max_rows: int
) -> None:
    """Stability: removing one unit changes no decision about rows of other units."""
    removed = UNITS[0]
    decisions = [
        [(unit, is_admitted) for unit, is_admitted in upload if unit != removed]
        for upload in _admitted(uploads, max_rows)
    ]
    assert decisions == _admitted(
        [[unit for unit in upload if unit != removed] for upload in uploads], max_rows
    )


def _admitted(uploads: list[list[str]], max_rows: int) -> list[list[tuple[str, bool]]]:
    decisions: list[list[tuple[str, bool]]] = []
    with tempfile.TemporaryDirectory() as folder:
        for number, upload in enumerate(uploads):
            with admission.opened_home_book(
                Path(folder), "ds_a", max_rows=max_rows, key=KEY
            ) as book:
                book.begin(
                    f"ep_{number}",
                    committed=[f"ep_{earlier}" for earlier in range(number)],
                )
                admitted = book.admit([IDS[unit] for unit in upload])
                book.commit()
            decisions.append(
                [
                    (unit, bool(is_admitted))
                    for unit, is_admitted in zip(upload, admitted, strict=True)
                ]
            )
    return decisions
