"""Prints the output of commands: text for people, or one JSON value on stdout with ``--json``.

Progress and problems go to stderr, so that stdout can be piped. Texts of the service are printed unchanged, never as
markup.
"""

import json
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from fractions import Fraction
from typing import TYPE_CHECKING, Any

import typer

from app.cli import problems
from app.cli.problems import ExitCode, of_problem
from app.wire import odds_words

if TYPE_CHECKING:  # rich takes 0.05 s of CPU to import, which ``--json`` and ``--help`` need not spend
    from rich.console import Console
    from rich.progress import Progress

_WIDTH_OF_A_PIPE = 200
_BAR_CELLS = 24
_INSISTING = {"cells-unread": "--accept-unknown", "upload-repeated": "--again"}
"""Options of commands that upload, by the problem that they accept."""

_SYMBOLS = {"epsilon": "ε", "rho": "ρ", "mu_squared": "μ²"}
GIVEN_EARLIER = "Given everything that was released before,"
"""The condition of the odds of a single job."""

_CHANGES = {"label": "a label changed", "add_remove": "added or removed", "replace_one": "replaced"}


class Output:
    """The output of one command."""

    def __init__(self, *, as_json: bool) -> None:
        self.as_json = as_json

    def json(self, value: object) -> None:
        """Prints a value as JSON, with ``--json`` only."""
        if self.as_json:
            print(json.dumps(value, indent=2))

    def answer(self, value: object) -> None:
        """Prints an answer as JSON and ends the command, with ``--json`` only; what follows is for people."""
        if self.as_json:
            self.json(value)
            raise typer.Exit

    def say(self, text: str = "") -> None:
        """Prints a line, unless the output is JSON."""
        if not self.as_json:
            print(text, flush=True)

    def hint(self, *commands: str) -> None:
        """Prints the next commands."""
        self.say()
        for prefix, command in zip(("next: ", *("      " for _ in commands)), commands, strict=False):
            self.say(f"{prefix}{command}")

    def facts(self, facts: Mapping[str, object]) -> None:
        """Prints names and values, one pair per line, without the names that have no value."""
        width = max(map(len, facts), default=0) + 2
        for name, value in facts.items():
            if value is not None:
                self.say(f"{name:<{width}}{value}")

    def parameters(self, parameters: Mapping[str, object]) -> None:
        """Prints the parameters of a job as a user types them."""
        self.table(["parameter", "value"], list(parameters.items()), empty="no parameters")

    def table(self, columns: Sequence[str], rows: Iterable[Sequence[object]], *, empty: str, indent: int = 0) -> None:
        """Prints a table, or the sentence ``empty`` if there are no rows."""
        if self.as_json:
            return
        from rich.box import SIMPLE_HEAD
        from rich.padding import Padding
        from rich.table import Table
        from rich.text import Text

        table = Table(box=SIMPLE_HEAD, show_edge=False, pad_edge=False)
        for column in columns:
            table.add_column(column, overflow="fold")
        for row in rows:
            table.add_row(*(Text("" if value is None else str(value)) for value in row))
        if table.row_count == 0:
            print(" " * indent + empty)
        else:
            console(error=False).print(Padding(table, (0, 0, 0, indent), expand=False))

    def guarantee(self, guarantee: Mapping[str, Any]) -> None:
        """Prints the numbers of a guarantee, then the statement that holds for them.

        Of a dataset that the caller may not see, a card states only what the model adds.
        """
        if "adds" in guarantee:
            added = guarantee["adds"]
            symbol = _SYMBOLS.get(added["unit"], added["unit"])
            self.say(f"adds, given all earlier releases: {_by_change(added, lambda loss: f'{loss} {symbol}')}")
            self.odds(added.get("odds", {}), condition=GIVEN_EARLIER)
        if "text" not in guarantee:
            return
        whole = _by_change(guarantee, _epsilon_delta) or _epsilon_delta(guarantee)
        self.say(f"all outputs together, until the cap is raised: {whole}")
        self.odds(guarantee.get("odds", {}))
        self.say(guarantee["text"])

    def odds(self, odds: Mapping[str, str], *, condition: str = "") -> None:
        """Prints how often somebody who knows every other row guesses right, one line for each change."""
        for change, chance in odds.items():
            self.say(f"  {odds_words.sentence(change, chance, unit='privacy unit', condition=condition)}")

    def warnings(self, answer: Mapping[str, Any]) -> None:
        """Prints the warnings of an answer, each as a note."""
        for warning in answer["warnings"]:
            self.say(f"note: {warning}")

    def complain(self, text: str) -> None:
        """Prints a line on stderr."""
        print(text, file=sys.stderr)

    def problem(self, body: Mapping[str, Any], sentence: str) -> None:
        """Prints a problem: as the service's JSON, or in words on stderr."""
        if self.as_json:
            self.json(body)
            return
        word = "refused" if of_problem(str(body.get("type"))) is ExitCode.REFUSED else "not done"
        self.complain(f"{word}: {sentence.removesuffix('; see errors')}")
        if "largest_that_fits" in body:
            self.complain(f"  largest ε that fits: {body['largest_that_fits']}")
        for error in body.get("errors", ()):
            self.complain(f"  {problems.in_words(error)}")
        for column in body.get("columns", ()):
            self.complain(f"  {problems.column_in_words(column)}")
        if body.get("type") in _INSISTING:
            self.complain(f"  to store the file nevertheless, add {_INSISTING[body['type']]}")

    @contextmanager
    def progress_of_bytes(self) -> Iterator["Progress"]:
        """A progress bar of bytes on stderr that redraws only on a terminal."""
        from rich.progress import BarColumn, DownloadColumn, Progress, TextColumn

        columns = (TextColumn("{task.description}", markup=False), BarColumn(), DownloadColumn())
        with Progress(*columns, console=console(error=True), disable=self.as_json) as progress:
            yield progress


def amount(account: Mapping[str, Any], name: str = "amount") -> str:
    """An amount with the symbol of its unit: ``0.7 ε``."""
    return f"{account[name]} {_SYMBOLS.get(account['unit'], account['unit'])}"


def _by_change(losses: Mapping[str, Any], in_words: Callable[[Any], str]) -> str:
    """The losses that are stated for each change of one privacy unit."""
    return ", ".join(f"{in_words(losses[name])} ({change})" for name, change in _CHANGES.items() if losses.get(name))


def _epsilon_delta(terms: Mapping[str, Any]) -> str:
    return f"ε = {terms['epsilon']}" + (f", δ = {terms['delta']}" if terms["delta"] != "0" else "")


def budget_bar(*, cap: str, charged: str, reserved: str) -> str:
    """A bar of the charged and reserved parts of a cap, rounded down."""
    whole = Fraction(cap) or Fraction(1)
    spent = min(int(Fraction(charged) / whole * _BAR_CELLS), _BAR_CELLS)
    held = min(int((Fraction(charged) + Fraction(reserved)) / whole * _BAR_CELLS), _BAR_CELLS) - spent
    return "#" * spent + "=" * held + "." * (_BAR_CELLS - spent - held)


def console(*, error: bool) -> "Console":
    """Standard output or standard error, as wide as the terminal."""
    from rich.console import Console

    is_terminal = (sys.stderr if error else sys.stdout).isatty()
    return Console(stderr=error, markup=False, highlight=False, width=None if is_terminal else _WIDTH_OF_A_PIPE)
