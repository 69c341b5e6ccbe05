"""Every printed guarantee is true of the exact law of the published outputs.

A sentence is parsed into claims, and each claim names a law: of one output given all
earlier outputs, of one output without that condition, or of all outputs of an account
together. A sentence that loses its condition becomes a claim about a law for which it
is false, and the check fails.
"""

import math
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from fractions import Fraction
from functools import cache
from typing import Any

import pytest

from grovekeeper_forests.privacy import accountants, guarantees, receipts
from grovekeeper_forests.privacy.accountants import Amount, SplitDelta
from grovekeeper_forests.privacy.calibration import Terms
from grovekeeper_forests.privacy.events import Adjacency
from grovekeeper_forests.releases.forest.price import PlanRequest, plan
from grovekeeper_forests.releases.names import IN_WORDS
from tests.privacy.enumeration import TOLERANCE, aligned, divergence, loss, renyi
from tests.privacy.publications import (
    Account,
    Law,
    World,
    best_of,
    every_account,
    follow_up,
    models_only,
)
from tests.privacy.universe import TWO_SPLITS

CONDITION = "Given everything that was released before, whatever that was, "
NUMBER = r"(\d+(?:\.\d+)?)"


@dataclass(frozen=True)
class Claim:
    """One claim of a sentence.

    Attributes:
        about: ``output given history``, ``output``, ``account until its cap is raised``
            or ``account``.
        measure: ``ε``, ``ρ``, ``μ²``, or ``(ε, δ)``.
        amount: for one unit that is added or removed, or labels that change.
        replaced: for one unit that is replaced by another, if the sentence states it.
        delta: of an (ε, δ).
    """

    about: str
    measure: str
    amount: float
    replaced: float | None = None
    delta: float = 0.0
    replaced_delta: float = 0.0


ADDITION = re.compile(
    rf"({CONDITION})?[tT]his (?:model|profile|evaluation|set of statistics) adds "
    rf"(?:a privacy loss of )?at most (ε|ρ|μ²) = {NUMBER}"
    r"(?: of (?:zero-concentrated|Gaussian) differential privacy)? where .+? (?:is added or removed, and at most "
    rf"{NUMBER} where one is replaced by another|changes?)\. ?"
)
PREMISE = r"For any two datasets (?:with the same rows and the same features )?that differ in .+? and carry the same "
PURE = re.compile(
    PREMISE
    + r"declaration, all outputs released under this ledger together have a privacy loss of at most ε = "
    rf"{NUMBER}, with δ = 0\.(?: Where one is replaced by another, at most {NUMBER}\.)?"
    r"( This is the guarantee of the account until its cap is raised\.)? ?"
)
APPROXIMATE = re.compile(
    PREMISE
    + r"declaration, all outputs released under this ledger together are \(ε, δ\)-differentially private with "
    rf"ε = {NUMBER} and δ = {NUMBER}\.(?: Where one is replaced by another, with ε = {NUMBER} at the same δ\.)?"
    r"( This is the guarantee of the account at its highest cap since the first charge, until its cap is raised: a "
    r"smaller number for what was spent so far would not be a theorem\.)? ?"
)
TOTAL = re.compile(
    r"Total(, given everything that was released before)?: (?:adding or removing one row changes the chance of any "
    rf"outcome by a factor of at most e\^ε, (?=ε)|changing one label changes .+? e\^ε, (?=ε))?(ε|ρ|μ²) [=≤] {NUMBER}"
)
WITHOUT_NUMBERS = re.compile(
    r"Labels only; features and membership are not protected\. ?"
    r"|This assumes the declared public schema(?: and size, that the exact number of rows is not published)?, and that "
    r"neither the running times of jobs nor whether they fail are observed\. ?"
    r"|A person with several rows is protected at the sum over (?:the labels of )?those rows\."
    r"|For a person with k rows the account's bound is k² times its (?:ρ|μ²), converted at the same δ\."
)


def claims(text: str) -> Iterator[Claim]:
    """All claims of a text; a sentence of an unknown form is an error."""
    place = 0
    while place < len(text):
        if match := ADDITION.match(text, place):
            given, measure, amount, replaced = match.groups()
            about = "output given history" if given else "output"
            yield Claim(
                about,
                measure,
                float(amount),
                None if replaced is None else float(replaced),
            )
        elif match := PURE.match(text, place):
            amount, replaced, until = match.groups()
            yield Claim(
                _account(until),
                "ε",
                float(amount),
                None if replaced is None else float(replaced),
            )
        elif match := APPROXIMATE.match(text, place):
            amount, delta, replaced, until = match.groups()
            other = None if replaced is None else float(replaced)
            yield Claim(
                _account(until),
                "(ε, δ)",
                float(amount),
                other,
                float(delta),
                float(delta),
            )
        else:
            match = WITHOUT_NUMBERS.match(text, place)
        assert match, text[place:]
        place = match.end()


