"""Implements ``grovekeeper datasets``: drafts, checks and declares datasets, uploads
and erases rows, grants roles.
"""

import json
import shutil
import sys
import tempfile
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Annotated, Any

import typer

from grovekeeper_client import declarations, dummies
from grovekeeper_client.amounts import SYMBOLS
from grovekeeper_client.cli.command import (
    AttemptOption,
    Client,
    DatasetArgument,
    Group,
    KeyArgument,
    Plain,
    Remote,
    WrongUse,
    YesOption,
    argument,
    check_new,
    confirm,
    given,
    json_object,
    on_key,
    one_attempt,
    option,
    read_bytes,
)
from grovekeeper_client.cli.output import SIMILAR_UNITS, Output, amount, last_use
from grovekeeper_client.cli.written import Written, as_option
from grovekeeper_client.errors import ApiProblem, Unreachable
from grovekeeper_client.uploads import read_header
from grovekeeper_common import durable_files
from grovekeeper_common.declared_labels import labels_of, number_in_words
from grovekeeper_common.dummy_rows import NOTE
from grovekeeper_common.json_types import JsonMapping, JsonObject
from grovekeeper_common.limit_words import limit_in_words
from grovekeeper_common.number_text import number_of
from grovekeeper_common.number_words import counted
from grovekeeper_common.time_words import pace_in_words

_STAYS = (
    "What was spent on them stays spent. If a job has read them or waits to, the places of their units stay taken, and "
    "rows of a unit that had all its places are not stored again."
)

app = Group("Declare datasets, upload rows, grant roles.")

_LISTS = {
    "lacking": "to fill in, where the draft says null:",
    "to_confirm": "to confirm:",
    "optional": "optional, and not to be added after the declaration:",
}
"""What to do about a draft, by attribute of the draft."""


@dataclass(frozen=True)
class Choices:
    """What a data dictionary may leave open."""

    name: str | None = option("Name of the dataset.")
    label: list[str] | None = option(
        "The column to predict; of several, each job names its own."
    )
    cut: list[str] | None = option(
        "A column of numbers to predict, with the points that cut it into classes: los_days=3,7.",
        metavar="COLUMN=POINTS",
    )
    unit: str | None = option("The column that names the person.")
    table: str | None = option("Which of several tables.")

    @property
    def options(self) -> dict[str, Any]:
        """As arguments of a draft."""
        labels: dict[str, list[float]] = {name: [] for name in self.label or ()}
        for text in self.cut or ():
            column, points = _cut(text)
            labels[column] = points
        return {
            "name": self.name,
            "labels": labels or None,
            "unit": self.unit,
            "table": self.table,
        }


def _label(label: JsonMapping) -> str:
    if "classes" in label:
        values = ", ".join(label["classes"])
    else:
        values = number_in_words(label)
    return f"{label['name']}: {values}"


def _cut(text: str) -> tuple[str, list[float]]:
    """The column and the points of an option such as ``los_days=3,7``."""
    column, _, listed = text.rpartition("=")
    try:
        points = list(map(number_of, listed.split(",")))
    except ValueError:
        points = [None]
    numbers = [point for point in points if point is not None]
    if not column or len(numbers) < len(points):
        raise WrongUse(f"--cut takes a column and points: los_days=3,7, not {text}")
    return column, numbers


@dataclass(frozen=True)
class Declared:
    """What the owner decides, and no data dictionary says."""

    epsilon: str | None = option("The lifetime budget, as a pure account.")
    public_size: int | None = option("A round number of rows that may be published.")
    cells: int | None = option(
        "Number of hash cells, so that rows can be held back from training."
    )

    @property
    def members(self) -> JsonObject:
        """These decisions as members of a declaration."""
        return given(
            budget=None
            if self.epsilon is None
            else {"accountant": "pure", "epsilon": self.epsilon},
            public_size=self.public_size,
            partitions=None
            if self.cells is None
            else [{"name": "shard", "kind": "hash", "cells": self.cells}],
        )


