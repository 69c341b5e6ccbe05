"""Words and pictures of the dashboard: rounding to the safe side, bars that add up, and
nothing that HTML obeys.

Administrative acts as sentences.
"""

import re
from decimal import Decimal
from pathlib import Path
from typing import Any, get_args

import pytest
from markupsafe import Markup

from app.api.pages import pictures, words
from app.api.pages.pictures import budget_bar, share_class, spend
from app.api.pages.rendering import _environment
from app.api.pages.words import act_in_words
from app.services.ledger.spend_history import Charge, Spend
from app.wire.acts import ActKind, ActOut
from grovekeeper_common import odds_words, scope_words

TEMPLATES = Path(pictures.__file__).parent / "templates"
ACCOUNT = {"cap": "3", "charged": "1.25", "reserved": "0.5"}


@pytest.mark.parametrize(
    ("amount", "spent", "left"),
    [
        ("0", "0", "0"),
        ("1.25", "1.25", "1.25"),
        ("0.123456", "0.1235", "0.1234"),
        ("123456", "123456", "123456"),
        ("0.000012345678", "0.00001235", "0.00001234"),
        ("2.99999", "3", "2.999"),
    ],
)
def test_spent_rounds_up_and_left_rounds_down(
    amount: str, spent: str, left: str
) -> None:
    assert (words.spent(amount), words.left(amount)) == (spent, left)


def test_no_amount_of_a_balance_is_rounded() -> None:
    account = {
        "unit": "mu_squared",
        "cap": "0.419549658558",
        "charged": "0.074487827072",
        "reserved": "0",
        "remaining": "0.345061831486",
    }
    module = _environment().get_template("parts.html").module
    text = " ".join(str(Markup(module.amounts(account)).striptags()).split())
    assert text == (
        "0.074487827072 of 0.419549658558 μ² charged, 0 reserved, 0.345061831486 left"
    )


@pytest.mark.parametrize(
    ("ended", "why"),
    [
        ("not-started", "no worker started the job within 24 hours."),
        ("not-approved", "no owner approved the job within 7 days."),
        # of an earlier version, which did not store which
        (
            "expired",
            "no worker took the job within 24 hours, or no owner approved it within 7 days.",
        ),
        (None, "the job did not start in time."),
    ],
)
def test_an_expiry_says_what_took_too_long(ended: str | None, why: str) -> None:
    said = words.entry({"kind": "expire", "amount": "1", "job_id": "jb_1"}, "ε", ended)
    assert said == f"The reservation of 1 ε for job jb_1 was given back, because {why}"


@pytest.mark.parametrize(
    ("odds", "text"),
    [
        ("0.5", "50 %"),
        ("0.7311", "74 %"),
        ("0.9901", "more than 99 %"),
        ("1", "more than 99 %"),
    ],
)
def test_odds_round_up_and_certainty_is_named_only_where_it_is_certain(
    odds: str, text: str
) -> None:
    assert odds_words.percent(odds) == text


def test_the_sentence_of_an_entry_names_the_label_that_its_job_read() -> None:
    fields = {"kind": "charge", "amount": "1", "job_id": "jb_1"}
    said = words.entry({**fields, "details": {"label": "ill"}}, "ε")
    assert said == "1 ε was charged for job jb_1 (label ill). A charge is final."
    assert "label" not in words.entry(fields, "ε")


def test_odds_are_a_sentence_that_may_have_a_condition() -> None:
    said = odds_words.sentence(
        "add_remove", "0.7311", unit="row", condition="Given everything,"
    )
    assert said.startswith(
        "Given everything, somebody who knows every other row and flips a fair coin about whether"
    )
    assert said.endswith(" guesses right at most 74 % of the time (50 % before).")
    assert "right in the worst case more than 99 % of" in odds_words.sentence(
        "replace_one", "0.9975", unit="row"
    )


def test_odds_of_a_unit_of_several_rows_leave_open_what_is_known_of_its_other_rows() -> (
    None
):
    patient = words.unit_of("patient")
    said = odds_words.sentence("add_remove", "0.7311", unit=patient)
    assert said.startswith(
        "Somebody who knows all rows of every other value of patient and flips a fair coin about whether one value of "
        "patient is in the data guesses right"
    )
    assert (
        "about whether one value of patient or another is in the data"
        in odds_words.sentence("replace_one", "0.7", unit=patient)
    )
    assert words.unit_of(None) == words.unit_of("") == "row"


