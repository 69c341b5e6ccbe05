"""Decorates functions as commands: adds shared options, sets exit codes and reports
errors; parses shared arguments.

A parameter whose type is a dataclass stands for the options that are its fields, so
that commands share groups of options instead of repeating them.
"""

import functools
import inspect
import os
import re
import secrets
import shlex
import signal
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import MISSING, Field, dataclass, field, fields, is_dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, get_type_hints

import typer
from typer.core import TyperGroup

from grovekeeper_client.cli import problems
from grovekeeper_client.cli.output import Output, Unwritten, key_in_words
from grovekeeper_client.cli.problems import ExitCode, of_problem
from grovekeeper_client.errors import ApiProblem, NoKey, SecretForId, Unreachable
from grovekeeper_client.settings import key_of, source_of_key, url_of
from grovekeeper_common import strict_json
from grovekeeper_common.json_types import JsonObject
from grovekeeper_common.secret_files import read_secret

if TYPE_CHECKING:
    from grovekeeper_client.client import Client as Client
else:
    # httpx takes 0.11 s of CPU to import, which commands without a service need not
    # spend
    Client = Any


Columns = Mapping[str, str | Callable[[Any], object]]
"""By heading, the field of an item, or what makes a cell of an item. A list of names is
one cell.
"""


class WrongUse(Exception):
    """The usage of a command is invalid. ``str()`` states the reason."""


class Failed(Exception):
    """A command failed for a reason that no other error states.

    Args:
        kind: slug of the reason.
        sentence: the reason.
    """

    def __init__(self, kind: str, sentence: str) -> None:
        super().__init__(sentence)
        self.kind = kind


_NUMBERS = re.compile(
    "(?P<first>[0-9]{1,9})(?:[-–\N{NON-BREAKING HYPHEN}](?P<last>[0-9]{1,9}))?"
)
_MOST_CELLS = 1024
_NO_KEY = "no key: set GROVEKEEPER_API_KEY, or name a file with --key-file"
_KEY_REFUSED = (
    "the key in {} is unknown, revoked or expired: "
    "set another GROVEKEEPER_API_KEY, or name a file with --key-file"
)


@contextmanager
def one_attempt(output: Output, continued: str | None) -> Iterator[str]:
    """The idempotency key of one request, shown if no answer arrives, so that a
    repetition cannot spend twice.

    Args:
        continued: the key of an earlier attempt, if the command continues one.

    Raises:
        WrongUse: the key is empty, as from a variable that is not set: a generated key
            would spend again.
    """
    if continued == "":
        raise WrongUse("--idempotency-key is empty")
    key = continued or secrets.token_hex(16)
    try:
        yield key
    except (ApiProblem, Unreachable) as error:
        may_have_arrived = (
            error.may_have_arrived
            if isinstance(error, Unreachable)
            else error.status >= 500 or error.type == "idempotency-in-flight"
        )
        if may_have_arrived and not output.as_json:  # a program chooses its own key
            output.complain(
                f"the request may have arrived; to continue it, add --idempotency-key {key}"
            )
        raise


def option(help_: str, *names: str, default: Any = None, **typers: Any) -> Any:
    """An option of a command: the default of a parameter, or of a field of a group.

    Args:
        help_: its help text.
        names: by default that of the parameter.
        typers: what else ``typer.Option`` takes.
    """
    made = typer.Option(*names, help=help_, **typers)
    return field(default=default, metadata={"option": made})


def argument(help_: str, **typers: Any) -> Any:
    """An argument of a command, to stand in ``Annotated``."""
    return typer.Argument(help=help_, **typers)


@dataclass(frozen=True)
class Plain:
    """Options of every command."""

    as_json: bool = option(
        "Print one JSON value and nothing else on stdout.", "--json", default=False
    )

    @property
    def output(self) -> Output:
        """Where the command prints."""
        return Output(as_json=self.as_json)


