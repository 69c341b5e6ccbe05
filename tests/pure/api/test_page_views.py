"""What pages show: sentences, rows and links that templates print as they are."""

from types import SimpleNamespace
from typing import Any

import pytest
from markupsafe import Markup

from app.access.grants import Principal, Role
from app.api.pages import words
from app.api.pages.dataset_view import (
    declared_columns,
    grid_of,
    pairs_of,
    shown_uploads,
)
from app.api.pages.declaration_view import review_of, shown_step
from app.api.pages.home_view import budget_row, needs_of
from app.api.pages.ledger_view import entry_table
from app.api.pages.model_view import (
    compared_features,
    example_row,
    likeliest,
    named_model,
    row_fields,
)
from app.api.pages.pictures import part_class
from app.api.pages.rendering import _environment
from app.api.pages.views import (
    navigation,
    neighbours,
    shown_problem,
    signed_in_as,
    tree_of,
)
from app.core.errors import (
    CellsUnread,
    ColumnProblem,
    InvalidRequest,
    NotFound,
    NotWaiting,
    RowsInvalid,
    UnreadColumn,
)
from app.services.ledger.history import EntryPage, ListedEntry
from app.wire.attention import AttentionOut, BudgetOut
from app.wire.datasets import AccountOut, DatasetState, PaceOut
from app.wire.jobs import ListedJob
from app.wire.ledger import CellOut, DetailedEntryOut, PartitionBalance
from app.wire.models import FeatureUseOut
from app.wire.uploads import ListedUpload, UploadList
from grovekeeper_common.limit_words import LimitedBy
from grovekeeper_common.number_words import share_in_words
from grovekeeper_common.time_words import pace_in_words

SCHEMA: dict[str, Any] = {
    "features": [
        {"name": "age", "type": "integer", "lower": 0, "upper": 1200},
        {
            "name": "sex",
            "type": "categorical",
            "categories": ["</f>", "m"],
            "missing": True,
        },
    ],
    "label": {"name": "income", "classes": [str(number) for number in range(14)]},
}


def _caller(*roles: Role, name: str = "") -> Principal:
    return Principal("key_a", frozenset(roles), name=name)


@pytest.mark.parametrize(
    ("roles", "labels"),
    [
        ([], ["Home", "Datasets", "Jobs", "Models", "Ledger"]),
        ([Role.OWNER], ["Home", "Datasets", "Jobs", "Models", "Ledger", "Populations"]),
        (
            [Role.AUDITOR],
            ["Home", "Datasets", "Jobs", "Models", "Ledger", "Populations", "Acts"],
        ),
        (
            [Role.ADMIN],
            [
                "Home",
                "Datasets",
                "Jobs",
                "Models",
                "Ledger",
                "Populations",
                "Acts",
                "Administration",
            ],
        ),
    ],
)
def test_the_navigation_has_what_the_roles_open(
    roles: list[Role], labels: list[str]
) -> None:
    assert [link.label for link in navigation(_caller(*roles), "/")] == labels
    assert navigation(None, "/") == []


@pytest.mark.parametrize(
    ("path", "label"),
    [
        ("/", "Home"),
        ("/ui/datasets", "Datasets"),
        ("/ui/datasets/ds_a/rows", "Datasets"),
        ("/ui/evaluations/ev_a", "Models"),
        ("/ui/models", "Models"),
        ("/ui/ledger/ds_a", "Ledger"),
        ("/ui/approvals", "Home"),
        ("/ui/sign-in", None),
    ],
)
def test_one_link_is_that_of_the_page(path: str, label: str | None) -> None:
    current = [link.label for link in navigation(_caller(), path) if link.is_current]
    assert current == ([] if label is None else [label])


def test_a_caller_is_shown_by_name_with_its_global_roles() -> None:
    assert signed_in_as(_caller()) == "key_a"
    both = _caller(Role.OWNER, Role.AUDITOR, name="ada")
    assert signed_in_as(both) == "ada (auditor, owner)"
    assert signed_in_as(None) == ""


def test_a_refusal_names_the_wrong_fields_or_says_why() -> None:
    status, problem = shown_problem(InvalidRequest.at("/unit_form", "not-an-amount"))
    assert (status, problem.sentence) == (422, "")
    assert [field.name for field in problem.wrong_fields] == ["unit form"]
    assert shown_problem(InvalidRequest.at("", "x"))[1].wrong_fields[0].name == (
        "the form"
    )
    status, problem = shown_problem(NotFound("dataset"))
    assert (status, problem.wrong_fields) == (404, [])
    assert problem.sentence.endswith(".")
    assert "grant" in problem.advice


