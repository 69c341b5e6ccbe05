"""The page on which an owner declares a dataset: the API's rules beside each field, and
nothing stored too early.
"""

import json
from typing import Any

import pytest

from grovekeeper_forests.amounts import NotAnAmount
from tests.support.databases import on_one_idle_server, on_one_server
from tests.support.operations import new_population
from tests.support.pages import fields as form_fields
from tests.support.pages import hidden, signed_in, text_of
from tests.support.server import Server, declaration, new_idempotency_key

PATH = "/ui/datasets/new"


def _dictionary(**changes: Any) -> str:
    return json.dumps(declaration(**changes))


def _problem(page: str, field: str) -> str:
    return page.partition(f'id="{field}-problem" data-part>')[2].partition("</p>")[0]


@on_one_server
def test_a_declaration_in_three_steps_is_that_of_the_api_and_is_made_once(
    server: Server,
) -> None:
    body = declaration(
        budget={"accountant": "gdp", "epsilon": "1.5", "delta": "1e-6"},
        public_size=30_000,
        partitions=[{"name": "shard", "kind": "hash", "cells": 4}],
    )
    browser = signed_in(server, server.caller("owner"))
    columns = browser.post(
        PATH, data={"go": "read", "dictionary": json.dumps(body), "once": "a" * 22}
    )
    budget = browser.post(PATH, data={**form_fields(columns.text), "go": "budget"})
    review = browser.post(PATH, data={**form_fields(budget.text), "go": "review"})
    assert [page.status_code for page in (columns, budget, review)] == [200, 200, 200]
    assert "guesses right at most" in budget.text
    assert "Public for ever" in review.text
    assert "30,000 rows, as an order of magnitude" in review.text
    assert "unless the dataset is in a population" in " ".join(review.text.split())
    form = {**hidden(review.text), "go": "declare"}
    declared = [browser.post(PATH, data=form) for _ in range(2)]
    assert [answer.status_code for answer in declared] == [303, 303]
    path = declared[0].headers["Location"].removeprefix("/ui")
    assert declared[1].headers["Location"] == f"/ui{path}"

    shown, wanted = (
        server.admin.http.get(path).json(),
        server.declared(**{**body, "name": f"{body['name']}-api"}),
    )
    for fact in ("schema", "privacy_unit", "protects", "partitions", "public_size"):
        assert shown[fact] == wanted[fact], fact
    assert shown["account"] == wanted["account"]
    taken = browser.post(PATH, data={**form, "once": "b" * 22})
    assert taken.status_code == 422
    assert "name: " in taken.text


@on_one_idle_server
def test_a_column_of_dates_does_not_become_whole_numbers_without_a_word(
    idle_server: Server,
) -> None:
    table = {
        "fields": [
            {"name": "born", "type": "datetime"},
            {"name": "age", "type": "integer"},
        ]
    }
    browser = signed_in(idle_server, idle_server.admin)
    read = browser.post(PATH, data={"go": "read", "dictionary": json.dumps(table)})
    shown = text_of(read)
    assert (
        "born: numeric, integer, date or categorical (the dictionary says datetime); or leave the column out"
        in shown
    )
    assert "The form says whole numbers until you change it." in shown
    assert "age: numeric" not in shown


@on_one_server
@pytest.mark.parametrize("sees", [True, False])
def test_a_declaration_that_the_form_reads_keeps_its_population(
    server: Server, sees: bool
) -> None:
    """Also one of a population that the key does not see, which the check of the
    declaration says.
    """
    population = server.admin.http.post("/populations", json=new_population()).json()[
        "name"
    ]
    browser = signed_in(server, server.admin if sees else server.caller("owner"))
    body = declaration(population=population)
    columns = browser.post(
        PATH, data={"go": "read", "dictionary": json.dumps(body), "once": "p" * 22}
    )
    budget = browser.post(PATH, data={**form_fields(columns.text), "go": "budget"})
    assert form_fields(budget.text)["population"] == population
    review = browser.post(PATH, data={**form_fields(budget.text), "go": "review"})
    declared = browser.post(PATH, data={**hidden(review.text), "go": "declare"})
    assert declared.status_code == (303 if sees else 422)
    if sees:
        path = declared.headers["Location"].removeprefix("/ui")
        assert server.admin.http.get(path).json()["population"] == population
    else:
        assert _problem(review.text, "population")


