"""Quotes the parts of a job: price, receipt, whether the account would admit the part
now, and the expected accuracy.

The accuracy is that of public tables on which the benchmarks measured the algorithm.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from decimal import Decimal
from fractions import Fraction
from typing import Any

from sqlalchemy.orm import Session

from app.access.grants import Principal
from app.ledger import rules, statements
from app.ledger.admission import AskedAmount
from app.services.spending.asked import AskedPart, PricedPart
from app.wire.training import (
    ExpectedAccuracyOut,
    ExpectedAurocOut,
    RecoveredBandOut,
    RecoveredOut,
)
from grovekeeper_common.number_words import share_in_words
from grovekeeper_forests import amounts, catalogue
from grovekeeper_forests.expected_accuracy import DELTA, Band, Comparison, Run, runs
from grovekeeper_forests.expected_r2 import explained
from grovekeeper_forests.privacy import accountants, guarantees, receipts
from grovekeeper_forests.releases.contract import STEPS_OF_A_LABEL

_BOUNDED = (
    "The remaining budget is a lower bound: the scopes of this dataset's jobs overlap in too many ways to compute "
    "it exactly. A smaller scope may show that more remains."
)
_FROZEN = "The dataset is frozen: nothing is admitted until its owners or an admin end the freeze."
_ERASURE_DUE = "The date has come at which the rows of this dataset are erased: nothing is admitted any more."


@dataclass(frozen=True)
class PartQuote:
    """A priced part, and what its account admits in its scope when the job's other
    parts are reserved.

    Attributes:
        part: the part.
        balance: of the account in the part's scope; its room is the largest amount that
            budget, population and rules admit.
        population: name of the dataset's population if its cap leaves less than the
            account's.
        room_after: the largest amount that would be admitted after this job; 0 if the
            job does not fit.
        closed: sentences about why the dataset admits nothing.
        needs_approval: whether the job would wait for an approval of an owner of the
            dataset.
    """

    part: PricedPart
    balance: statements.Balance
    room_after: int
    population: str | None
    closed: Sequence[str]
    needs_approval: bool

    @property
    def warnings(self) -> list[str]:
        """Sentences about the requested numbers and the balance."""
        bounded = [] if self.balance.is_exact else [_BOUNDED]
        return [*self.part.asked.warnings, *bounded, *self.closed]

    @property
    def fields(self) -> dict[str, Any]:
        """The fields of every quote, which ``AccountPlanOut`` defines."""
        asked = self.part.asked
        event = self.part.event
        terms = asked.terms
        balance = replace(self.balance, delta=terms.delta)
        return {
            "dataset": asked.dataset.id,
            "dataset_name": asked.dataset.name,
            "scope": asked.scope.to_json(),
            "label": asked.label,
            "price": asked.price,
            "event": event.to_json(),
            "odds": guarantees.odds_by_change(
                accountants.Amount(terms.accountant, asked.amount), terms.adjacency
            ),
            "receipt": receipts.in_words(
                event,
                accountant=terms.accountant,
                adjacency=terms.adjacency,
                max_rows=terms.max_rows,
            ),
            "cap": balance.text(balance.cap),
            "remaining": balance.text(balance.remaining),
            "fits": asked.amount <= balance.room,
            "largest_that_fits": balance.largest_that_fits,
            "left_afterwards": replace(balance, room=self.room_after).largest_that_fits,
            "limited_by": balance.limited_by,
            "needs_approval": self.needs_approval,
            "population": self.population,
        }


def quote_parts(
    session: Session, principal: Principal, parts: Sequence[PricedPart]
) -> list[PartQuote]:
    """Quotes a job's parts for a key. Datasets of one population share its cap, so all
    parts are judged together.
    """
    requests = []
    for part in parts:
        asked = part.asked
        requests.append(
            AskedAmount(asked.dataset.id, asked.amount, asked.scope_to_charge)
        )
    balances = statements.balances_of_job(session, requests, principal.key_id)
    allowances = rules.allowances(
        session, {part.asked.dataset.id for part in parts}, principal.key_id
    )
    quotes = []
    for position, (part, balance) in enumerate(zip(parts, balances, strict=True)):
        amount = part.asked.amount
        dataset = part.asked.dataset
        allowance = allowances.get(dataset.id, rules.UNLIMITED)
        within = balance.within(
            rules.room_beside(allowances, requests, position), allowance.limited_by
        )
        total = rules.total_on(requests, dataset.id)
        rest = balance.room - amount
        by_rules = allowance.room_after(total)
        after = rest if by_rules is None else min(rest, by_rules)
        closed: list[str] = []
        if allowance.is_due:
            closed = [_ERASURE_DUE]
        elif allowance.is_frozen:
            closed = [_FROZEN]
        is_of_population = balance.limited_by == "population"
        quotes.append(
            PartQuote(
                part,
                within,
                room_after=after if amount <= within.room else 0,
                population=dataset.row.population if is_of_population else None,
                closed=closed,
                needs_approval=allowance.needs_approval(total),
            )
        )
    return quotes


def expected_accuracy(
    algorithm: str, parts: Sequence[PricedPart], *, rows: int | None
) -> ExpectedAccuracyOut:
    """The recovered shares on similar public tables (of a label that is a number, the R²
    there), or what the nearest measurement is.

    The size is the declared size or that of a released profile, never a count of rows.
    """
    part, *others = (part.asked for part in parts)
    if part.schema.label.is_number:
        return _of_number(algorithm, part, rows)
    if others:
        return _unknown(
            f"Not measured for jobs on two datasets of these sizes. {_nearest_run(algorithm, part)}"
        )
    if rows is None:
        return _unknown(
            "Unknown: the dataset declares no public size, so nobody can tell which public tables are similar. "
            + _nearest_run(algorithm, part)
        )
    terms = part.terms
    if not any(
        (run.algorithm, run.accountant) == (algorithm, terms.accountant)
        for run in runs()
    ):
        return _unknown(
            f"Not measured for {algorithm} on {terms.accountant} accounts. {_nearest_run(algorithm, part)}"
        )
    is_halved = catalogue.algorithm(algorithm).adjacency is not terms.adjacency
    comparison = Comparison(
        algorithm=algorithm,
        accountant=terms.accountant,
        rows=rows,
        schema=part.schema,
        divisor=terms.max_rows * (STEPS_OF_A_LABEL if is_halved else 1),
    )
    epsilon = _at_other_delta(part, float(terms.epsilon), of=terms.delta, to=DELTA)
    band = comparison.at(epsilon)
    curve = comparison.curve()
    notes = []
    if terms.delta not in (None, DELTA):
        notes = [_converted(part, epsilon)]
    if band is None:
        notes.append(
            _nearest_band(curve, epsilon)
            if curve
            else _nearest_table(comparison, epsilon)
        )
    return ExpectedAccuracyOut(
        sentence=None if band is None else sentence_of(band),
        spread=None if band is None else spread_of(band),
        band=None if band is None else _shown(band, part),
        tables=[
            RecoveredOut(table=at.table, share=round(at.share, 3))
            for at in ([] if band is None else band.tables)
        ],
        without_gain=[] if band is None else list(band.without_gain),
        auroc=None if band is None else _auroc(band),
        curve=[_shown(at, part) for at in curve],
        note=" ".join(notes) or None,
    )


def _of_number(
    algorithm: str, part: AskedPart, rows: int | None
) -> ExpectedAccuracyOut:
    """The share of the spread of a number that forests explained on similar tables."""
    terms = part.terms
    similar = None
    if rows is not None:
        epsilon = _at_other_delta(part, float(terms.epsilon), of=terms.delta, to=DELTA)
        name_of_run = f"{algorithm}@{terms.accountant}"
        similar = explained(name_of_run, rows=rows, epsilon=epsilon / terms.max_rows)
    if similar is None:
        return _unknown(_NUMBERS_NOT_MEASURED)
    sentence = (
        f"Expect an R² of about {similar.middle:.2f}, as in the middle of {similar.n_tables} public tables of similar "
        f"rows × ε, half of them between {similar.low:.2f} and {similar.high:.2f}; forests without privacy reached "
        f"{similar.forest:.2f} there. 1 is a perfect prediction, 0 the mean of the label for every row; your table may "
        "be easier or harder."
    )
    return _unknown(_NUMBERS_MEASURED).model_copy(update={"sentence": sentence})


_NUMBERS_MEASURED = (
    "Every run is in docs/results/regression.md. What matters most, how much the features tell about the number, "
    "nobody knows before."
)
_NUMBERS_NOT_MEASURED = (
    "Not measured for this size, ε and account: docs/results/regression.md has what was measured on public "
    "tables."
)

_ALL = 100


def _unknown(note: str) -> ExpectedAccuracyOut:
    return ExpectedAccuracyOut(
        sentence=None,
        spread=None,
        band=None,
        tables=[],
        without_gain=[],
        auroc=None,
        curve=[],
        note=note,
    )


def sentence_of(band: Band) -> str:
    """What a person may expect: a share first, since a quote knows neither of the
    accuracies that it lies between.
    """
    sentences = [
        f"Expect about {_recovered(band.middle)} of what a forest without privacy gains over always answering the "
        f"commonest class, as in the middle of {len(band.tables)} similar public tables. There, "
        f"{share_in_words(band.accuracy)} of the answers were right, those of a forest without privacy "
        f"{share_in_words(band.forest)}, and the commonest class {share_in_words(band.majority)}; "
        "your table may be easier or harder."
    ]
    if band.without_gain:
        n_tables = len(band.tables) + len(band.without_gain)
        sentences.append(
            f"On {len(band.without_gain)} of {n_tables} similar tables ({', '.join(band.without_gain)}) there was "
            "nothing to gain: a forest without privacy was hardly better than the commonest class. If yours is like "
            "them, the model may answer that class alone."
        )
    if band.auroc is not None:
        auroc = band.auroc
        sentences.append(
            f"AUROC on {auroc.n_tables} similar tables of two classes: {auroc.middle:.2f} in the middle, half of them "
            f"between {auroc.low:.2f} and {auroc.high:.2f}; without privacy {auroc.without_privacy:.2f}."
        )
    return " ".join(sentences)


def spread_of(band: Band) -> str:
    """The recovered shares of the tables, as pages and commands print them: nobody else
    rounds them.
    """
    names = ", ".join(at.table for at in band.tables)
    low, middle, high = map(_recovered, (band.low, band.middle, band.high))
    return f"Similar public tables ({names}) recovered {middle} in the middle, half of them between {low} and {high}."


def _recovered(share: float) -> str:
    """A recovered share in words. Chance lets a private forest be better than another
    forest.
    """
    percent = round(100 * share)
    return "all" if percent >= _ALL else f"{percent} %"


def _auroc(band: Band) -> ExpectedAurocOut | None:
    at = band.auroc
    if at is None:
        return None
    rounded = {
        name: round(getattr(at, name), 3)
        for name in ("low", "middle", "high", "without_privacy")
    }
    return ExpectedAurocOut(**rounded, tables=at.n_tables)


def _nearest_run(algorithm: str, part: AskedPart) -> str:
    """Where the algorithm was measured, and what was measured on accounts like the one
    that pays.
    """
    measured = [run for run in runs() if run.algorithm == algorithm]
    results = catalogue.algorithm(algorithm).about.results
    nearest = "; ".join(map(_words, measured))
    others = sorted(
        {run.algorithm for run in runs() if run.accountant == part.terms.accountant}
        - {algorithm}
    )
    sentences = [f"Nearest measured: {nearest} ({results})."]
    if others and all(run.accountant != part.terms.accountant for run in measured):
        sentences.append(
            f"Measured on {part.terms.accountant} accounts: {', '.join(others)}."
        )
    return " ".join(sentences)


def _words(run: Run) -> str:
    return (
        f"{run.algorithm} on {run.accountant} accounts, {run.n_tables} public tables at ε = {run.smallest:g} to "
        f"{run.largest:g}"
    )


def _nearest_band(curve: Sequence[Band], epsilon: float) -> str:
    nearest = min(curve, key=lambda band: abs(math.log(band.epsilon / epsilon)))
    return (
        f"Not measured for this size at ε = {_text(epsilon)}. Nearest measured: ε = {nearest.epsilon:g}, where half "
        f"of the similar tables recovered between {_recovered(nearest.low)} and {_recovered(nearest.high)}."
    )


def _nearest_table(comparison: Comparison, epsilon: float) -> str:
    nearest = comparison.nearest(epsilon)
    assert nearest is not None, "the run was measured"
    return (
        f"Not measured for three tables or more of this size and shape. Nearest measured: {nearest.table} "
        f"({nearest.rows} rows, {nearest.classes} classes) at ε = {nearest.epsilon:g}, where {comparison.algorithm} "
        f"recovered {_recovered(nearest.share)}."
    )


def _converted(part: AskedPart, epsilon: float) -> str:
    symbol = amounts.SYMBOLS[accountants.by_name(part.terms.accountant).UNIT]
    return f"Measured at δ = 1e-6, where the same {symbol} is ε = {_text(epsilon)}."


def _at_other_delta(
    part: AskedPart, epsilon: float, *, of: Fraction | None, to: Fraction | None
) -> float:
    """The ε at another δ whose price is equal, so that the noise is equal, too."""
    if of is None or to is None or of == to:
        return epsilon
    accountant = accountants.by_name(part.terms.accountant)
    return float(accountant.epsilon_of(accountant.price(Fraction(epsilon), of), to))


def _shown(band: Band, part: AskedPart) -> RecoveredBandOut:
    epsilon = _at_other_delta(part, band.epsilon, of=DELTA, to=part.terms.delta)
    return RecoveredBandOut(
        epsilon=_text(epsilon),
        low=round(band.low, 3),
        middle=round(band.middle, 3),
        high=round(band.high, 3),
    )


def _text(epsilon: float) -> str:
    """Decimal text with three significant digits and no exponent."""
    return format(Decimal(f"{epsilon:.3g}"), "f")