def test_columns_of_an_upload_that_do_not_match_are_named_or_placed() -> None:
    listed = [
        ColumnProblem("age", "out-of-form", 1_000, row=3, suspected="a comma"),
        ColumnProblem("", "not-declared", 2, positions=(2, 5)),
        ColumnProblem("", "not-closed", 1, line=7),
    ]
    columns = shown_problem(RowsInvalid(listed))[1].columns
    assert [
        (column.name, column.problem, column.cells, column.first_row)
        for column in columns
    ] == [
        ("age", "out of form: a comma", "1,000", "3"),
        ("number 2, 5 of the header", "not declared", "2", ""),
        ("the file", "not closed, line 7", "1", ""),
    ]
    assert not any(column.may_be_accepted for column in columns)
    (unread,) = shown_problem(CellsUnread([UnreadColumn("age", "unknown", 1, 50.0)]))[
        1
    ].columns
    assert (unread.cells, unread.may_be_accepted) == ("1 (50.0 %)", True)


def test_an_event_becomes_a_tree() -> None:
    sequence, parts, inner = tree_of(
        {"n": 2, "parts": [{"a": 1}, {"a": 2}], "inner": {"b": []}}
    )
    assert (sequence.name, sequence.text, sequence.events) == ("n", "2", ())
    assert parts.is_list
    assert [[node.text for node in event] for event in parts.events] == [["1"], ["2"]]
    assert not inner.is_list
    assert inner.events[0][0].text == "[]"


def test_an_end_of_a_chain_has_one_neighbour() -> None:
    found = [neighbours(sequence, 3) for sequence in (1, 2, 3)]
    assert [(it.before, it.after) for it in found] == [(None, 2), (1, 3), (2, None)]
    alone = neighbours(1, 1)
    assert (alone.before, alone.after) == (None, None)


def test_columns_are_shown_with_their_values() -> None:
    age, sex, label = declared_columns(SCHEMA)
    assert (age.values, sex.values) == ("0 to 1,200", "</f>, m, or missing")
    assert (label.name, label.type) == ("income", "label")
    assert label.values.endswith("10, 11 and 2 more")
    assert words.listed(range(12)).endswith("10, 11")


def _budget(
    largest: str, limited_by: LimitedBy, state: DatasetState = "active"
) -> BudgetOut:
    """A budget of 3 ε, of which 1.25 are charged and 0.5 reserved."""
    account = AccountOut(
        accountant="pure",
        unit="epsilon",
        cap="3",
        charged="1.25",
        reserved="0.5",
        remaining="1.25",
        available="1.25",
        limited_by=limited_by,
    )
    return BudgetOut(
        dataset="ds_a",
        dataset_name="census",
        account=account,
        pace=PaceOut(days=12, charged="0.5", ends_on="2027-01-29"),
        population="patients",
        protects="row",
        role="analyst",
        may_submit=True,
        largest_that_fits=largest,
        limited_by=limited_by,
        has_rows=True,
        state=state,
    )


@pytest.mark.parametrize(
    ("largest", "limited_by", "fits", "why"),
    [
        ("0", "frozen", "nothing", "limited by the freeze of the dataset"),
        ("0", "cap", "nothing", "limited by the cap"),
        ("0", "quota", "nothing", "limited by a quota of your key"),
        ("1.23456", "cap", "ε = 1.234", ""),
        ("1", "quota", "ε = 1", "limited by a quota of your key"),
    ],
)
def test_a_row_of_budgets_says_what_fits(
    largest: str, limited_by: LimitedBy, fits: str, why: str
) -> None:
    row = budget_row(_budget(largest, limited_by, "no-rows"))
    assert (row.fits, row.why) == (fits, why)
    parts: Any = _environment().get_template("parts.html").module
    shown = " ".join(Markup(parts.budget_table("", [row])).striptags().split())
    assert "1.25 of 3 ε charged, 0.5 reserved ends about 2027-01-29 1.25 ε" in shown
    assert "no rows yet analyst" in shown


def test_a_table_of_budgets_says_when_what_is_left_ends() -> None:
    source = '{% from "parts.html" import budget_table %}{{ budget_table("", [row]) }}'
    template = _environment().from_string(source)
    budget = _budget("1", "cap")
    said = "ends about <time>2027-01-29</time>"
    assert said in template.render(row=budget_row(budget))
    for pace in (
        None,
        budget.pace and budget.pace.model_copy(update={"ends_on": None}),
    ):
        without = budget.model_copy(update={"pace": pace})
        assert "ends about" not in template.render(row=budget_row(without))