def test_a_scope_in_words() -> None:
    assert scope_words.cell({}) == "the whole dataset"
    assert (
        scope_words.cell({"region": ["EU", "US"], "shard": 3})
        == "region=EU, US; shard=3"
    )
    in_words = scope_words.cell({"shard": [0, 1, 2, 3, 6, 8, 9]})
    assert in_words.replace("\N{NON-BREAKING HYPHEN}", "-") == "shard=0-3, 6, 8, 9"
    assert "-" not in in_words, "a line breaks behind it"
    assert (
        scope_words.cell({"wave": ["ep_a", "ep_b", "ep_c"]}) == "wave=ep_a, ep_b, ep_c"
    )


def _parts(svg: str) -> dict[str, tuple[Decimal, Decimal]]:
    """Where the parts of a bar begin and how wide they are, in percent."""
    return {
        kind: (Decimal(start), Decimal(width))
        for kind, start, width in re.findall(
            r'<rect class="([a-z]+)" x="([0-9.]+)%" width="([0-9.]+)%"', svg
        )
    }


def test_a_bar_has_the_proportions_of_the_account() -> None:
    parts = _parts(budget_bar(ACCOUNT | {"cap": "5"}, label="", requested="0.25"))
    assert parts == {"charged": (0, 25), "reserved": (25, 10), "asked": (35, 5)}


def test_what_is_reserved_is_hatched() -> None:
    """The pattern of the page fills it, whatever its colour."""
    icons = (TEMPLATES / "icons.html").read_text("utf-8")
    assert icons.count('<pattern id="hatch"') == 1
    bar = budget_bar(ACCOUNT, label="")
    assert re.findall(r'<rect class="([a-z]+)"[^>]* fill="url\(#hatch\)"/>', bar) == [
        "reserved"
    ]
    assert "hatch" not in budget_bar(
        ACCOUNT | {"reserved": "0"}, label="", requested="1"
    )


def test_a_request_beyond_the_cap_passes_the_tick_and_does_not_leave_the_bar() -> None:
    bar = budget_bar(ACCOUNT, label="", requested="10")
    parts = _parts(bar)
    tick = re.search(r'<line class="cap" x1="([0-9.]+)%"', bar)
    assert tick is not None
    asked, excess = parts["asked"], parts["excess"]
    assert asked[0] < Decimal(tick[1]) == excess[0] < asked[0] + asked[1]
    assert sum(asked) == pytest.approx(100, abs=0.02)
    assert sum(excess) == pytest.approx(100, abs=0.02)
    nothing = {"cap": "0", "charged": "0", "reserved": "0"}
    assert "<rect" not in budget_bar(nothing, label="")


def _spent(*amounts: str, before: str = "0") -> Spend:
    """Charges of the tightest cell, one after another."""
    charges, total = [], Decimal(before)
    for sequence, amount in enumerate(amounts, start=1):
        total += Decimal(amount)
        facts: dict[str, Any] = dict.fromkeys(
            ("job_id", "job", "purpose", "label", "description", "by_name")
        )
        charges.append(
            Charge(
                sequence,
                amount,
                scope={},
                by="key_a",
                at="2026-01-01T00:00:00.000000Z",
                covers=True,
                total=str(total),
                **facts,
            )
        )
    return Spend(charges, before, are_all=before == "0")


@pytest.mark.parametrize(
    ("cap", "before", "amounts", "tops", "heights"),
    [
        ("2.5", "0", ["0.5"], [0.2], [0.2]),
        ("2.5", "0", ["0.5", "0.75"], [0.2, 0.5], [0.2, 0.3]),
        ("2.5", "1", ["0.5", "1"], [0.6, 1.0], [0.2, 0.4]),
        ("1", "0", ["0.5", "1.5"], [0.25, 1.0], [0.25, 0.75]),
    ],
)
def test_spending_is_drawn_against_the_cap(
    cap: str, before: str, amounts: list[str], tops: list[float], heights: list[float]
) -> None:
    """0.5 of a cap of 2.5 stands at a fifth of its height. Only a lowered cap is not the
    highest line.
    """
    picture = spend(_spent(*amounts, before=before), _balance(cap), NOW)
    assert picture is not None
    base, full = _line(picture, "axis"), max(map(float, [cap, _total(before, amounts)]))
    cap_line = _line(picture, "cap")
    unit = (base - cap_line) / float(cap)
    dots = re.findall(r'<circle class="dot" cx="[0-9.]+%" cy="([0-9.]+)"', picture)
    assert [(base - float(y)) / unit / full for y in dots] == pytest.approx(
        tops, abs=1e-3
    )
    steps = re.findall(
        r'<line class="line" x1="([0-9.]+%)" x2="\1" y1="([0-9.]+)" y2="([0-9.]+)"',
        picture,
    )
    drawn = [(float(low) - float(high)) / unit / full for _, low, high in steps]
    risen = [height for height in drawn if height]
    assert risen == pytest.approx(heights, abs=1e-3)
    assert cap_line > 0