def test_a_declaration_that_the_form_reads_keeps_its_texts_for_empty_cells(
    server: Server,
) -> None:
    browser = signed_in(server, server.admin)
    body = declaration()
    body["schema"]["missing_values"] = ["NA", "not known"]
    columns = browser.post(
        PATH, data={"go": "read", "dictionary": json.dumps(body), "once": "m" * 22}
    )
    budget = browser.post(PATH, data={**form_fields(columns.text), "go": "budget"})
    review = browser.post(PATH, data={**form_fields(budget.text), "go": "review"})
    assert "Empty cells also written NA not known" in text_of(review)
    declared = browser.post(PATH, data={**hidden(review.text), "go": "declare"})
    assert declared.status_code == 303
    path = declared.headers["Location"].removeprefix("/ui")
    schema = server.admin.http.get(path).json()["schema"]
    assert schema["missing_values"] == ["NA", "not known"]


@on_one_idle_server
def test_what_the_form_has_no_field_for_is_named(idle_server: Server) -> None:
    sizes = [{"cell": cell, "rows": 10} for cell in ("a", "OTHER")]
    budget = {
        "accountant": "zcdp",
        "epsilon": "1",
        "delta": "1e-6",
        "delta_set_aside": "1e-7",
    }
    partitions = [
        {
            "name": "ward",
            "kind": "column",
            "column": "c",
            "categories": ["a"],
            "sizes": sizes,
        }
    ]
    dictionary = _dictionary(budget=budget, partitions=partitions)
    read = signed_in(idle_server, idle_server.admin).post(
        PATH, data={"go": "read", "dictionary": dictionary}
    )
    shown = text_of(read)
    assert (
        "To confirm: the part of δ that is set aside: this form has no field for it"
        in shown
    )
    assert (
        "To confirm: the sizes of the cells of ward: this form has no field for it"
        in shown
    )


@on_one_idle_server
@pytest.mark.parametrize(
    "changes",
    [
        {"budget": "3"},
        {"privacy_unit": 5},
        {"partitions": ["x"]},
        {"partitions": 5},
        {"protects": 5},
    ],
)
def test_a_member_of_another_form_says_nothing(
    idle_server: Server, changes: dict[str, Any]
) -> None:
    dictionary = _dictionary(**changes)
    read = signed_in(idle_server, idle_server.admin).post(
        PATH, data={"go": "read", "dictionary": dictionary}
    )
    assert read.status_code == 200


@on_one_idle_server
def test_a_problem_stands_beside_the_field_that_it_names(idle_server: Server) -> None:
    schema = {
        "features": [
            {"name": "age", "type": "integer", "lower": 120, "upper": 0},
            {"name": "age", "type": "numeric", "lower": 0},
            {"name": "sex", "type": "categorical", "categories": []},
        ],
        "label": {"name": "income", "classes": ["low"]},
    }
    browser = signed_in(idle_server, idle_server.admin)
    fields = form_fields(
        browser.post(
            PATH, data={"go": "read", "dictionary": _dictionary(schema=schema)}
        ).text
    )
    page = browser.post(PATH, data={**fields, "go": "budget"})
    assert page.status_code == 422
    assert _problem(page.text, "f1.name") == "Occurs twice."
    assert _problem(page.text, "f1.upper") == "Needed."
    assert _problem(page.text, "f2.categories") == "Needs more values."
    assert _problem(page.text, "l0.classes") == "Needs more values."
    fields |= {
        "f1.name": "height",
        "f1.upper": "2",
        "f2.categories": "a\nb",
        "l0.classes": "low\nhigh",
    }
    page = browser.post(PATH, data={**fields, "live": "1"})
    assert _problem(page.text, "f0.lower") == "Larger than the upper bound."
    assert (
        browser.post(PATH, data={**fields, "f0.lower": "0", "go": "budget"}).status_code
        == 200
    )


