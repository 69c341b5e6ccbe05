"""Amounts as people and files spell them, on every way in: a refusal says the form that
is accepted, with an example, and the least or the largest amount.
"""

import json
import re
from collections.abc import Callable
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pytest
from typer.testing import CliRunner

from app.cli.main import app as grovekeeper
from tests.support.databases import on_one_idle_server
from tests.support.pages import hidden, signed_in
from tests.support.server import Server, declaration, new_idempotency_key, training

pytestmark = on_one_idle_server

FORM = (
    "a decimal number such as 0.5 or 1e-6: digits, with a point and no sign or blank, at "
    "most 12 before the point and 18 behind it"
)
ABOVE_ZERO = "above 0, such as 0.5 or 1e-6"
NO_AMOUNTS = {
    ".5": FORM, "5.": FORM, "0,5": FORM, "+1": FORM, "-1": FORM, "٣": FORM, "NaN": FORM, "inf": FORM, "1 000": FORM,
    "1_000": FORM, "½": FORM, "0x1": FORM, "ε 1": FORM, "1e": FORM, "0." + "1" * 19: FORM, "1" * 13: FORM,
    "1e-999": FORM, "0": ABOVE_ZERO, "0.0": ABOVE_ZERO, "0e5": ABOVE_ZERO,
}  # fmt: skip
"""Spellings with the form that their refusal states."""
AMOUNTS = ["1e-3", "1E-3", "0.001", "00.001", "0.0010"]
"""Spellings of a thousandth."""
AROUND = [" {}", "{} ", "\t{}\t"]

Answer = tuple[bool, str]
"""Whether an amount was accepted, and the words of the answer."""
Way = Callable[[Server, str, str], Answer]
"""Sends an amount to a server, about a dataset."""

RULES: dict[str, Any] = {
    "largest_job": None, "approval_above": None, "quotas": [], "frozen": False, "erase_rows_at": None,
}  # fmt: skip


def _sent(server: Server, method: str, path: str, body: object) -> Answer:
    answer = server.admin.http.request(method, path, json=body)
    if answer.is_success:
        return True, ""
    assert answer.status_code == 422, answer.text
    [error] = answer.json()["errors"]
    return False, ", ".join(error.get("accepted", ()))


def _of_json(method: str, path: str, body: Callable[[Server, str, str], object]) -> Way:
    return lambda server, dataset, text: _sent(
        server, method, path.format(dataset), body(server, dataset, text)
    )


def _budget(_: Server, __: str, text: str) -> object:
    return declaration(budget={"accountant": "pure", "epsilon": text})


def _quota(server: Server, _: str, text: str) -> object:
    return RULES | {"quotas": [{"keys": [server.admin.id], "cap": text}]}


BY_JSON: dict[str, Way] = {
    "a job": _of_json("POST", "/plans", lambda _, dataset, text: training(dataset, epsilon=text)),
    "a budget": _of_json("POST", "/declarations", _budget),
    "a cap": _of_json("POST", "/ledger/{}/cap", lambda _, __, text: {"cap": text, "reason": "a test"}),
    "the largest job": _of_json("PUT", "/datasets/{}/rules", lambda _, __, text: RULES | {"largest_job": text}),
    "a quota": _of_json("PUT", "/datasets/{}/rules", _quota),
    "a declared loss": _of_json(
        "POST", "/ledger/{}/quotes",
        lambda _, __, text: {
            "description": "x", "per": "row", "declared": {"adjacency": "add_remove", "epsilon": text},
        },
    ),
    "statistics": _of_json(
        "POST", "/datasets/{}/statistics/quote",
        lambda _, __, text: {"tables": [{"statistic": "count"}], "epsilon": text},
    ),
    "a webhook": _of_json(
        "POST", "/datasets/{}/webhooks",
        lambda _, __, text: {"url": "https://example.org/x", "events": ["budget.low"], "threshold": text},
    ),
}  # fmt: skip


def _run(server: Server, *typed: str) -> Answer:
    environ = {
        "GROVEKEEPER_URL": server.url, "GROVEKEEPER_API_KEY": server.admin.key, "COLUMNS": "999",
    }  # fmt: skip
    done = CliRunner().invoke(grovekeeper, typed, env=environ)
    if done.exit_code == 0:
        return True, ""
    assert done.exit_code == 2, done.output
    return False, done.stderr.partition("; accepted: ")[2]


def _of_file(server: Server, _: str, text: str) -> Answer:
    with TemporaryDirectory() as folder:
        file = Path(folder, "declaration.json")
        file.write_text(json.dumps(_budget(server, "", text)))
        return _run(server, "datasets", "create", str(file))


BY_COMMAND: dict[str, Way] = {
    "plan": lambda it, dataset, text: _run(it, "plan", dataset, f"--epsilon={text}"),
    "cap": lambda it, dataset, text: _run(it, "ledger", "cap", dataset, "--reason", "a test", "--", text),
    "rules": lambda it, dataset, text: _run(it, "rules", "set", dataset, f"--approval-above={text}"),
    "quota": lambda it, dataset, text: _run(it, "rules", "set", dataset, f"--quota={it.admin.id}={text}"),
    "charge": lambda it, dataset, text: _run(
        it, "ledger", "charge", dataset, "--quote", "--description", "x", f"--epsilon={text}"
    ),
    "count": lambda it, dataset, text: _run(it, "count", dataset, "--quote", f"--epsilon={text}"),
}  # fmt: skip


def _shown(server: Server, method: str, path: str, **options: Any) -> Answer:
    browser = signed_in(server, server.admin)
    answer = browser.request(method, path, follow_redirects=True, **options)
    found = re.search(r"Accepted: ([^<]*)\.<", " ".join(answer.text.split()))
    return answer.is_success and found is None, found[1] if found else ""