def _job(**changes: Any) -> ListedJob:
    facts = dict.fromkeys(ListedJob.model_fields)
    price = {"accountant": "pure", "amount": "0.25", "unit": "epsilon"}
    price |= {"epsilon": "0.25", "delta": None}
    facts |= {
        "id": "jb_a",
        "dataset": "ds_a",
        "dataset_name": "census",
        "kind": "train",
        "algorithm": "rpf",
        "what": "rpf",
        "submitted_by": "key_b",
        "submitted_by_name": "ben",
        "state": "failed",
        "charged": True,
        "preparing": False,
        "progress": 0.0,
        "trees_done": 0,
        "n_trees": 8,
        "reservation_id": "rs_a",
        "price": price,
        "submitted_at": "2026-11-29T09:18:00.000000Z",
    }
    return ListedJob.model_validate(facts | changes)


def test_a_release_of_two_accounts_states_both_prices() -> None:
    parts: Any = _environment().get_template("parts.html").module
    second = {"dataset": "ds_b", "dataset_name": "clinic", "reservation_id": "rs_b"}
    job = _job(unlabelled={**second, "price": _job().model_dump()["price"]})
    words = " ".join(Markup(parts.asked_for(job)).striptags().split())
    assert "0.25 ε on census, 0.25 ε on clinic Submitted by ben" in words
    assert "Price 0.25 ε Submitted by" in Markup(parts.asked_for(_job())).striptags()


def _attention(**changes: Any) -> AttentionOut:
    lists = "approvals", "proposals", "held", "failed", "keys", "recent", "budgets"
    facts: dict[str, Any] = {name: [] for name in (*lists, "ledgers")}
    facts |= {"at": "2026-11-29T14:32:00.000000Z"}
    facts |= {"jobs": {"waiting": 0, "queued": 0, "running": 0}}
    facts |= {"ledger_counts": {"accounts": 0, "to_verify": 0}}
    return AttentionOut.model_validate(facts | changes)


def test_what_needs_a_caller_is_said_in_words_with_the_amount() -> None:
    assert needs_of(_attention()) == []
    proposal = {"dataset": "ds_a", "dataset_name": "census", "by": "key_c"}
    proposal |= {"by_name": None, "at": "2026-11-28T10:00:00.000000Z"}
    key = {"id": "key_d", "name": "etl", "expires_at": "2026-12-01T00:00:00.000000Z"}
    verified = {"verdict": "VERIFIED", "entries": 12, "entries_since": 1}
    verified |= {"checkpoint": None, "by": None, "by_name": None, "at": "2026-11-20"}
    refuted = verified | {"verdict": "NOT VERIFIED", "entries": None}
    ledger = {"account": "ds_a", "account_name": "census", "entries": 13}
    ledger |= {"not_covered": 13}
    found = _attention(
        ledgers=[
            ledger | {"verification": verification | {"entries_since": None}}
            for verification in (verified, refuted)
        ],
        proposals=[proposal],
        held=[_job(state="queued", charged=False, held_by="no-room")],
        failed=[_job(), _job(charged=False, name="trial", submitted_by_name=None)],
        keys=[key],
        budgets=[_budget("0", "cap"), _budget("0", "frozen"), _budget("1", "cap")],
    )
    needs = needs_of(found)
    assert [need.title for need in needs] == [
        "Decide: looser rules of census",
        "Not started: rpf",
        "Failed: rpf, 0.25 ε stays charged",
        "Failed: trial, nothing was charged",
        "No job on all of census fits any more",
        "The ledger of census was not verified",
        "Key etl ends on 2026-12-01 00:00 UTC",
    ]
    assert "by key_c" in needs[0].sentence
    assert "no room for its output" in needs[1].sentence
    assert "by ben" in needs[2].sentence
    assert "by key_b" in needs[3].sentence
    assert needs[5].sentence.startswith("NOT VERIFIED, by the service itself")
    assert [need.is_decision for need in needs] == [True, *[False] * 6]


def test_a_list_that_may_be_cut_is_not_counted_as_whole() -> None:
    parts: Any = _environment().get_template("parts.html").module
    counted = [parts.number_of([0] * n, 20, "no") for n in (0, 19, 20, 25)]
    assert counted == ["no", "19", "20 or more", "25 or more"]


def test_a_problem_whose_title_says_everything_is_said_once() -> None:
    shown = shown_problem(NotWaiting())[1]
    assert (shown.title, shown.sentence) == (
        "The job does not wait for a decision",
        "",
    )


def _cells(*names: int) -> list[CellOut]:
    return [
        CellOut(cell=name, charged="1", reserved="0", remaining="3") for name in names
    ]