@app.command("init")
def init(
    call: Plain,
    choices: Choices,
    declared: Declared,
    dictionary: Annotated[
        Path,
        argument(
            "JSON: the schema of a declaration, or a Frictionless table schema. Never rows."
        ),
    ],
    declaration: Annotated[
        Path | None,
        argument("A file for the draft; default standard output."),
    ] = None,
) -> None:
    """Make a draft of a declaration from a data dictionary, and list what it lacks.
    Reads no rows.
    """
    from grovekeeper_common import dictionaries

    if declaration == Path("-"):
        declaration = None  # standard output
    check_new(declaration)
    try:
        draft = dictionaries.draft_declaration(
            read_bytes(dictionary), **choices.options, also=declared.members
        )
    except (dictionaries.NotADictionary, dictionaries.DictionaryTooLarge) as error:
        raise WrongUse(str(error)) from None
    output = call.output
    text = json.dumps(draft.declaration, indent=1, ensure_ascii=False) + "\n"
    if declaration is not None:
        durable_files.write(declaration, text.encode("utf-8"), existing="refuse")
    remarks = {name: list(map(vars, getattr(draft, name))) for name in _LISTS}
    output.answer({"declaration": draft.declaration, **remarks})
    if declaration is None:
        print(text, end="")
    # on standard error, so that the draft alone can be piped
    for name, heading in _LISTS.items():
        if remarks[name]:
            output.complain(heading)
        for remark in remarks[name]:
            output.complain(f"  [ ] {remark['at']}: {remark['text']}")
    if declaration is not None:
        output.say(
            f"wrote {declaration}: {draft.declaration['name'] or 'a draft without a name'}"
        )
        first = "    (when the gaps are filled in)" if draft.lacking else ""
        output.hint(f"grovekeeper datasets check {declaration}{first}")


DeclarationArgument = Annotated[Path, argument("The declaration, as JSON.")]
CheckedRowsArgument = Annotated[
    Path | None,
    argument("A file of rows, which stays on this machine; - for standard input."),
]


@app.command("check")
def check(
    call: Remote, file: DeclarationArgument, rows: CheckedRowsArgument = None
) -> None:
    """Check a declaration by the rules of the service. Stores nothing."""
    if rows is not None:
        raise WrongUse(
            "rows are checked by the reader of the service, on this machine: pip install grovekeeper"
        )
    check_declaration(call, file)


def check_declaration(call: Remote, file: Path) -> None:
    """Prints what a declaration would become."""
    declaration = read_bytes(file)
    output = call.output
    checked = call.ask(lambda client: client.check_declaration(declaration))
    output.say(
        f"{checked['name']} breaks no rule; its lifetime budget would be {amount(checked['account'], 'cap')}"
    )
    output.say("all outputs together, until the cap is raised:")
    output.odds(checked["guarantee"].get("odds", {}))
    show_warnings(output, checked)
    output.hint(f"grovekeeper datasets create {file}")


@app.command("create")
def create(
    call: Remote,
    file: DeclarationArgument,
    idempotency_key: AttemptOption = None,
) -> None:
    """Declare a dataset: its public schema, its budget, its privacy unit."""
    declaration = read_bytes(file)
    output = call.output
    with call.client() as client:
        with one_attempt(output, idempotency_key) as key:
            dataset = client.declare_dataset(declaration, idempotency_key=key)
        output.answer(dataset)
        printed = _printed(client, dataset)
    cap = amount(dataset["account"], "cap") + (f": {printed}" if printed else "")
    output.say(
        f"declared {dataset['name']} ({dataset['id']}) with a lifetime budget of {cap}"
    )
    show_warnings(output, dataset)
    output.hint(f"grovekeeper datasets upload {dataset['name']} ROWS.csv")


@app.command("change")
def change(call: Remote, dataset: DatasetArgument, file: DeclarationArgument) -> None:
    """Declare other columns: names, bounds, categories, classes. Refused once there were
    rows or jobs.

    Only the schema of the declaration is sent. Privacy unit, protection, partitions,
    sizes and budget stay as they were declared; a file that states other ones is
    refused, for they need another dataset.
    """
    declaration = json_object(read_bytes(file), str(file))
    if "schema" not in declaration:
        raise WrongUse(f"{file} has no schema")
    schema = declaration["schema"]
    output = call.output
    with call.client() as client:
        before, etag = client.dataset_with_etag(dataset)
        if others := declarations.edited(declaration, before):
            raise WrongUse(
                f"nothing was changed: {file} states another {', '.join(others)} than {before['name']} has; "
                "these never change; declare another dataset"
                + _OF_CAP
                * ("budget" in others)
            )
        after = client.change_dataset(dataset, schema, etag=etag)
    output.answer(after)
    if before["schema"] == after["schema"]:
        output.say(f"{after['name']} has these columns already")
    else:
        output.say(f"changed the columns of {after['name']}")
    output.warnings(after)
    if not after["epochs"]:
        output.hint(f"grovekeeper datasets upload {after['name']} ROWS.csv")


