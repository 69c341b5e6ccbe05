"""Computes the numbers and sentences of every guarantee that the service prints, and
the odds that they leave.

The guarantee of an account bounds the loss of all outputs together. The guarantee of
one output bounds the loss that it adds, given all earlier outputs. No number holds for
one output without that condition, because a request, and the choice of what is
published, may depend on other outputs (docs/proofs/accounting.md A9).

Odds say how often a guess about one person is right. Somebody who knows every other row
and flips a fair coin about one person guesses right in one of two cases. After seeing
outputs whose total variation distance between the two cases is at most t, the best
guess is right with probability at most (1 + t) / 2. Theorem and formulas:
docs/proofs/accounting.md A10.
"""

from collections.abc import Mapping
from fractions import Fraction
from functools import lru_cache
from typing import TYPE_CHECKING

from grovekeeper_forests import amounts
from grovekeeper_forests.json_types import JsonMapping, JsonObject
from grovekeeper_forests.privacy.accountants import (
    WITHOUT_DELTA,
    Amount,
    SplitDelta,
    gdp,
    pure,
    zcdp,
)
from grovekeeper_forests.privacy.accountants.accountant import (
    enclosure,
    normal_lower_tail,
    upper_end,
)
from grovekeeper_forests.privacy.events import Adjacency
from grovekeeper_forests.privacy.receipts import rounded

if TYPE_CHECKING:  # imported at the first computation
    from flint import arb

_PLACES = 10**4

_TOGETHER = "all outputs released under this ledger together"
_NOT_OBSERVED = (
    "that neither the running times of jobs nor whether they fail are observed."
)
_ASSUMES = (
    "This assumes the declared public schema and size, that the exact number of rows is not published, and "
    f"{_NOT_OBSERVED}"
)
_LABELS_ONLY = "Labels only; features and membership are not protected."
_PARTS_OF_TWO_DATASETS = (
    "The two datasets are declared to be about different people. For a person who is in both, the job adds the sum of "
    "the two prices, converted to one unit, to what was released before; the service does not check the declaration."
)
_TWO_PARTS_OF_ONE_DATASET = (
    "Both parts are of one dataset, on disjoint cells. For its people the job adds the larger of the two prices to "
    "what was released before; the account shows both, cell by cell."
)
_E_TO_THIS_IS_BEYOND_EVERY_DELTA = 700