@on_one_idle_server
@pytest.mark.parametrize(
    ("field", "text", "problem"),
    [
        ("epsilon", "1_0", f"Not an amount. Accepted: {NotAnAmount.accepted}."),
        ("delta", "", f"Not an amount. Accepted: {NotAnAmount.accepted}."),
        ("public_size", "many", "Not a whole number."),
        (
            "unit.max_rows",
            "3",
            "More than one row needs a column that names the person.",
        ),
        ("p0.cells", "", "Needed."),
    ],
)
def test_the_budget_is_checked_by_the_rules_of_the_api(
    idle_server: Server, field: str, text: str, problem: str
) -> None:
    budget = {"accountant": "zcdp", "epsilon": "1", "delta": "1e-6"}
    dictionary = _dictionary(
        budget=budget, partitions=[{"name": "shard", "kind": "hash", "cells": 4}]
    )
    browser = signed_in(idle_server, idle_server.admin)
    fields = form_fields(
        browser.post(PATH, data={"go": "read", "dictionary": dictionary}).text
    )
    fields = form_fields(browser.post(PATH, data={**fields, "go": "budget"}).text)
    page = browser.post(PATH, data={**fields, field: text, "go": "review"})
    assert page.status_code == 422
    assert _problem(page.text, field) == problem


@on_one_idle_server
@pytest.mark.parametrize(
    ("accountant", "unit", "reviewed"),
    [
        ("zcdp", "rho", "a cap of 0.5 ρ (ρ = 0.5, δ = 1e-6)"),
        ("gdp", "mu", "a cap of 0.25 μ² (μ = 0.5, δ = 1e-6)"),
    ],
)
def test_a_cap_may_be_typed_in_the_unit_of_the_account(
    idle_server: Server, accountant: str, unit: str, reviewed: str
) -> None:
    budget = {"accountant": accountant, unit: "0.5", "delta": "1e-6"}
    browser = signed_in(idle_server, idle_server.admin)
    read = browser.post(
        PATH, data={"go": "read", "dictionary": _dictionary(budget=budget)}
    )
    page = browser.post(PATH, data={**form_fields(read.text), "go": "budget"})
    fields = form_fields(page.text)
    assert (fields["epsilon"], fields["cap_unit"]) == ("0.5", "own")
    page = browser.post(PATH, data={**fields, "go": "review"})
    assert reviewed in text_of(page)
    too_much = browser.post(PATH, data={**fields, "epsilon": "9e9", "go": "review"})
    assert too_much.status_code == 422
    assert _problem(too_much.text, "epsilon").startswith("Too large")


@on_one_idle_server
def test_a_pure_account_takes_no_cap_in_another_unit(idle_server: Server) -> None:
    browser = signed_in(idle_server, idle_server.admin)
    dictionary = _dictionary(budget={"accountant": "pure", "epsilon": "1"})
    read = browser.post(PATH, data={"go": "read", "dictionary": dictionary})
    page = browser.post(PATH, data={**form_fields(read.text), "go": "budget"})
    own = {**form_fields(page.text), "cap_unit": "own", "go": "review"}
    refused = browser.post(PATH, data=own)
    assert refused.status_code == 422
    assert _problem(refused.text, "epsilon").startswith("ρ is of zcdp accounts")