_OF_CAP = (
    " (grovekeeper ledger cap changes the cap of a budget, and nothing else of it)"
)
ReferenceOption = Annotated[
    str | None,
    typer.Option(
        help="Your name of the request, such as its number. The acts keep it for good, so name no person."
    ),
]
UnitArgument = Annotated[
    str,
    argument("The value of the unit column, or - to read it from standard input."),
]
RowsArgument = Annotated[
    Path,
    argument(
        "CSV with a header row, plain or gzip; Parquet; Arrow or Feather; or - to read it from standard input."
    ),
]


@dataclass(frozen=True)
class UploadTerms(Written):
    """How a file is written, and what is refused unless the owner accepts it."""

    accept_unknown: bool = option(
        "Accept columns in which more than 5 % of the cells are undeclared or out of bounds, and marks "
        "such as NA in the unit column.",
        "--accept-unknown",
        default=False,
    )
    accept_empty: bool = option(
        "Store a file that has a header and no row.", "--accept-empty", default=False
    )


@app.command("upload")
def upload(
    call: Remote,
    dataset: DatasetArgument,
    file: RowsArgument,
    terms: UploadTerms,
    again: bool = option(
        "Store a file once more that was uploaded before.", "--again", default=False
    ),
    idempotency_key: AttemptOption = None,
) -> None:
    """Upload rows. The report is for the owner only."""
    with (
        rows_in(file) as rows,
        call.client() as client,
        one_attempt(call.output, idempotency_key) as key,
    ):
        report = _sent(
            call,
            rows,
            partial(client.upload_rows, dataset),
            again=again,
            idempotency_key=key,
            **terms.options,
        )
    call.output.answer(report)
    _print_report(call.output, dataset, report)


@app.command("replace-upload")
def replace_upload(
    call: Remote,
    dataset: DatasetArgument,
    upload: Annotated[str, argument("Id of the upload to erase.")],
    file: RowsArgument,
    terms: UploadTerms,
    yes: YesOption = False,
) -> None:
    """Check a corrected file, erase an upload, then upload the file in its place.

    The file is sent twice. Nothing is erased if the service refuses it. After the
    erasure, the upload can still fail: without a network, if the file changes
    meanwhile, or if the dataset is full.
    """
    require_file(file)
    output = call.output
    confirm(
        output,
        f"Erase the rows of upload {upload} from {dataset} for good, then upload {file}? {_STAYS}",
        yes=yes,
    )
    with call.client() as client:
        try:
            _sent(
                call,
                file,
                partial(client.check_replacement, dataset, upload),
                **terms.options,
            )
        except (ApiProblem, Unreachable, OSError):
            output.complain(f"nothing was erased: the rows of upload {upload} stay")
            raise
        erased = client.erase_upload(dataset, upload)
        if not output.as_json:
            _print_erasure(output, erased)
        try:
            with one_attempt(output, None) as key:
                report = _sent(
                    call,
                    file,
                    partial(client.upload_rows, dataset),
                    idempotency_key=key,
                    **terms.options,
                )
        except (ApiProblem, Unreachable, OSError):
            output.complain(
                f"upload {upload} is erased, and {file} was not stored: grovekeeper datasets upload {dataset}"
            )
            raise
    output.answer({"erased": erased, "stored": report})
    _print_report(output, dataset, report)


@contextmanager
def rows_in(file: Path) -> Iterator[Path]:
    """A file of rows that can be read. Where ``-`` stands for standard input, a copy of
    it that only this user may read, until the block ends: a file is read twice, and its
    size is known.
    """
    if file != Path("-"):
        require_file(file)
        yield file
        return
    if sys.stdin.isatty():
        raise WrongUse("- reads rows from standard input, and this is a terminal")
    with tempfile.NamedTemporaryFile(prefix="standard-input-") as copy:
        shutil.copyfileobj(sys.stdin.buffer, copy)
        copy.flush()
        yield Path(copy.name)