def guarantee(
    amount: Amount,
    delta: SplitDelta,
    *,
    adjacency: Adjacency,
    unit_column: str | None = None,
    max_rows: int = 1,
) -> JsonObject:
    """The printed guarantee of an account: of all outputs together.

    On a ``pure`` account it is valid for the realised sum at any time, and for the cap
    (Theorem L (a), docs/proofs/lemmas.md). On ``zcdp`` and ``gdp`` accounts no theorem
    bounds the loss by the amount spent so far, so the guarantee states the (ε, δ) of
    the highest cap in force since the first charge. On these accounts, replace-one is
    never twice the ε at an unchanged δ (docs/proofs/accounting.md A6).

    On a ``label`` account neighbours differ in one label. No number covers a row that
    is added, removed or replaced, because the owner publishes its features and its
    presence. So the members for such rows are ``None``, which a reader cannot take for
    a number.

    Args:
        amount: on a ``pure`` account the cap, or what was charged; else the highest
            cap. The loss of one whole unit, not of one of its rows or labels.
        delta: the account's δ and its set-aside part; none on a ``pure`` account.
        adjacency: of the account.
        unit_column: public column whose values name the protected units; ``None``: the
            unit is a row.
        max_rows: rows of one unit that were admitted at most.

    Returns:
        ``{"add_remove": {"epsilon", "delta"}, "replace_one": {"epsilon", "delta"},
        "odds", "text"}``, and ``label`` on a ``label`` account; amounts as exact
        decimal text, rounded up where they are not exact; ``odds`` by adjacency, see
        :mod:`grovekeeper_forests.privacy.guarantees`.
    """
    single = {
        "epsilon": amount.epsilon_at(delta.converted_at),
        "delta": amounts.to_text(delta.total or 0),
    }
    several = ""
    if unit_column is None:
        by_accountant = _SEVERAL_ROWS
        if adjacency is Adjacency.LABEL:
            by_accountant = _SEVERAL_LABELS
        several = _SEVERAL_WITH_DELTA
        if not delta.set_aside:
            several = by_accountant[amount.accountant]
    if adjacency is Adjacency.LABEL:
        text = (
            f"{_LABELS_ONLY} For any two datasets with the same rows and the same features that differ in "
            f"{_labels(unit_column, max_rows)} and carry the same declaration, {_claim(single, delta)} This assumes "
            f"the declared public schema, and {_NOT_OBSERVED}{several}"
        )
        return {
            Adjacency.LABEL.value: single,
            Adjacency.ADD_REMOVE_ONE.value: None,
            Adjacency.REPLACE_ONE.value: None,
            "odds": odds_by_change(amount, adjacency, delta),
            "text": text,
        }
    replaced = {
        "epsilon": amount.replace_one().epsilon_at(delta.converted_at),
        "delta": amounts.to_text(_replaced_delta(amount, delta)),
    }
    text = (
        f"For any two datasets that differ in {_unit(unit_column, max_rows)} (one has it, the other does not) and "
        f"carry the same declaration, {_claim(single, delta, replaced)} {_ASSUMES}{several}"
    )
    return {
        Adjacency.ADD_REMOVE_ONE.value: single,
        Adjacency.REPLACE_ONE.value: replaced,
        "odds": odds_by_change(amount, adjacency, delta),
        "text": text,
    }


def addition(
    output: str,
    amount: Amount,
    *,
    adjacency: Adjacency,
    unit_column: str | None = None,
    max_rows: int = 1,
) -> JsonObject:
    """The loss that one output adds to all outputs before it, in the account's unit.

    The loss is the charge of the output's job: for every history of outputs the job's
    mechanism has at most that loss (Theorem L, docs/proofs/lemmas.md and accounting.md
    A3), and the account's total is a sum of such charges.

    Args:
        output: what the job released.
        amount: the job's charge.
        adjacency: of the account.
        unit_column: see :func:`guarantee`.
        max_rows: see :func:`guarantee`.

    Returns:
        ``{"unit", "add_remove", "replace_one", "odds", "text"}``, amounts as exact
        decimal text, and ``odds`` by adjacency; on a ``label`` account with ``label``,
        and ``None`` for the other two.
    """
    single, replaced = amount.text, amount.replace_one().text
    condition = f"Given everything that was released before, whatever that was, this {output} adds"
    loss = _ADDED[amount.accountant].format(amount=single)
    if adjacency is Adjacency.LABEL:
        return {
            "unit": amount.unit,
            Adjacency.LABEL.value: single,
            Adjacency.ADD_REMOVE_ONE.value: None,
            Adjacency.REPLACE_ONE.value: None,
            "odds": odds_by_change(amount, adjacency),
            "text": f"{_LABELS_ONLY} {condition} {loss} where {_labels(unit_column, max_rows)} "
            f"{'changes' if unit_column is None else 'change'}.",
        }
    return {
        "unit": amount.unit,
        Adjacency.ADD_REMOVE_ONE.value: single,
        Adjacency.REPLACE_ONE.value: replaced,
        "odds": odds_by_change(amount, adjacency),
        "text": f"{condition} {loss} where {_unit(unit_column, max_rows)} is added or removed, and at most {replaced} "
        f"where one is replaced by another.",
    }


