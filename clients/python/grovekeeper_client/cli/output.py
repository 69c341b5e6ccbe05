"""Prints the output of commands: text for people, or one JSON value on stdout with
``--json``.

Progress and problems go to stderr, so that stdout can be piped. Texts of the service
are printed unchanged, never as markup.
"""

import json
import os
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from fractions import Fraction
from typing import Any

import typer

from grovekeeper_client.amounts import SYMBOLS
from grovekeeper_client.cli import problems
from grovekeeper_client.errors import column_in_words
from grovekeeper_common import odds_words
from grovekeeper_common.json_types import JsonMapping
from grovekeeper_common.number_words import (
    NO_SCORE,
    ON_TRAINING_ROWS,
    mean_error_in_words,
    share_in_words,
)
from grovekeeper_common.time_words import hour_in_words

_BAR_CELLS = 24
_INSISTING = {
    "cells-unread": "--accept-unknown",
    "upload-empty": "--accept-empty",
    "upload-repeated": "--again",
}
"""Options of commands that upload, by the problem that they accept."""

GIVEN_EARLIER = "Given everything that was released before,"
"""The condition of the odds of a single job."""

NOTHING_TOLD = "not told: the noise outweighs the counts"
"""What an accuracy says whose noisy counts are all below zero."""

SIMILAR_UNITS = (
    "stored units that differ from this one by leading zeros, case, the spelling of a number (17 and 17.0) or a "
    'spreadsheet\'s signs of a text (="17") alone, and were not erased: {}; if such a unit is the same person, erase '
    "it by its own value"
)

_CHANGES = {
    "label": "a label changed",
    "add_remove": "added or removed",
    "replace_one": "replaced",
}


class Unwritten(OSError):
    """Standard output takes no more, such as a file on a full disk. What the service
    has done is done.
    """


@contextmanager
def _written() -> Iterator[None]:
    try:
        yield
    except OSError as error:
        # what is left in the stream would fail again at the end of the process
        if sys.stdout is sys.__stdout__:
            nowhere = os.open(os.devnull, os.O_WRONLY)
            os.dup2(nowhere, 1)
            os.close(nowhere)
        if isinstance(error, BrokenPipeError):
            raise
        raise Unwritten(error.errno, error.strerror) from error


class Output:
    """The output of one command."""

    def __init__(self, *, as_json: bool) -> None:
        self.as_json = as_json

    def json(self, value: object) -> None:
        """Prints a value as JSON, with ``--json`` only."""
        if self.as_json:
            with _written():
                print(json.dumps(value, indent=2), flush=True)

    def answer(self, value: object) -> None:
        """Prints an answer as JSON and ends the command, with ``--json`` only; what
        follows is for people.
        """
        if self.as_json:
            self.json(value)
            raise typer.Exit

    def say(self, text: str = "") -> None:
        """Prints a line, unless the output is JSON."""
        if not self.as_json:
            with _written():
                print(text, flush=True)

    def hint(self, *commands: str) -> None:
        """Prints the next commands."""
        self.say()
        for prefix, command in zip(
            ("next: ", *("      " for _ in commands)), commands, strict=False
        ):
            self.say(f"{prefix}{command}")

    def facts(self, facts: Mapping[str, object]) -> None:
        """Prints names and values, one pair per line, without the names that have no
        value.
        """
        width = max(map(len, facts), default=0) + 2
        for name, value in facts.items():
            if value is not None:
                self.say(f"{name:<{width}}{value}")

    def parameters(self, parameters: Mapping[str, object]) -> None:
        """Prints the parameters of a job as a user types them."""
        self.table(
            ["parameter", "value"], list(parameters.items()), empty="no parameters"
        )

    def table(
        self,
        columns: Sequence[str],
        rows: Iterable[Sequence[object]],
        *,
        empty: str,
        indent: int = 0,
    ) -> None:
        """Prints a table, or the sentence ``empty`` if there are no rows."""
        if self.as_json:
            return
        # rich takes 0.05 s of CPU, which ``--json`` need not spend
        from grovekeeper_client.cli import tables

        with _written():
            tables.print_table(columns, rows, empty=empty, indent=indent)

    def adds(self, guarantee: JsonMapping) -> None:
        """Prints in one line what a release adds, where the caller may know it."""
        if "adds" not in guarantee:
            return
        added = guarantee["adds"]
        symbol = SYMBOLS.get(added["unit"], added["unit"])
        losses = _by_change(added, lambda loss: f"{loss} {symbol}")
        self.say(f"adds, given all earlier releases: {losses}")

    def guarantee(self, guarantee: JsonMapping) -> None:
        """Prints the numbers of a guarantee, then the statement that holds for them.

        Of a dataset that the caller may not see, a card states only what the model
        adds.
        """
        self.adds(guarantee)
        if "adds" in guarantee:
            odds = guarantee["adds"].get("odds", {})
            self.odds(odds, condition=GIVEN_EARLIER)
        if "text" not in guarantee:
            return
        whole = _by_change(guarantee, _epsilon_delta) or _epsilon_delta(guarantee)
        self.say(f"all outputs together, until the cap is raised: {whole}")
        self.odds(guarantee.get("odds", {}))
        self.say(guarantee["text"])

    def promise(self, released: JsonMapping, *, receipt: bool) -> None:
        """Prints the guarantee of a release, and its receipt on request."""
        self.say()
        self.guarantee(released["guarantee"])
        self._receipt(released, wanted=receipt)

    def price_paid(self, released: JsonMapping, *, receipt: bool, show: str) -> None:
        """Prints what a new release adds, and its receipt on request: the quote said in
        words what that means.

        Args:
            show: the command that prints the whole guarantee.
        """
        self.say()
        self.adds(released["guarantee"])
        self._receipt(released, wanted=receipt)
        self.hint(f"{show} {released['id']}    (also says what is promised)")

    def _receipt(self, released: JsonMapping, *, wanted: bool) -> None:
        if wanted:
            self.say()
            self.say(released["receipt"])

    def odds(self, odds: Mapping[str, str], *, condition: str = "") -> None:
        """Prints how often somebody who knows every other row guesses right, one line
        for each change.
        """
        for change, chance in odds.items():
            self.say(
                f"  {odds_words.sentence(change, chance, unit='privacy unit', condition=condition)}"
            )

    def warnings(self, answer: JsonMapping) -> None:
        """Prints the warnings of an answer, each as a note."""
        for warning in answer["warnings"]:
            self.say(f"note: {warning}")

    def complain(self, text: str) -> None:
        """Prints a line on stderr."""
        print(text, file=sys.stderr)

    def problem(self, body: JsonMapping, sentence: str) -> None:
        """Prints a problem: as the service's JSON, or in words on stderr, also where
        stdout takes no more.
        """
        if self.as_json:
            with suppress(Unwritten):
                self.json(body)
                return
        word = (
            "refused"
            if problems.of_problem(str(body.get("type"))) is problems.ExitCode.REFUSED
            else "not done"
        )
        self.complain(f"{word}: {sentence.removesuffix('; see errors')}")
        if "largest_that_fits" in body:
            self.complain(f"  largest ε that fits: {body['largest_that_fits']}")
        for error in body.get("errors", ()):
            self.complain(f"  {problems.in_words(error)}")
        for column in body.get("columns", ()):
            self.complain(f"  {column_in_words(column)}")
        if body.get("similar_units"):
            self.complain(f"  {SIMILAR_UNITS.format(body['similar_units'])}")
        if body.get("type") in _INSISTING:
            self.complain(
                f"  to store the file nevertheless, add {_INSISTING[body['type']]}"
            )