def require_file(file: Path) -> None:
    """Checks that a file of rows can be read."""
    if not file.is_file():
        raise WrongUse(f"{file} is not a file")
    try:
        file.open("rb").close()
    except OSError as error:
        raise WrongUse(f"{file} cannot be read: {error.strerror}") from None


def _sent(call: Remote, file: Path, send: Callable[..., Any], **options: Any) -> Any:
    """What the service answers to a file, whose progress is shown."""
    from grovekeeper_client.cli import tables  # loads rich

    with tables.progress_of_bytes(hidden=call.output.as_json) as progress:
        bar = progress.add_task(file.name, total=file.stat().st_size)
        try:
            return send(
                file,
                on_progress=lambda sent: progress.update(bar, completed=sent),
                **options,
            )
        except ApiProblem as problem:
            name_columns(problem.body.get("columns", ()), file, options)
            raise


def name_columns(
    columns: Iterable[JsonObject], file: Path, options: Mapping[str, Any]
) -> None:
    """Names the columns that are not declared: the service states their places and
    repeats no text of a file. Writes suspected options as this program takes them.
    """
    written = {
        name: options.get(name) or usual
        for name, usual in (("separator", ","), ("encoding", "utf-8"))
    }
    for column in columns:
        name, _, value = column.get("option", "").partition("=")
        if name in written:
            written[name] = value
        if name:
            column["option"] = as_option(column["option"])
        if "positions" in column:
            header = read_header(file, **written)
            places = [place for place in column["positions"] if place <= len(header)]
            column["names"] = [
                header[place - 1] or f"number {place} of the header" for place in places
            ]


def _print_report(output: Output, dataset: str, report: JsonObject) -> None:
    stored = "" if report["rows"] is None else f"{counted(report['rows'], 'row')} "
    output.say(f"stored {stored}as upload {report['epoch']}")
    output.warnings(report)
    counts = ("clamped", "missing", "unknown")
    rows = [
        [column["name"], *(column[name] for name in counts)]
        for column in report["columns"]
    ]
    shown = [row for row in rows if any(row[1:])]
    output.table(
        ["column", *counts], shown, empty="no cell was clamped, missing or unknown"
    )
    if 0 < len(shown) < len(rows):
        output.say("the other columns: none")
    if report["dropped"] is not None:
        without = report["dropped"]["without_unit"]
        over = report["dropped"]["over_bound"]
        output.say(
            f"dropped: {counted(without, 'row')} without a unit, {counted(over, 'row')} of units that had all theirs"
        )
    output.hint(
        f"grovekeeper datasets overlaps {dataset}    (counts rows, and rows that came twice)",
        f"grovekeeper plan {dataset} --epsilon 1",
    )


@app.command("uploads")
def uploads(call: Remote, dataset: DatasetArgument) -> None:
    """List the uploads to a dataset. For its owner, with the number of stored rows."""
    call.show_all(
        "uploads",
        lambda client: client.uploads(dataset),
        {
            "upload": "epoch",
            "at": "uploaded_at",
            "stored rows": "rows",
            "erased": "erased_at",
        },
        empty="no uploads yet",
    )


@app.command("list")
def list_datasets(
    call: Remote,
    name: str | None = option("A part of the name."),
    population: str | None = option("Name or id of a population: its members."),
    role: str | None = option("That the key was granted, such as owner."),
) -> None:
    """List the datasets that the key may see."""
    datasets = call.ask_all(
        "datasets",
        lambda client: client.datasets(name=name, population=population, role=role),
    )
    rows = [
        [
            item["name"],
            item["id"],
            *balance_cells(item["account"]),
            item["largest_that_fits"],
            (item["pace"] or {}).get("ends_on") or "",
            item["role"] or "",
            erased(item) or item["state"],
        ]
        for item in datasets
    ]
    amounts = ["cap", "charged", "reserved", "remaining", "fits now (ε)", "ends about"]
    call.output.table(
        ["name", "id", "accountant", *amounts, "your role", "state"],
        rows,
        empty="no datasets; declare one with: grovekeeper datasets create DECLARATION.json",
    )