@dataclass(frozen=True)
class Remote(Plain):
    """Options of every command that talks to a service."""

    url: str | None = option("Address of the service; default GROVEKEEPER_URL.")
    key_file: Path | None = option("File of the key; default GROVEKEEPER_API_KEY_FILE.")

    @contextmanager
    def client(self) -> Iterator[Client]:
        """A client with the address and the key of the options, the environment or the
        home, in this order.

        Raises:
            NoKey: no key is configured.
            WrongUse: a setting, the key, its file or the address is malformed, or a
                secret was typed as an id.
        """
        from grovekeeper_client.client import Client as Client

        try:
            url = url_of(os.environ) if self.url is None else self.url
            client = Client(url, self._key())
        except ValueError as error:
            raise WrongUse(str(error)) from error
        with client:
            try:
                yield client
            except ApiProblem as problem:
                if problem.type == "unauthenticated":
                    source = self.key_file or source_of_key(os.environ)
                    why = _KEY_REFUSED.format(source)
                    raise replace(problem, detail=why) from problem
                raise _with_similar(problem, client) from problem
            except SecretForId as error:
                raise WrongUse(str(error)) from None

    def _key(self) -> str:
        file = self.key_file
        if file is None:
            return key_of(os.environ)
        # not shown: a key may have been typed in its place
        return read_secret(file, "the file that --key-file names")

    def ask(self, request: Callable[[Client], Any], *, as_json: Any = None) -> Any:
        """Sends one request; with ``--json`` prints the answer and ends the command,
        otherwise returns it.

        Args:
            as_json: printed in place of an answer that is empty.
        """
        with self.client() as client:
            answer = request(client)
        self.output.answer(answer if as_json is None else as_json)
        return answer

    def ask_all(
        self, name: str, request: Callable[[Client], Iterable[Any]]
    ) -> list[Any]:
        """Sends the request of a list, whose JSON is an object with the items under a
        name.
        """
        items: list[Any] = self.ask(lambda client: {name: list(request(client))})[name]
        return items

    def show_all(
        self,
        name: str,
        request: Callable[[Client], Iterable[Any]],
        columns: Columns,
        *,
        empty: str | None = None,
        dataset: str | None = None,
    ) -> list[Any]:
        """Sends the request of a list, and prints the items as a table.

        Args:
            dataset: whose keys are shown with their names.
            empty: the sentence of an empty list; by default one for any list.
        """
        items = self.ask_all(name, request)
        names: dict[str, str] = {}
        if dataset is not None and not self.output.as_json:
            with self.client() as client:
                names = names_of_keys(client, dataset)
        rows = [
            [key_in_words(cell_of(item, made), names) for made in columns.values()]
            for item in items
        ]
        self.output.table(
            list(columns),
            rows,
            empty=empty or f"no {name} to show: none matches, or this key sees none",
        )
        return items


def names_of_keys(client: Client, dataset: str) -> dict[str, str]:
    """The names of the keys with a role on a dataset, by id; none for a caller who may
    not list them, or where they do not arrive.
    """
    with suppress(ApiProblem, Unreachable):
        grants = client.grants(dataset)
        return {grant["key_id"]: grant["key_name"] for grant in grants}
    return {}


def cell_of(item: Any, made: str | Callable[[Any], object]) -> Any:
    """A cell of an item of a list: a field by its name, or what a function makes."""
    value = item[made] if isinstance(made, str) else made(item)
    return ", ".join(value) if isinstance(value, list) else value


_AMOUNTS = frozenset(
    {
        "approval_above", "below", "delta", "epsilon", "largest_job", "mu", "rho", "unlabelled_epsilon",
    }
)  # fmt: skip
"""Options and arguments that are amounts: blanks around them do not count."""


def command(function: Callable[..., None]) -> Callable[..., None]:
    """Makes a function a typer command: expands option groups, maps named errors to
    exit codes.
    """
    signature = inspect.signature(function, eval_str=True)
    groups: dict[str, type[Any]] = {
        parameter.name: parameter.annotation
        for parameter in signature.parameters.values()
        if isinstance(parameter.annotation, type) and is_dataclass(parameter.annotation)
    }
    parameters: list[inspect.Parameter] = []
    own_first = sorted(
        signature.parameters.values(),
        key=lambda p: issubclass(groups.get(p.name, object), Plain),
    )
    for parameter in own_first:
        if parameter.name in groups:
            parameters += _options(groups[parameter.name])
        else:
            parameters.append(
                _keyword(parameter.name, parameter.annotation, parameter.default)
            )

    @functools.wraps(function)
    def wrapper(**values: Any) -> None:
        as_json = bool(values.get("as_json"))
        typed = dict(values)
        for name in _AMOUNTS & values.keys():
            values[name] = values[name] and values[name].strip()
        for name, group in groups.items():
            values[name] = group(
                **{item.name: values.pop(item.name) for item in fields(group)}
            )
        with problems.typed(typed), reported(Output(as_json=as_json)):
            function(**values)

    wrapper.__signature__ = signature.replace(parameters=parameters)  # type: ignore[attr-defined]
    wrapper.__annotations__ = {p.name: p.annotation for p in parameters}
    return wrapper


_SAME_ACTS = (
    {"add", "create", "make", "new", "open"},
    {"delete", "erase", "remove", "revoke", "rm"},
    {"get", "info", "show"},
    {"list", "ls"},
    {"change", "edit", "set", "update"},
)
"""Words that people use for one act: a group has one of them."""