def odds_by_change(
    amount: Amount, adjacency: Adjacency, delta: SplitDelta = WITHOUT_DELTA
) -> dict[str, str]:
    """The largest probabilities of a right guess, by change; see :func:`right_guesses`.

    Args:
        amount: of an account, or one charge.
        adjacency: of the account.
        delta: of the account; of a charge that pays for an (ε, δ)-mechanism, its δ, all
            of it set aside.
    """
    if adjacency is Adjacency.LABEL:
        return {Adjacency.LABEL.value: right_guesses(amount, set_aside=delta.set_aside)}
    beside = _replaced_delta(amount, delta) if delta.set_aside else Fraction(0)
    return {
        Adjacency.ADD_REMOVE_ONE.value: right_guesses(
            amount, set_aside=delta.set_aside
        ),
        Adjacency.REPLACE_ONE.value: right_guesses(
            amount.replace_one(), set_aside=beside
        ),
    }


def of_output(added: JsonMapping, account: JsonMapping) -> JsonObject:
    """The guarantee of one output: its addition, as ``adds``, and the guarantee of the
    account that paid for it.
    """
    return {
        **account,
        "adds": dict(added),
        "text": f"{added['text']} {account['text']}",
    }


def guarantee_of_population(
    amount: Amount,
    delta: Fraction | None,
    *,
    adjacency: Adjacency,
    unit_column: str | None,
) -> JsonObject:
    """The guarantee of all outputs about the datasets of one population together
    (docs/proofs/accounting.md A8).

    Args:
        amount: the population's cap, or more where a dataset joined that had spent.
        delta: of the population.
        adjacency: of the members.
        unit_column: public column whose values name the same people in every member;
            ``None``: by the owner's statement a person has at most one row in each.

    Returns:
        ``{"epsilon", "delta", "odds", "text"}``: for one person who is in all members,
        or whose labels change in all.
    """
    epsilon, shown_delta = amount.epsilon_at(delta), amounts.to_text(delta or 0)
    person = "one person, who has at most one row in each of them"
    if unit_column is not None:
        person = f"all rows of one value of the column {unit_column!r} in all of them"
    what = "the labels of " if adjacency is Adjacency.LABEL else ""
    limit = f"a privacy loss of at most ε = {epsilon}, with δ = {shown_delta}"
    if delta is not None:
        limit = f"(ε, δ)-differential privacy with ε = {epsilon} and δ = {shown_delta}"
    text = (
        f"For any two worlds whose datasets of this population differ in {what}{person} and carry the same "
        f"declarations, all outputs about these datasets together have {limit}. This is the guarantee until the "
        f"population's cap is raised or a dataset that was spent on joins. It assumes that the owner's statement about "
        f"the people in them is true, and what the guarantees of the single datasets assume."
    )
    odds = {"person": right_guesses(amount)}
    return {"epsilon": epsilon, "delta": shown_delta, "odds": odds, "text": text}


def of_two_parts(*, is_one_dataset: bool) -> str:
    """The loss that a job of two parts adds for a person with rows in both parts
    (docs/proofs/sspe-1.md).

    Args:
        is_one_dataset: whether both parts are of one dataset, on cells that no row is
            in both of.
    """
    if is_one_dataset:
        return _TWO_PARTS_OF_ONE_DATASET
    return _PARTS_OF_TWO_DATASETS


def _replaced_delta(amount: Amount, delta: SplitDelta) -> Fraction:
    """δ for replacing one unit by another: δ plus e^ε times the part that is set aside,
    rounded up, for the largest ε of a mechanism within the cap
    (docs/proofs/external.md).
    """
    total = delta.total or Fraction(0)
    if not delta.set_aside:
        return total
    largest = zcdp.largest_pure(amount.steps)
    if largest > _E_TO_THIS_IS_BEYOND_EVERY_DELTA:
        return Fraction(1)
    return min(
        total + rounded(upper_end(enclosure(largest).exp()) * delta.set_aside, up=True),
        Fraction(1),
    )