def test_a_grid_names_its_pairs_and_links_to_others() -> None:
    partitions = [
        PartitionBalance(name=name, kind="hash", cells=_cells(0, 1)) for name in "abc"
    ]
    pairs = pairs_of([*partitions, PartitionBalance(name="d", kind="epoch", cells=[])])
    assert pairs == [("a", "b"), ("a", "c"), ("b", "c")]
    grid = grid_of(pairs, ("a", "c"), [(0, _cells(5, 6)), (1, _cells(5, 6))], "4")
    assert (grid.label, grid.columns) == ("a and c", ["a", "5", "6"])
    assert [link.pair for link in grid.links if link.is_current] == ["a,c"]
    cell = grid.rows[1].cells[0]
    assert (cell.left, cell.colour) == ("3", "heat-1")
    assert cell.amounts == "1 charged, 0 reserved, 3 left"
    alone = grid_of(pairs[:1], pairs[0], [(0, _cells(5))], "4")
    assert alone.links == []


def test_uploads_are_counted_for_owners_alone() -> None:
    epochs = [
        {"epoch": f"ep_{name}", "uploaded_at": "2030", "erased_at": erased_at}
        for name, erased_at in (("a", None), ("b", "2031"))
    ]
    dataset = {"epochs": epochs}
    assert shown_uploads(dataset, None).columns == ["Time (UTC)", "Upload", "State"]
    counted = UploadList(
        dataset="ds_a", dataset_name="a",
        uploads=[ListedUpload(epoch="ep_a", uploaded_at="2030", erased_at=None, rows=1_000)],
        next=None,
    )  # fmt: skip
    shown = shown_uploads(dataset, counted)
    assert "Rows stored" in shown.columns
    assert [upload.n_rows for upload in shown.uploads] == ["1,000", "–"]
    assert [upload.erased_at for upload in shown.uploads] == [None, "2031"]


@pytest.mark.parametrize(
    ("step", "carried"),
    [
        ("columns", ["epsilon", "p0.name"]),
        ("budget", ["name", "f0.name", "f12.lower", "l0.name"]),
        (
            "review",
            ["name", "f0.name", "f12.lower", "l0.name", "epsilon", "p0.name"],
        ),
    ],
)
def test_a_step_carries_the_fields_of_other_steps(
    step: str, carried: list[str]
) -> None:
    names = ["go", "step", "name", "f0.name", "f12.lower", "l0.name", "epsilon", "p0.name"]  # fmt: skip
    form = dict.fromkeys(names, "x")
    assert [name for name, _ in shown_step(step, form).carried] == carried


def test_a_review_says_what_is_public_for_ever() -> None:
    form = {
        "name": "visits", "epsilon": "2", "delta": "1e-6", "protects": "label", "unit.column": "person",
        "unit.max_rows": "3",
    }  # fmt: skip
    columns = [
        {"name": "age", "type": "integer", "lower": "0", "upper": "9", "bounds": "natural", "missing": "yes"},
        {"name": "sex", "type": "categorical", "categories": "f\nm", "missing": ""},
    ]  # fmt: skip
    blank = dict.fromkeys(("classes", "cuts", "lower", "upper", "whole"), "")
    labels = [
        {**blank, "name": "income", "classes": "no\nyes"},
        {**blank, "name": "days", "lower": "0", "upper": "60", "whole": "yes"},
    ]
    review = review_of(form, columns, labels, "gdp", None)
    assert dict(review.facts) == {
        "Name": "visits",
        "Account": "gdp (ε = 2, δ = 1e-6)",
        "Protected": "labels of one value of person (text), at most 3",
        "Size": "not declared",
        "Cells": "none",
    }
    assert [values for _, _, values in review.columns] == [
        "0 to 9 (natural), or empty",
        "f, m",
        "no, yes",
        "a whole number from 0 to 60",
    ]
    assert dict(review_of({}, [], [], "pure", None).facts)["Account"] == "pure (ε = )"


def _entry(**members: Any) -> DetailedEntryOut:
    given = {
        "sequence": 1, "kind": "cap", "amount": "1", "scope": {"shard": [1]}, "event": None, "job_id": None,
        "actor": "key_a", "at": "2030", "previous_hash": "", "hash": "", "details": {},
    }  # fmt: skip
    return DetailedEntryOut.model_validate(given | members)