@app.command("show")
def show(call: Remote, dataset: DatasetArgument) -> None:
    """Show the public facts of a dataset and its balance."""
    output = call.output
    with call.client() as client:
        answer = client.dataset(dataset)
        output.answer(answer)
        printed = _printed(client, answer)
    unit = answer["privacy_unit"]
    output.facts(
        {
            "name": answer["name"],
            "id": answer["id"],
            "declared": answer["created_at"],
            "erased": answer["deleted_at"] or "no",
            "continues": f"the account of the erased {answer['continues']}"
            if answer.get("continues")
            else None,
            "protects": answer["protects"]
            if not unit["column"]
            else f"{unit['column']} ({unit['form']}), at most {counted(unit['max_rows'], 'row')} each",
            "adjacency": answer["adjacency"],
            "public size": "not declared"
            if answer["public_size"] is None
            else counted(answer["public_size"], "row"),
            "population": answer["population"] or "none",
            "partitions": "; ".join(map(_partition, answer["partitions"])) or "none",
            "uploads": len(answer["epochs"]),
            "label": "; ".join(map(_label, labels_of(answer["schema"]))),
            **_account_facts(answer["account"]),
            "pace": pace_in_words(answer["pace"], SYMBOLS[answer["account"]["unit"]])
            or None,
            **({"guarantee": printed} if printed else {}),
        }
    )
    output.say()
    output.table(
        ["feature", "type", "values"],
        map(_feature, answer["schema"]["features"]),
        empty="no features",
    )


@dataclass(frozen=True)
class Dummies:
    """Where dummy rows go, and which."""

    output: Path | None = option(
        f"A new file that ends in {dummies.ENDINGS}; default CSV to standard output."
    )
    declaration: Path | None = option(
        "A new file for a like declaration, to declare the dataset on a service of your own."
    )
    seed: int = option("Other rows for another number.", default=0)

    def check(self) -> None:
        """Checks that both files can be written, before anything is.

        Raises:
            WrongUse: a file exists, has another ending, or is named twice.
        """
        check_new(self.output)
        check_new(self.declaration)
        if self.output is None:
            return
        try:
            dummies.check_form(self.output)
        except (ValueError, ModuleNotFoundError) as error:
            raise WrongUse(str(error)) from None
        same = self.declaration is not None and (
            self.declaration.resolve() == self.output.resolve()
        )
        if same:
            raise WrongUse(f"{self.output} is named for the rows and the declaration")


@app.command("dummy")
def dummy(
    call: Remote,
    dataset: DatasetArgument,
    rows: Annotated[int, argument("Number of rows.", min=0, max=dummies.MAX_ROWS)],
    options: Dummies,
) -> None:
    """Draw dummy rows from the public declaration, to develop a program with. They mean
    nothing: no row is read, and nothing is charged.
    """
    output = call.output
    file = options.output
    options.check()
    with call.client() as client:
        facts = client.dataset(dataset)
        balance = client.balance(dataset) if options.declaration is not None else None
    drawn = dummies.DummyRows(facts, rows, seed=options.seed)
    if file is not None:
        drawn.write(file)
    unlike = []
    # last, so that a declaration never stands beside half of the rows
    if options.declaration is not None and balance is not None:
        _write_like(options.declaration, dummies.declaration_like(facts, balance))
        unlike = dummies.not_alike(facts)
    written = {"columns": drawn.columns} if file is None else {"output": str(file)}
    notes = {"not_alike": unlike} if unlike else {}
    output.answer({"note": NOTE, "rows": rows, **notes, **written})
    if file is None:
        drawn.write_csv(sys.stdout)
    # on standard error, so that the rows alone can be piped
    for sentence in (NOTE, *unlike):
        output.complain(sentence)
    if file is not None:
        like = options.declaration or "LIKE.json"
        output.hint(
            f"grovekeeper datasets create {like}    (on a service of your own; --declaration writes the file)"
        )


def _write_like(file: Path, declaration: JsonMapping) -> None:
    text = json.dumps(declaration, indent=1, ensure_ascii=False) + "\n"
    durable_files.write(file, text.encode("utf-8"), existing="refuse")