class _Commands(TyperGroup):
    """Commands that know what other programs call them."""

    def resolve_command(self, ctx: Any, args: list[str]) -> Any:
        typed = args[0]
        if typed not in self.commands:
            others = set().union(*(words for words in _SAME_ACTS if typed in words))
            names = [name for name in self.commands if name in others]
            if names:
                meant = " or ".join(f"'{name}'" for name in names)
                ctx.fail(f"No such command '{typed}'. Did you mean {meant}?")
        return super().resolve_command(ctx, args)


class Group(typer.Typer):
    """A group of commands."""

    made = staticmethod(command)
    """Makes a function a command."""

    def __init__(self, text: str) -> None:
        super().__init__(cls=_Commands, help=text, no_args_is_help=True)

    def command(  # type: ignore[override]
        self, name: str
    ) -> Callable[[Callable[..., None]], Callable[..., None]]:
        """Adds a function to the group as :attr:`made` makes it a command."""
        add = super().command(name)
        return lambda function: add(self.made(function))


@contextmanager
def reported(output: Output) -> Iterator[None]:
    """Turns named errors into a sentence and an exit code; other errors keep their
    traceback.
    """
    try:
        yield
    except ApiProblem as problem:
        output.problem(problem.body, problem.detail)
        if problem.type == "internal" and not output.as_json:
            output.complain(f"  request id: {problem.request_id}")
        raise typer.Exit(of_problem(problem.type)) from problem
    except Unreachable as error:
        # one_attempt says how a command continues
        sentence = str(replace(error, idempotency_key=None))
        output.problem(
            {"type": "unreachable", "detail": sentence},
            f"{sentence}; --url names another address",
        )
        raise typer.Exit(ExitCode.UNREACHABLE) from error
    except NoKey as error:
        output.problem({"type": "no-key", "detail": _NO_KEY}, _NO_KEY)
        raise typer.Exit(ExitCode.NOT_ALLOWED) from error
    except KeyboardInterrupt as error:
        output.complain("interrupted")
        raise typer.Exit(ExitCode.FAILED) from error
    except WrongUse as error:
        output.problem({"type": "wrong-use", "detail": str(error)}, str(error))
        raise typer.Exit(ExitCode.WRONG_USE) from error
    except BrokenPipeError:
        raise  # the reader of the output has ended; typer ends quietly
    except Unwritten as error:
        output.complain(
            f"the output cannot be written: {error.strerror}; before you repeat a command that changes something, "
            "look whether it was done"
        )
        raise typer.Exit(ExitCode.FAILED) from error
    except OSError as error:
        sentence = ": ".join(
            str(part) for part in (error.filename, error.strerror) if part
        )
        output.problem({"type": "system", "detail": sentence}, sentence)
        raise typer.Exit(ExitCode.FAILED) from error
    except Failed as error:
        output.problem({"type": error.kind, "detail": str(error)}, str(error))
        raise typer.Exit(ExitCode.FAILED) from error


def _with_similar(problem: ApiProblem, client: Client) -> ApiProblem:
    """A problem about an unknown dataset or model, with what the typed words may have
    meant.

    Of a dataset these are similar names of visible datasets; of a model, the ids of
    models that have the name.
    """
    if problem.type != "not-found":
        return problem
    try:
        if problem.detail.startswith("no such model"):
            meant = [
                model["id"]
                for model in client.models()
                if model["name"] in problems.typed_words()
            ]
        elif problem.detail.startswith(("no such dataset", "no such account")):
            known = [dataset["name"] for dataset in client.datasets()]
            meant = problems.similar(problems.typed_words(), known)
        else:
            return problem
    except (ApiProblem, Unreachable):
        return problem
    return replace(problem, detail=f"{problem.detail}{problems.question(meant)}")


def on_key(
    client: Client, typed: str, act: Callable[[str], Any], *, dataset: str | None = None
) -> Any:
    """Acts on the key of an id, or else of a name among the keys that the caller may
    list.

    Args:
        dataset: whose owner may list the keys with a grant on it; only an admin may
            list all keys.

    Raises:
        WrongUse: several keys have the name.
    """
    try:
        return act(typed)
    except ApiProblem as problem:
        if problem.type != "not-found" or not problem.detail.startswith("no such key"):
            raise
        ids = _keys_of_name(client, typed, dataset)
        if not ids:
            named = (
                "by id or name"
                if dataset is None
                else "by id, or by name among those with a role on the dataset"
            )
            detail = (
                f"no such key, {named}; the id of a key stands before its dot, and an admin lists all keys with: "
                "grovekeeper keys list"
            )
            raise replace(problem, detail=detail) from None
    if len(ids) > 1:
        raise WrongUse(
            f"several keys have this name; name one by its id: {', '.join(ids)}"
        )
    return act(ids[0])