def test_entries_have_a_running_balance_where_none_is_left_out() -> None:
    def table(listed: ListedEntry, kind: str) -> tuple[list[str], str]:
        page = EntryPage([listed], {}, {"shard": 1}, None)
        made = entry_table(page, kind, {"ds_a": "census"})
        assert made is not None
        return list(made.columns), made.about_balances

    columns, words_ = table(ListedEntry(_entry(), None, "1", "0"), "dataset")
    assert columns[3:6] == ["Charged after", "Reserved after", "Cells"]
    assert "shard=1, the tightest cell now;" in words_
    columns, words_ = table(ListedEntry(_entry(), None, load="1"), "population")
    assert columns[3:5] == ["All members after", "Member"]
    columns, words_ = table(ListedEntry(_entry(), None), "dataset")
    assert columns[3] == "Cells"
    assert words_.endswith("search by cell or not at all.")
    assert entry_table(EntryPage([], {}, {}, None), "dataset", {}) is None


def test_an_entry_says_what_it_is_about() -> None:
    details = {
        "member": {"dataset": "ds_a", "sequence": 4},
        "reason": "the board agreed",
        "continues": {"dataset": "ds_b"},
        "purpose": "a study",
    }
    page = EntryPage([ListedEntry(_entry(details=details), None)], {}, {}, None)
    of_population = entry_table(page, "population", {"ds_a": "census"})
    of_dataset = entry_table(page, "dataset", {})
    assert of_population is not None
    assert of_dataset is not None
    (row,) = of_population.rows
    assert row.member is not None
    assert (row.member.name, row.member.sequence, row.cells) == ("census", 4, "")
    (row,) = of_dataset.rows
    assert (row.member, row.cells) == (None, "shard=1")
    assert (row.reason, row.continued, row.purpose) == (
        "the board agreed",
        "ds_b",
        "a study",
    )


def test_the_form_for_a_row_has_what_was_sent() -> None:
    age, sex = row_fields(SCHEMA, {"age": "39"})
    assert (age.text, age.categories, age.bounds) == ("39", None, "0 to 1200")
    assert (sex.text, sex.may_be_missing) == ("", True)


def test_an_example_of_a_row_is_python_and_no_markup() -> None:
    assert example_row(SCHEMA) == '{"age": 0, "sex": "\\u003c/f\\u003e"}'


def test_the_likeliest_classes_are_shown() -> None:
    rows = likeliest((str(number), number / 190) for number in range(20))
    assert [name for name, _ in rows] == list(map(str, range(19, 9, -1)))


def test_an_alias_names_this_model_another_or_none() -> None:
    named = [
        named_model(it, "md_a", {"md_b": "spring"}) for it in ("md_a", "md_b", None)
    ]
    assert [(it.name, it.is_shown) for it in named] == [
        ("md_a", True),
        ("spring", False),
        ("", False),
    ]


@pytest.mark.parametrize(
    ("count", "colour"),
    [(-5, 0), (0, 0), (0.1, 1), (4, 2), (7, 3), (10, 3), (99, 3)],
)
def test_a_noisy_count_has_the_colour_of_its_part(count: float, colour: int) -> None:
    assert part_class(count, 10) == f"heat-{colour}"


def test_a_query_keeps_what_was_searched() -> None:
    fields = {"name": "a b/&", "kind": ""}
    assert words.query_of(fields) == "name=a%20b/%26"
    assert words.query_of({}, "x=") == "cursor=x%3D"


def test_models_side_by_side_show_a_feature_in_every_model_that_looks_at_it() -> None:
    """The first dozen of each model are shown; a dash means that no split looks at it."""
    names = [f"f{place}" for place in range(20)]

    def model(order: list[str]) -> Any:
        weights = [0.5**place for place in range(1, len(order) + 1)]
        used = [
            FeatureUseOut(name=name, n_splits=1, importance=weight)
            for name, weight in zip(order, weights, strict=True)
        ]
        return SimpleNamespace(features=used)

    compared = compared_features([model(names[:19]), model(names[::-1])])
    words = {feature.name: [use for _, use in feature.uses] for feature in compared}
    assert words.keys() == {*names}
    assert words["f19"] == ["–", "50.0 %"]
    assert words["f18"] == [share_in_words(0.5**19), "25.0 %"]


def test_the_pace_of_a_budget_is_a_sentence_about_its_last_days() -> None:
    pace = {"days": 12, "charged": "0.5", "ends_on": "2027-01-29"}
    said = "0.5 ε was charged in the last 12 days. At this pace, what is left"
    assert pace_in_words(pace, "ε") == f"{said} ends about 2027-01-29."
    endless = pace | {"ends_on": None}
    assert pace_in_words(endless, "ε") == f"{said} lasts for more than ten years."
    assert pace_in_words(None, "ε") == ""