@on_one_idle_server
def test_fields_that_nobody_touched_have_no_problem_yet(idle_server: Server) -> None:
    browser = signed_in(idle_server, idle_server.admin)
    begun = browser.get(PATH)
    assert 'aria-invalid="true"' not in begun.text
    typed = browser.post(
        PATH, data={**form_fields(begun.text), "f0.lower": "x", "live": "1"}
    ).text
    assert _problem(typed, "f0.lower") == "Not a number."
    assert _problem(typed, "name") == ""


@on_one_idle_server
def test_rows_of_the_form_are_added_and_removed(idle_server: Server) -> None:
    browser = signed_in(idle_server, idle_server.admin)
    fields = form_fields(
        browser.post(PATH, data={"go": "read", "dictionary": _dictionary()}).text
    )
    names = [
        text
        for name, text in fields.items()
        if name.startswith("f") and name.endswith(".name")
    ]
    more = form_fields(browser.post(PATH, data={**fields, "go": "add:f"}).text)
    assert more[f"f{len(names)}.name"] == ""
    fewer = form_fields(browser.post(PATH, data={**more, "go": "remove:f0"}).text)
    assert [
        text
        for name, text in fewer.items()
        if name.startswith("f") and name.endswith(".name")
    ] == [*names[1:], ""]


@on_one_idle_server
@pytest.mark.parametrize("text", ["age,sex\n39,Male\n", "{}", "["])
def test_a_file_that_is_no_dictionary_changes_nothing(
    idle_server: Server, text: str
) -> None:
    before = idle_server.footprint()
    answer = signed_in(idle_server, idle_server.admin).post(
        PATH, data={"go": "read", "dictionary": text}
    )
    assert answer.status_code == 422
    assert _problem(answer.text, "dictionary")
    assert idle_server.footprint() == before


@on_one_idle_server
def test_only_keys_that_may_declare_see_the_page(idle_server: Server) -> None:
    assert (
        signed_in(idle_server, idle_server.caller("auditor")).get(PATH).status_code
        == 403
    )
    assert (
        signed_in(idle_server, idle_server.caller("auditor"))
        .post(PATH, data={"go": "declare"})
        .status_code
        == 403
    )


@on_one_idle_server
def test_the_page_says_that_an_account_goes_on_or_why_it_does_not(
    idle_server: Server,
) -> None:
    body = declaration(budget={"accountant": "pure", "epsilon": "3"})
    browser = signed_in(idle_server, idle_server.admin)
    erased = idle_server.admin.http.post("/datasets", json=body).json()["id"]
    charge = {
        "description": "a mean",
        "per": "row",
        "declared": {"adjacency": "add_remove", "epsilon": "1"},
    }
    headers = new_idempotency_key()
    idle_server.admin.http.post(
        f"/ledger/{erased}/reservations", json=charge, headers=headers
    ).raise_for_status()
    idle_server.admin.http.delete(f"/datasets/{erased}").raise_for_status()

    read = browser.post(
        PATH, data={"go": "read", "dictionary": json.dumps(body), "once": "c" * 22}
    )
    assert read.status_code == 200
    budget = browser.post(PATH, data={**form_fields(read.text), "go": "budget"})
    higher = browser.post(
        PATH, data={**form_fields(budget.text), "epsilon": "4", "go": "review"}
    )
    assert higher.status_code == 422
    assert "must not differ from it in: cap" in _problem(higher.text, "other_people")
    review = browser.post(
        PATH, data={**form_fields(higher.text), "epsilon": "3", "go": "review"}
    )
    assert review.status_code == 200
    assert (
        f"the account of the erased dataset <code>{erased}</code>: 1 ε is spent, 2 left"
        in review.text
    )
    said = {
        **form_fields(budget.text),
        "epsilon": "4",
        "other_people": "the patients of 2027",
        "go": "review",
    }
    stated = browser.post(PATH, data=said)
    assert "the patients of 2027" in stated.text
    made = browser.post(PATH, data={**hidden(stated.text), "go": "declare"})
    path = made.headers["Location"].removeprefix("/ui")
    assert idle_server.admin.http.get(path).json()["account"]["remaining"] == "4"