def amount(account: JsonMapping, name: str = "amount") -> str:
    """An amount with the symbol of its unit: ``0.7 ε``."""
    return f"{account[name]} {SYMBOLS.get(account['unit'], account['unit'])}"


def key_in_words(key_id: str, names: Mapping[str, str]) -> str:
    """A key with its name, where the reader may know it."""
    return f"{names[key_id]} ({key_id})" if key_id in names else key_id


def last_use(item: JsonMapping) -> str | None:
    """The hour in which a key, or that of a grant, was last used."""
    used_at = item["last_used_at"]
    return None if used_at is None else hour_in_words(used_at)


def price_with_epsilon(price: JsonMapping) -> str:
    """A price, and the ε that was requested where the account has another unit."""
    if price["unit"] == "epsilon":
        return amount(price)
    return f"{amount(price)} (ε = {price['epsilon']})"


def accuracy_in_words(accuracy: JsonMapping | None) -> str:
    """A released accuracy with its 95 % interval for the evaluated rows."""
    if accuracy is None:
        return NO_SCORE
    if accuracy["estimate"] is None:
        return NOTHING_TOLD
    share = share_in_words(accuracy["estimate"])
    shown = f"{share} ({interval_in_words(accuracy['interval'])})"
    return f"{shown} {ON_TRAINING_ROWS}" if accuracy["on_training_rows"] else shown


def score_in_words(model: JsonMapping) -> str:
    """The newest released accuracy of a listed model, or the mean absolute error of one
    that predicts a number.
    """
    if model["error"] is None:
        return accuracy_in_words(model["accuracy"])
    return f"MAE {error_with_interval(model['error'])}"


def error_with_interval(error: JsonMapping) -> str:
    """A released mean of errors with its 95 % interval for the evaluated rows."""
    value, interval = mean_error_in_words(error)
    shown = f"{value} ({interval})"
    return f"{shown} {ON_TRAINING_ROWS}" if error["on_training_rows"] else shown


def interval_in_words(interval: Mapping[str, float]) -> str:
    """Both ends of an interval of shares."""
    return f"{share_in_words(interval['low'])} to {share_in_words(interval['high'])}"


def _by_change(losses: JsonMapping, in_words: Callable[[Any], str]) -> str:
    """The losses that are stated for each change of one privacy unit."""
    return ", ".join(
        f"{in_words(losses[name])} ({change})"
        for name, change in _CHANGES.items()
        if losses.get(name)
    )


def _epsilon_delta(terms: JsonMapping) -> str:
    return f"ε = {terms['epsilon']}" + (
        f", δ = {terms['delta']}" if terms["delta"] != "0" else ""
    )


def budget_bar(*, cap: str, charged: str, reserved: str) -> str:
    """A bar of the charged and reserved parts of a cap, rounded down."""
    whole = Fraction(cap) or Fraction(1)
    spent = min(int(Fraction(charged) / whole * _BAR_CELLS), _BAR_CELLS)
    held = (
        min(
            int((Fraction(charged) + Fraction(reserved)) / whole * _BAR_CELLS),
            _BAR_CELLS,
        )
        - spent
    )
    return "#" * spent + "=" * held + "." * (_BAR_CELLS - spent - held)