def _account(until: str | None) -> str:
    return "account until its cap is raised" if until else "account"


def holds(claim: Claim, account: Account, one: Law, other: Law) -> bool:
    """Whether two laws are as close as a claim states."""
    amount = claim.replaced if account.replacing else claim.amount
    assert amount is not None
    p_one, p_other = aligned(one, other)
    pairs = [(p_one, p_other), (p_other, p_one)]
    if claim.measure == "ε":
        return loss(one, other) <= amount + TOLERANCE
    if claim.measure == "ρ":
        return all(
            renyi(p, q, order) <= order * amount + TOLERANCE
            for p, q in pairs
            for order in ORDERS
        )
    if claim.measure == "μ²":
        mu = math.sqrt(amount)
        return all(
            divergence(p, q, at) <= _delta_of(mu, at) + TOLERANCE
            for p, q in pairs
            for at in EPSILONS
        )
    delta = claim.replaced_delta if account.replacing else claim.delta
    return all(divergence(p, q, amount) <= delta + TOLERANCE for p, q in pairs)


ORDERS = (1.001, 1.1, 1.5, 2, 4, 8, 16, 64, 256)
EPSILONS = (0.0, 0.05, 0.1, 0.2, 0.3, 0.5, 1.0, 2.0)


def _delta_of(mu: float, epsilon: float) -> float:
    return _normal(mu / 2 - epsilon / mu) - math.exp(epsilon) * _normal(
        -mu / 2 - epsilon / mu
    )


def _normal(x: float) -> float:
    return 0.5 * math.erfc(-x / math.sqrt(2))


def is_true(text: str, world: World, *, after_a_raise: World) -> bool:
    """Whether every claim of a text holds in a world whose account was charged up to
    the cap that the text prints.
    """
    return all(_is_true(claim, world, after_a_raise) for claim in claims(text))


def _is_true(claim: Claim, world: World, after_a_raise: World) -> bool:
    account = world.account
    if claim.about == "output given history":
        return all(holds(claim, account, *laws) for _, *laws in world.steps())
    if claim.about == "output":
        return holds(claim, account, *world.publications())
    if claim.about == "account":
        return holds(claim, account, *after_a_raise.transcripts())
    return holds(claim, account, *world.transcripts())


@cache
def worlds(account: Account, output: str) -> list[World]:
    result = [follow_up(account, output)]
    return (
        result
        if output != "model"
        else [*result, *(best_of(account, n_models) for n_models in (2, 3))]
    )


@cache
def raised(account: Account) -> World:
    return models_only(account, 10)


def account_text(account: Account, *, cap: int) -> dict[str, Any]:
    return guarantees.guarantee(
        Amount(account.accountant, cap),
        SplitDelta(account.delta),
        adjacency=account.adjacency,
        unit_column="person" if account.max_rows > 1 else None,
        max_rows=account.max_rows,
    )


def printed(account: Account, output: str, *, cap: int) -> str:
    added = guarantees.addition(
        output,
        Amount(account.accountant, account.price()),
        adjacency=account.adjacency,
        unit_column="person" if account.max_rows > 1 else None,
        max_rows=account.max_rows,
    )
    return str(guarantees.of_output(added, account_text(account, cap=cap))["text"])


ACCOUNTS = list(every_account())
OUTPUTS = tuple(IN_WORDS.values())


def name(account: Account) -> str:
    return f"{account.accountant}-{account.adjacency.value}-{account.max_rows}{'-replaced' * account.replacing}"


@pytest.mark.covering("output", "account")
@pytest.mark.parametrize("account", ACCOUNTS, ids=name)
@pytest.mark.parametrize("output", OUTPUTS)
def test_every_sentence_holds_of_what_is_published(
    account: Account, output: str
) -> None:
    for world in worlds(account, output):
        text = printed(account, output, cap=world.total)
        assert {claim.about for claim in claims(text)} == {
            "output given history",
            "account until its cap is raised",
        }
        assert is_true(text, world, after_a_raise=raised(account))


@pytest.mark.parametrize("account", ACCOUNTS, ids=name)
@pytest.mark.parametrize("output", OUTPUTS)
def test_a_sentence_without_its_condition_is_seen(
    account: Account, output: str
) -> None:
    seen = []
    for world in worlds(account, output):
        text = printed(account, output, cap=world.total)
        bare = text.replace(f"{CONDITION}this", "This")
        assert bare != text
        seen.append(not is_true(bare, world, after_a_raise=raised(account)))
    assert any(seen)
    assert (
        all(seen)
        or account.accountant != "pure"
        or account.replacing
        or account.adjacency is Adjacency.LABEL
    )