def _form(path: str, field: str, **others: str) -> Way:
    def send(server: Server, dataset: str, text: str) -> Answer:
        page = path.format(dataset)
        names = hidden(
            signed_in(server, server.admin).get(page.rpartition("/")[0]).text
        )
        once = {"once": new_idempotency_key()["Idempotency-Key"]}
        form = {**names, **once, **others, field: text}
        return _shown(server, "POST", page, data=form)

    return send


def _query(path: str, **others: str) -> Way:
    return lambda server, dataset, text: _shown(
        server, "GET", path.format(dataset), params={"epsilon": text, **others}
    )


BY_PAGE: dict[str, Way] = {
    "quote": _query("/ui/datasets/{}/train", algorithm="rpf"),
    "statistics": _query("/ui/datasets/{}/statistics/new", statistic="count"),
    "cap": _form("/ui/ledger/{}/cap", "cap", reason="a test"),
    "rules": _form("/ui/datasets/{}/rules", "largest_job"),
}  # fmt: skip

WAYS = {
    **{f"{name} in JSON": (way, False) for name, way in BY_JSON.items()},
    "a declaration in a file": (_of_file, False),
    **{f"grovekeeper {name}": (way, True) for name, way in BY_COMMAND.items()},
    **{f"the page of {name}": (way, True) for name, way in BY_PAGE.items()},
}
"""The ways in, and whether blanks around an amount do not count there."""


@pytest.mark.parametrize("name", WAYS)
def test_every_way_in_says_what_an_amount_is(idle_server: Server, name: str) -> None:
    way, takes_blanks = WAYS[name]
    dataset = idle_server.declared(budget={"accountant": "pure", "epsilon": "900"})
    reference = dataset["id"]
    for text, form in NO_AMOUNTS.items():
        accepted, words = way(idle_server, reference, text)
        assert not accepted, text
        assert words.removesuffix(".").strip() == form, text
    for text in AMOUNTS:
        reference = idle_server.declared()["id"]
        assert way(idle_server, reference, text)[0], text
    for around in AROUND:
        reference = idle_server.declared()["id"]
        accepted, words = way(idle_server, reference, around.format("0.001"))
        assert accepted is takes_blanks, around
        assert takes_blanks or FORM in words


def _declared(**budget: str) -> tuple[str, str, Callable[[str], object]]:
    return "POST", "/declarations", lambda _: declaration(budget=budget)


def _counted(**fields: str) -> tuple[str, str, Callable[[str], object]]:
    table = {"statistic": "count"}
    path = "/datasets/{}/statistics/quote"
    return "POST", path, lambda _: {"tables": [table], **fields}


ZCDP = {"accountant": "zcdp", "delta": "1e-6"}
GDP = {"accountant": "gdp", "delta": "1e-6"}
OUTSIDE: dict[str, tuple[tuple[str, str, Callable[[str], object]], str]] = {
    "job": (("POST", "/plans", lambda it: training(it, epsilon="1e-18", algorithm="rdt-ta")), "more, such as 0.001"),
    "cap": (_declared(accountant="pure", epsilon="1e-18"), "at least 0.000000001"),
    "large cap": (_declared(accountant="pure", epsilon="1e11"), "at most 1000000000"),
    "rho": (_declared(**ZCDP, rho="1e-18"), "at least 0.000000000001"),
    "mu": (_declared(**GDP, mu="1e-9"), "at least 0.000001"),
    "zero delta": (_declared(accountant="zcdp", epsilon="1", delta="0"), ABOVE_ZERO),
    "delta": (_declared(accountant="zcdp", epsilon="1", delta="1"), "above 0 and below 1, such as 1e-6"),
    "error": (_counted(error="1e-9"), "at least "),
    "rule": (("PUT", "/datasets/{}/rules", lambda _: RULES | {"largest_job": "1e-18"}), "at least 0.000000001"),
    "large rule": (("PUT", "/datasets/{}/rules", lambda _: RULES | {"largest_job": "999999999999"}), "at most "),
    "webhook": (
        ("POST", "/datasets/{}/webhooks",
         lambda _: {"url": "https://example.org/x", "events": ["budget.low"], "threshold": "2"}),
        "at most 1",
    ),
}  # fmt: skip
"""Requests whose amount is too small or too large, and what their refusals state."""


@pytest.mark.parametrize("name", OUTSIDE)
def test_an_amount_that_is_too_small_or_too_large_is_refused_with_the_bound(
    idle_server: Server, name: str
) -> None:
    (method, path, body), bound = OUTSIDE[name]
    budget = {"accountant": "pure", "epsilon": "1"}
    if name == "error":  # normal noise is never zero
        budget = {**GDP, "epsilon": "1"}
    dataset = idle_server.declared(budget=budget)["id"]
    accepted, words = _sent(idle_server, method, path.format(dataset), body(dataset))
    assert not accepted
    assert words.startswith(bound), words


@pytest.mark.parametrize("terms", [ZCDP, GDP])
def test_the_bounds_of_a_cap_in_its_unit_are_caps(
    idle_server: Server, terms: dict[str, str]
) -> None:
    unit = "rho" if terms is ZCDP else "mu"
    for outside in ("1e-18", "999999999999"):
        _, words = _sent(idle_server, *_budgeted(terms, unit, outside))
        bound = words.split()[-1]
        assert words in (f"at least {bound}", f"at most {bound}")
        assert _sent(idle_server, *_budgeted(terms, unit, bound))[0], words


def _budgeted(
    terms: dict[str, str], unit: str, amount: str
) -> tuple[str, str, dict[str, Any]]:
    return "POST", "/declarations", declaration(budget={**terms, unit: amount})