@app.command("delete")
def delete(call: Remote, dataset: DatasetArgument, yes: YesOption = False) -> None:
    """Erase the rows of a dataset for good. Its ledger, its models and its name stay."""
    confirm(call.output, f"Erase the rows of {dataset} for good?", yes=yes)
    call.ask(
        lambda client: client.delete_dataset(dataset),
        as_json={"dataset": dataset, "deleted": True},
    )
    call.output.say(
        f"erased the rows of {dataset}; what was spent stays, and counts for the next dataset of this name"
    )


@app.command("erase-unit")
def erase_unit(
    call: Remote,
    dataset: DatasetArgument,
    unit: UnitArgument,
    reference: ReferenceOption = None,
    yes: YesOption = False,
) -> None:
    """Erase the rows of one unit. Spend stays spent."""
    unit = read_unit(unit, yes=yes)
    confirm(
        call.output, f"Erase the rows of this unit from {dataset} for good?", yes=yes
    )
    answer = call.ask(
        lambda client: client.erase_unit(dataset, unit, reference=reference)
    )
    n_erased = answer["erased"]
    n_rows = "the rows" if n_erased is None else counted(n_erased, "row")
    act = f"at {answer['at']} (act {answer['act']})"
    call.output.say(
        f"erased {n_rows} from {answer['dataset_name']} {act}; what was spent stays in the ledger"
    )
    if answer["similar_units"]:
        call.output.say(f"note: {SIMILAR_UNITS.format(answer['similar_units'])}")


def read_unit(argument: str, *, yes: bool) -> str:
    """The value of a unit column that an argument or standard input holds."""
    if argument != "-":
        return argument
    if not (yes or sys.stdin.isatty()):
        raise WrongUse("standard input holds the unit and cannot confirm: add --yes")
    text = sys.stdin.read()
    unit = text.removeprefix("\ufeff").rstrip("\r\n")
    if "\n" in unit:
        raise typer.BadParameter(
            "standard input has more than one line; one command erases one unit"
        )
    return unit


@app.command("erase-upload")
def erase_upload(
    call: Remote,
    dataset: DatasetArgument,
    upload: Annotated[str, argument("Id of the upload.")],
    yes: YesOption = False,
) -> None:
    """Erase the rows of one upload. Spend stays spent; places of units are free again
    if no job read the rows.
    """
    confirm(
        call.output,
        f"Erase the rows of upload {upload} from {dataset} for good? {_STAYS}",
        yes=yes,
    )
    answer = call.ask(lambda client: client.erase_upload(dataset, upload))
    _print_erasure(call.output, answer)


def _print_erasure(output: Output, answer: JsonObject) -> None:
    output.say(
        f"erased the rows of upload {answer['epoch']} from {answer['dataset_name']}"
    )
    output.say(answer["stays"])


@app.command("overlaps")
def overlaps(call: Remote, dataset: DatasetArgument) -> None:
    """Show which rows a dataset shares with your other datasets. For its owner only;
    changes nothing.
    """
    answer = call.ask(lambda client: client.overlaps(dataset))
    output = call.output
    rows = []
    for epoch in answer["epochs"]:
        known = epoch["rows"] is not None
        counts = [str(epoch["rows"]), str(epoch["distinct"])] if known else ["?", "?"]
        for shared in epoch["shared"] or [
            {"dataset_name": "", "population": "", "rows": 0 if known else "?"}
        ]:
            rows.append(
                [
                    epoch["epoch"],
                    *counts,
                    str(shared["rows"]),
                    shared["dataset_name"],
                    shared["population"] or "",
                ]
            )
    output.table(
        ["upload", "rows", "distinct", "shared", "with", "population"],
        rows,
        empty="no uploads yet",
    )
    if (
        any(epoch["shared"] for epoch in answer["epochs"])
        and answer["population"] is None
    ):
        output.hint(
            f"grovekeeper populations join {dataset} POPULATION    (if they are about the same people)"
        )


@app.command("grants")
def list_grants(call: Remote, dataset: DatasetArgument) -> None:
    """List who has which role on a dataset."""
    call.show_all(
        "grants",
        lambda client: client.grants(dataset),
        {
            "key": "key_id",
            "role": "role",
            "granted": "granted_at",
            "by": "granted_by",
            "key ends": "expires_at",
            "key revoked": "revoked_at",
            "last use of key": last_use,
        },
        dataset=dataset,
    )