@pytest.mark.parametrize("account", ACCOUNTS, ids=name)
def test_an_account_sentence_without_its_cap_condition_is_detected(
    account: Account,
) -> None:
    world = best_of(account, 2)
    text = str(account_text(account, cap=world.total)["text"])
    assert is_true(text, world, after_a_raise=raised(account))
    bare = text.replace(
        " This is the guarantee of the account until its cap is raised.", ""
    )
    start = bare.find(" This is the guarantee of the account at its highest cap")
    bare = (
        bare
        if start < 0
        else bare[:start] + bare[bare.index("theorem.") + len("theorem.") :]
    )
    assert bare != text
    assert not is_true(bare, world, after_a_raise=raised(account))


@pytest.mark.parametrize("n_models", [2, 3, 5])
def test_the_best_of_m_models_loses_m_times_the_price_of_one(n_models: int) -> None:
    account = Account("pure")
    world = best_of(account, n_models)
    assert account.price() == 10**9
    assert loss(*world.publications()) == pytest.approx(n_models, abs=TOLERANCE)
    assert loss(*world.transcripts()) == pytest.approx(n_models, abs=TOLERANCE)
    assert max(loss(*laws) for _, *laws in world.steps()) == pytest.approx(
        1, abs=TOLERANCE
    )


@pytest.mark.parametrize("output", OUTPUTS)
def test_a_parameter_that_depends_on_an_earlier_release_carries_its_loss(
    output: str,
) -> None:
    world = follow_up(Account("pure"), output)
    assert loss(*world.publications()) == pytest.approx(2, abs=TOLERANCE)
    assert max(loss(*laws) for _, *laws in world.steps()) == pytest.approx(
        1, abs=TOLERANCE
    )


@pytest.mark.parametrize(
    "account", [account for account in ACCOUNTS if not account.replacing], ids=name
)
def test_the_total_of_a_receipt_is_conditional_too(account: Account) -> None:
    request = PlanRequest(
        "mrf",
        {"n_estimators": 1, "max_depth": 0, "leaf": "label"},
        Terms(
            Fraction(1),
            account.accountant,
            account.delta,
            account.adjacency,
            account.max_rows,
        ),
    )
    event = plan(request, TWO_SPLITS).event
    words = receipts.in_words(
        event, accountant=account.accountant, adjacency=account.adjacency
    )
    total = words.splitlines()[-1]
    match = TOTAL.match(total)
    assert match, total
    given, measure, amount = match.groups()
    assert given
    one_row = Account(account.accountant, account.adjacency)
    group = accountants.by_name(account.accountant).group(account.max_rows)
    claim = Claim("output given history", measure, float(amount) * group)
    assert all(
        _is_true(claim, world, raised(account)) for world in worlds(account, "model")
    )
    bare = Claim("output", measure, float(amount))
    assert not all(
        _is_true(bare, world, raised(one_row)) for world in worlds(one_row, "model")
    )


def test_nothing_else_is_printed_as_a_guarantee() -> None:
    """The templates depend on this module's parameters alone, and no other function
    prints a guarantee.

    ``right_guesses`` is the number in the sentence of ``odds_by_change``;
    ``tests/pure/privacy/test_guarantees.py`` compares it with exact laws.
    """
    public = {
        name
        for name, each in vars(guarantees).items()
        if callable(each) and not name.startswith("_")
    }
    own = {
        name
        for name in public
        if getattr(vars(guarantees)[name], "__module__", "") == guarantees.__name__
    }
    of_accounts = {"guarantee", "guarantee_of_population"}
    assert own == {
        *of_accounts,
        "addition",
        "odds_by_change",
        "right_guesses",
        "of_output",
        "of_two_parts",
    }


@pytest.mark.parametrize("is_one_dataset", [False, True])
def test_a_job_of_two_parts_speaks_of_what_it_adds(is_one_dataset: bool) -> None:
    sentence = guarantees.of_two_parts(is_one_dataset=is_one_dataset)
    assert (
        f"adds the {'larger' if is_one_dataset else 'sum'} of the two prices"
        in sentence
    )
    assert "to what was released before" in sentence


@pytest.mark.parametrize("accountant", accountants.NAMES)
@pytest.mark.parametrize("adjacency", Adjacency)
def test_a_population_speaks_of_all_outputs_together(
    accountant: str, adjacency: Adjacency
) -> None:
    account = Account(accountant)
    printed: Mapping[str, object] = guarantees.guarantee_of_population(
        Amount(accountant, account.price()),
        account.delta,
        adjacency=adjacency,
        unit_column=None,
    )
    text = str(printed["text"])
    assert "all outputs about these datasets together have" in text
    assert (
        "until the population's cap is raised or a dataset that was spent on joins"
        in text
    )
    assert len(re.findall(r"ε = ", text)) == 1