def _keys_of_name(client: Client, name: str, dataset: str | None) -> list[str]:
    """The ids of the keys of a name that were not revoked."""
    try:
        every = list(client.keys())
        return [
            key["id"]
            for key in every
            if key["name"] == name and key["revoked_at"] is None
        ]
    except ApiProblem as problem:
        if problem.type != "role-missing":
            raise
    grants = [] if dataset is None else client.grants(dataset)
    return [
        grant["key_id"]
        for grant in grants
        if grant["key_name"] == name and grant["revoked_at"] is None
    ]


def _options(group: type[Any]) -> list[inspect.Parameter]:
    hints = get_type_hints(group, include_extras=True)
    return [_keyword(item.name, hints[item.name], item) for item in fields(group)]


def _keyword(name: str, annotation: Any, default: Any) -> inspect.Parameter:
    """A parameter as typer reads it; fields hold defaults and options."""
    if isinstance(default, Field):
        if "option" in default.metadata:
            annotation = Annotated[annotation, default.metadata["option"]]
        default = default.default
    if default is MISSING:
        default = inspect.Parameter.empty
    return inspect.Parameter(
        name, inspect.Parameter.KEYWORD_ONLY, default=default, annotation=annotation
    )


DatasetArgument = Annotated[str, argument("Name or id of the dataset.")]
AccountArgument = Annotated[
    str, argument("Name or id of a dataset, or id of a population.")
]
ModelArgument = Annotated[str, argument("Id or alias of the model.")]
JobArgument = Annotated[str, argument("Id of the job.")]
KeyArgument = Annotated[str, argument("Id or name of the key.", metavar="KEY")]

ScopeOption = Annotated[
    list[str] | None,
    typer.Option(
        help="region=EU, shard=0,1 or shard=0-7 (may be repeated), or JSON; default all cells."
    ),
]

LabelOption = Annotated[
    str | None,
    typer.Option(help="Of a dataset with several labels, the one that the job reads."),
]

DeltaOption = Annotated[
    str | None,
    typer.Option(help="Such as 1e-6; default the δ of the account, if it has one."),
]
PurposeOption = Annotated[
    str | None, typer.Option(help="Why; auditors read it beside the charge, for good.")
]
AttemptOption = Annotated[str | None, typer.Option(help="Continue an earlier attempt.")]


def _seconds(typed: float | None) -> float | None:
    if typed is not None and not typed >= 0:  # the number "nan" is not
        raise typer.BadParameter("not a number of seconds, 0 or more")
    return typed


@dataclass(frozen=True)
class CapInUnits:
    """A cap in the unit of an account, instead of an ε."""

    rho: str | None = option("A ρ instead of ε, on zcdp accounts.")
    mu: str | None = option("A μ instead of ε, on gdp accounts.")

    @property
    def stated(self) -> dict[str, str]:
        """The members of a body that are stated."""
        return given(rho=self.rho, mu=self.mu)


@dataclass(frozen=True)
class Waiting:
    """Whether a command waits for its job, and for how long."""

    wait: bool = option(
        "Wait for the job, with a progress bar.", "--wait", default=False
    )
    timeout: float | None = option(
        "Seconds to wait at most. The job goes on.", callback=_seconds
    )


@dataclass(frozen=True)
class Submission(Waiting):
    """How a job is submitted and followed."""

    idempotency_key: AttemptOption = None


YesOption = Annotated[bool, typer.Option("--yes", help="Do not ask for confirmation.")]
ReceiptOption = Annotated[
    bool,
    typer.Option(
        "--receipt",
        help="Print every draw that the price pays for, and why they add up.",
    ),
]