@app.command("grant")
def grant(
    call: Remote,
    dataset: DatasetArgument,
    key: KeyArgument,
    role: Annotated[str, argument("owner, attester, analyst, predictor or auditor.")],
) -> None:
    """Grant a role on a dataset to a key."""
    granted = call.ask(
        lambda client: on_key(
            client,
            key,
            lambda key_id: client.grant(dataset, key_id, role),
            dataset=dataset,
        )
    )
    call.output.say(f"{_named(key, granted['key_id'])} is {role} on {dataset}")
    call.output.hint(f"grovekeeper datasets show {dataset}    (with that key)")


@app.command("revoke")
def revoke(call: Remote, dataset: DatasetArgument, key: KeyArgument) -> None:
    """Revoke a key's role on a dataset."""
    revoked = call.ask(
        lambda client: on_key(
            client, key, partial(_revoke, client, dataset), dataset=dataset
        )
    )
    call.output.say(f"{_named(key, revoked['key_id'])} has no role on {dataset}")


def _revoke(client: Client, dataset: str, key_id: str) -> JsonObject:
    client.revoke_grant(dataset, key_id)
    return {"dataset": dataset, "key_id": key_id, "role": None}


def _named(typed: str, key_id: str) -> str:
    """A key as it was typed, and its id."""
    return key_id if typed == key_id else f"{typed} ({key_id})"


def _account_facts(account: JsonObject) -> dict[str, str | None]:
    return {
        "accountant": account["accountant"],
        **{
            name: amount(account, name)
            for name in ("cap", "charged", "reserved", "remaining")
        },
        "for one job": f"{amount(account, 'available')}, {limit_of(account)}"
        if limit_of(account)
        else None,
    }


def erased(item: JsonObject) -> str:
    """When a dataset was erased, for a list: datasets of one name may follow each
    other.
    """
    return f"erased {item['deleted_at'][:10]}" if item["deleted_at"] else ""


def balance_cells(account: JsonObject) -> list[str]:
    """Accountant and the four amounts of an account, for a table."""
    left = account["remaining"]
    if limit_of(account):
        left += f" (for one job: {account['available']}, {account['limited_by'].replace('_', ' ')})"
    return [
        *(account[name] for name in ("accountant", "cap", "charged", "reserved")),
        left,
    ]


def limit_of(account: JsonObject) -> str | None:
    """The limit that leaves less to one job of the key than the cap does; ``None``
    where the cap decides.

    A list of populations states no room for a job: it has no such member.
    """
    limited_by = account.get("limited_by", "cap")
    return None if limited_by == "cap" else f"limited by {limit_in_words(limited_by)}"


def _printed(client: Client, dataset: JsonObject) -> str | None:
    """The (ε, δ) of an account that counts ρ or μ²; ``None`` if the balance cannot be
    read.

    The command succeeds without a balance, because a predictor may not read it and the
    main answer has arrived.
    """
    if dataset["account"]["accountant"] == "pure":
        return None
    try:
        guarantee = client.balance(dataset["id"])["guarantee"]
    except (ApiProblem, Unreachable):
        return None
    terms = guarantee[dataset["adjacency"]]
    return f"ε = {terms['epsilon']} at δ = {terms['delta']}"


def _partition(partition: JsonObject) -> str:
    match partition["kind"]:
        case "hash":
            return f"{partition['name']} ({partition['cells']} hash cells)"
        case "column":
            return f"{partition['name']} (by {partition['column']}: {', '.join(partition['cells'])})"
        case _:
            return f"{partition['name']} (by upload: {partition['how']})"


def _feature(feature: JsonObject) -> list[str]:
    if feature["type"] == "categorical":
        shown = feature["categories"][:6]
        more = len(feature["categories"]) - len(shown)
        values = ", ".join(shown) + (f" and {more} more" if more else "")
    else:
        values = f"{feature['lower']} to {feature['upper']}"
    return [
        feature["name"],
        feature["type"],
        values + (", or missing" if feature.get("missing") else ""),
    ]


def show_warnings(output: Output, declared: JsonMapping) -> None:
    """Prints the warnings about a declaration, of which the columns alone can change."""
    output.warnings(declared)
    if declared["public_size"] is None:
        output.say(
            "note: No public size is declared, and none can be added later. Forests are then sized for a small table, "
            "and quotes cannot say which accuracy to expect."
        )