def test_what_is_reserved_stands_hatched_above_what_is_charged() -> None:
    spent = _spent("0.5")
    hatched = re.findall(
        r'y="([0-9.]+)" width="1.6%" height="([0-9.]+)" fill="url\(#hatch\)"',
        str(spend(spent, _balance("2") | {"reserved": "0.5"}, NOW)),
    )
    ((top, height),) = hatched
    dot = re.search(r'cy="([0-9.]+)"', str(spend(spent, _balance("2"), NOW)))
    assert dot is not None
    assert float(top) + float(height) == pytest.approx(float(dot[1]), abs=0.02)
    assert "hatch" not in str(spend(spent, _balance("2"), NOW))


def test_the_axis_of_time_names_its_ends() -> None:
    """Days; minutes, if all of it is one day."""
    for now, ends in (
        ("2026-03-04T05:06:07.000000Z", [">2026-01-01<", ">2026-03-04<"]),
        ("2026-01-01T05:06:07.000000Z", [">2026-01-01 00:00<", ">2026-01-01 05:06<"]),
    ):
        picture = str(spend(_spent("1"), _balance("2"), now))
        assert [end in picture for end in ends] == [True, True]
        assert [mark in picture for mark in (">0<", ">1<", ">2 ε<")] == [True] * 3


NOW = "2026-01-02T00:00:00.000000Z"


def _balance(cap: str) -> dict[str, str]:
    return {"unit": "epsilon", "cap": cap, "account": "ds_a", "reserved": "0"}


def _total(before: str, amounts: list[str]) -> float:
    return float(before) + sum(map(float, amounts))


def _line(picture: str, kind: str) -> float:
    """The height of a line across the plot, in pixels from the upper edge."""
    matched = re.search(
        rf'<line class="{kind}" x1="0" x2="100%" y1="([0-9.]+)"', picture
    )
    assert matched is not None
    return float(matched[1])


def test_labels_and_words_of_pictures_are_escaped() -> None:
    hostile = '"><script>alert(1)</script>'
    charge = Charge(
        1,
        "1",
        scope={},
        job_id=None,
        job=None,
        purpose=None,
        label=None,
        description=hostile,
        by="key_a",
        by_name=hostile,
        at="2026-01-01T00:00:00.000000Z",
        covers=True,
        total="1",
    )
    steps = spend(
        Spend([charge], "0", are_all=True), _balance("3") | {"account": hostile}, NOW
    )
    assert steps is not None
    for picture in (
        budget_bar(ACCOUNT, label=hostile),
        steps,
    ):
        assert "<script>" not in picture


@pytest.mark.parametrize(
    ("left", "name"), [("2", 0), ("1.8", 1), ("1.5", 1), ("1.48", 2), ("0", 4)]
)
def test_a_cell_has_a_stronger_colour_the_more_of_it_is_used(
    left: str, name: int
) -> None:
    assert share_class(left, "2") == f"heat-{name}"


def test_every_kind_of_act_has_a_sentence() -> None:
    details = {
        "key": "key_a", "roles": ["owner"], "role": "owner", "dataset": "ds_a", "datasets": ["ds_a"], "upload": "up_a",
        "account": "ds_a", "sequence": 2, "population": "pp_a", "verifier_key": "a+b+c", "storage_key": "sk_a",
        "rules": {"largest_job": None, "approval_above": None, "quotas": [], "frozen": False, "erase_rows_at": None},
        "proposed_by": "key_b", "job": "jb_a", "reason": "<b>", "entries": 3, "alias": "production", "model": "md_a",
        "webhook": "wh_a", "before": "0a", "after": "0b",
    }  # fmt: skip
    shared = {
        "sequence": 1,
        "amount": "0",
        "scope": {},
        "event": None,
        "job_id": None,
        "actor": "key_a",
        "at": "x",
    }
    for kind in get_args(ActKind):
        act = ActOut.model_validate(
            {
                **shared,
                "kind": kind,
                "previous_hash": "",
                "hash": "",
                "details": details,
            }
        )
        caps = {1: {"before": "3 ε", "after": "5 ε", "reason": "<b>"}}
        words = act_in_words(act, {"key_a": "<script>"}, caps)
        assert words.endswith(".") or "Reason: &lt;b&gt;" in words, kind
        assert "<script>" not in words