def read_scope(
    typed: list[str] | None, declaration: Callable[[], JsonObject]
) -> JsonObject:
    """A scope as it was typed: ``region=EU``, ``shard=0,1`` or ``shard=0-7``, repeated
    as needed; or one JSON object.

    Categories that contain a comma need the JSON form.

    Args:
        declaration: fetches the dataset; called only for a cell that begins with a
            digit, which is a number or a range of numbers in a hash partition and text
            in a column partition.

    Raises:
        WrongUse: the text has neither form, or mixes them.
    """
    scope: dict[str, list[str]] = {}
    for word in typed or ():
        if word.startswith("{"):
            if len(typed or ()) > 1:
                raise WrongUse("a scope in JSON is the whole scope")
            return json_object(word.encode("utf-8", "surrogateescape"), "the scope")
        name, separator, listed = word.partition("=")
        if not (name and separator and listed):
            raise WrongUse("a scope is given as partition=cell, or as a JSON object")
        scope.setdefault(name, []).extend(listed.split(","))
    if not any(_NUMBERS.fullmatch(cell) for cells in scope.values() for cell in cells):
        return dict(scope)
    columns = {
        partition["name"]
        for partition in declaration()["partitions"]
        if partition["kind"] == "column"
    }
    return {
        name: cells if name in columns else [one for cell in cells for one in _of(cell)]
        for name, cells in scope.items()
    }


def _of(cell: str) -> list[int | str]:
    """The cells of a hash partition that a text names; what names none stays, and the
    service refuses it.
    """
    numbers = _NUMBERS.fullmatch(cell)
    if numbers is None:
        return [cell]
    first = int(numbers["first"])
    last = int(numbers["last"] or first)
    if not first <= last <= first + _MOST_CELLS:
        return [cell]
    return [*range(first, last + 1)]


def given(**members: Any) -> JsonObject:
    """The members of a body that have a value."""
    return {name: value for name, value in members.items() if value is not None}


def as_typed(
    arguments: Sequence[str],
    options: Mapping[str, str | float | Sequence[str] | bool | None],
) -> str:
    """Arguments and options as a user types them, without options that have no value."""
    words = list(arguments)
    for name, given in options.items():
        option = f"--{name.replace('_', '-')}"
        if given is True:
            words.append(option)
        if given is None or isinstance(given, bool):
            continue
        for value in [str(given)] if isinstance(given, str | float) else given:
            words += [option, value]
    return shlex.join(words)


def confirm(output: Output, question: str, *, yes: bool) -> None:
    """Asks for confirmation of a command that cannot be undone, unless ``yes``.

    Raises:
        WrongUse: ``--json`` without ``--yes``.
        typer.Abort: the answer is no.
    """
    if yes:
        return
    if output.as_json:
        raise WrongUse("--json asks no questions: add --yes")
    typer.confirm(question, abort=True, err=True)


def json_object(text: bytes, what: str) -> JsonObject:
    """A JSON object that was typed as one argument, or is in a file.

    Raises:
        WrongUse: the text is not a JSON object.
    """
    value = json_value(text, what)
    if not isinstance(value, dict):
        raise WrongUse(f"{what} is not a JSON object")
    return value


def json_value(text: bytes, what: str) -> Any:
    """The value of a JSON text, with or without a byte order mark.

    Raises:
        WrongUse: the text is not JSON; says where.
    """
    try:
        return strict_json.loads(text)
    except (ValueError, RecursionError):
        fault = strict_json.fault(text)
        raise WrongUse(f"{what} is not JSON: {fault}") from None


def read_bytes(file: Path) -> bytes:
    """The content of a file that the user named; of standard input for ``-``.

    Raises:
        WrongUse: the file cannot be read.
    """
    if file == Path("-"):
        return sys.stdin.buffer.read()
    try:
        return file.read_bytes()
    except OSError as error:
        raise WrongUse(f"{file} cannot be read: {error.strerror}") from error


@contextmanager
def ended_in_order() -> Iterator[None]:
    """Ends a command that is terminated or hung up as one that is interrupted, so that
    it leaves no unfinished file. Signals that the caller ignores stay ignored.
    """

    def end(number: int, _frame: object) -> None:
        raise SystemExit(128 + number)

    names = [name for name in ("SIGTERM", "SIGHUP") if hasattr(signal, name)]
    numbers = [signal.Signals[name] for name in names]
    fatal = [number for number in numbers if signal.getsignal(number) == signal.SIG_DFL]
    for number in fatal:
        signal.signal(number, end)
    try:
        yield
    finally:
        for number in fatal:
            signal.signal(number, signal.SIG_DFL)


def exists_already(file: Path) -> WrongUse:
    """The error for a file that must be new."""
    return WrongUse(f"{file} exists already; name another file")


def check_new(file: Path | None) -> None:
    """Checks that a download overwrites no file; without a file, nothing is written.

    Raises:
        WrongUse: the file exists, or its folder does not; or it is ``-``, which
            elsewhere is standard input or output.
    """
    if file is None:
        return
    if file == Path("-"):
        raise WrongUse("this command writes a file: name one in place of -")
    if os.path.lexists(file):
        raise exists_already(file)
    if not file.parent.is_dir():
        raise WrongUse(f"{file.parent} is not a folder")