def _claim(
    single: Mapping[str, str],
    split: SplitDelta,
    replaced: Mapping[str, str] | None = None,
) -> str:
    """What an account claims of all outputs, at its ε and δ, and at those for a
    replaced unit if there are any.
    """
    epsilon, delta, then = single["epsilon"], single["delta"], ""
    if split.total is None:
        if replaced is not None:
            then = f" Where one is replaced by another, at most {replaced['epsilon']}."
        return (
            f"{_TOGETHER} have a privacy loss of at most ε = {epsilon}, with δ = {delta}.{then} This is the guarantee "
            f"of the account until its cap is raised."
        )
    if replaced is not None:
        at = "at the same δ"
        if replaced["delta"] != delta:
            at = f"and δ = {replaced['delta']}"
        then = (
            f" Where one is replaced by another, with ε = {replaced['epsilon']} {at}."
        )
    return (
        f"{_TOGETHER} are (ε, δ)-differentially private with ε = {epsilon} and δ = {delta}.{then} This is the "
        f"guarantee of the account at its highest cap since the first charge, until its cap is raised: a smaller "
        f"number for what was spent so far would not be a theorem."
    )


_ADDED = {
    pure.NAME: "a privacy loss of at most ε = {amount}",
    zcdp.NAME: "at most ρ = {amount} of zero-concentrated differential privacy",
    gdp.NAME: "at most μ² = {amount} of Gaussian differential privacy",
}


_SEVERAL_ROWS = {
    pure.NAME: " A person with several rows is protected at the sum over those rows.",
    zcdp.NAME: " For a person with k rows the account's bound is k² times its ρ, converted at the same δ.",
    gdp.NAME: " For a person with k rows the account's bound is k² times its μ², converted at the same δ.",
}


_SEVERAL_WITH_DELTA = (
    " It says nothing about a person with several rows: a part of δ is set aside."
)

_SEVERAL_LABELS = {
    **_SEVERAL_ROWS,
    pure.NAME: " A person with several rows is protected at the sum over the labels of those rows.",
}


def _labels(unit_column: str | None, max_rows: int) -> str:
    if unit_column is None:
        return "one label"
    rows = "its one row" if max_rows == 1 else f"its at most {max_rows} rows"
    return f"the labels of one value of the column {unit_column!r} with {rows}"


def _unit(unit_column: str | None, max_rows: int) -> str:
    if unit_column is None:
        return "one row"
    rows = "its one row" if max_rows == 1 else f"all of its at most {max_rows} rows"
    return f"one value of the column {unit_column!r} with {rows}"


@lru_cache(maxsize=1024)
def right_guesses(amount: Amount, *, set_aside: Fraction = Fraction(0)) -> str:
    """The largest probability of a right guess about one change, after seeing outputs
    with a given loss.

    Args:
        amount: the loss of the change.
        set_aside: δ that outputs of (ε, δ)-mechanisms may use beside the loss.

    Returns:
        From ``"0.5"`` to ``"1"``: decimal text, rounded up to four digits.
    """
    distance = _DISTANCES[amount.accountant](enclosure(amount.value))
    highest = (1 + upper_end(distance) + set_aside) / 2
    return amounts.to_text(
        min(Fraction(-(-highest * _PLACES // 1), _PLACES), Fraction(1))
    )


def _of_pure(epsilon: "arb") -> "arb":
    return (epsilon / 2).tanh()


def _of_gdp(mu_squared: "arb") -> "arb":
    return 1 - 2 * normal_lower_tail(mu_squared.sqrt() / 2)


def _of_zcdp(rho: "arb") -> "arb":
    """The smaller of Pinsker's bound, for small ρ, and that of Bretagnolle and Huber."""
    return ((rho / 2).sqrt()).min((1 - (-rho).exp()).sqrt())


_DISTANCES = {pure.NAME: _of_pure, gdp.NAME: _of_gdp, zcdp.NAME: _of_zcdp}
"""Total variation distance of neighbouring outputs by accountant, from the loss in its
unit.
"""
