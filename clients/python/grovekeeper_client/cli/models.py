"""Implements ``grovekeeper models``, ``aliases`` and ``predict``."""

import codecs
import csv
import gzip
import io
import json
import zlib
from collections.abc import Iterable, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Annotated, Any, TypeAlias

import typer

from grovekeeper_client.cli import problems
from grovekeeper_client.cli.command import (
    DatasetArgument,
    Group,
    ModelArgument,
    ReceiptOption,
    Remote,
    WrongUse,
    YesOption,
    check_new,
    command,
    confirm,
    json_value,
    read_bytes,
)
from grovekeeper_client.cli.problems import ExitCode
from grovekeeper_common import strict_json, suspicions
from grovekeeper_common.number_text import BLANKS, number_of

app = Group("Look at model cards, take models away.")


@app.command("list")
def list_models(
    call: Remote,
    dataset: Annotated[str | None, typer.Option(help="Of this dataset only.")] = None,
    algorithm: Annotated[
        str | None, typer.Option(help="Of this algorithm only.")
    ] = None,
    alias: Annotated[
        str | None,
        typer.Option(help="Those that this alias names, such as production."),
    ] = None,
) -> None:
    """List the models that the key may see."""
    models = call.ask_all(
        "models",
        lambda client: client.models(dataset=dataset, algorithm=algorithm, alias=alias),
    )
    rows = [
        [
            item["id"],
            item["name"],
            ", ".join(item["aliases"]),
            item["dataset_name"],
            item["algorithm"],
            item["created_at"],
        ]
        for item in models
    ]
    call.output.table(
        ["id", "name", "aliases", "dataset", "algorithm", "trained"],
        rows,
        empty="no models",
    )


@app.command("show")
def show(call: Remote, model_id: ModelArgument, receipt: ReceiptOption = False) -> None:
    """Show a model card: the guarantee, the parameters, and the receipt on request."""
    card, output = call.ask(lambda client: client.model(model_id)), call.output
    output.facts(
        {
            "model": card["id"],
            "name": card["name"],
            "aliases": ", ".join(card["aliases"]) or None,
            "dataset": card["dataset_name"],
            "algorithm": card["algorithm"],
            "cells": json.dumps(card["scope"], ensure_ascii=False)
            if card["scope"]
            else "all",
            "profile": card["profile_id"],
            "trained": card["created_at"],
            "size": f"{card['size_bytes']} bytes",
            "SHA-256": card["digest"],
        }
    )
    if card["only_answer"] is not None:
        output.say(f"warning: {card['only_answer']['text']}")
    output.say()
    output.guarantee(card["guarantee"])
    if card["unlabelled"] is not None:
        also = card["unlabelled"]
        if also["dataset"] != card["dataset"]:
            output.say(f"For people in {also['dataset_name'] or 'the second dataset'}:")
            output.guarantee(also["guarantee"])
        output.say(also["persons_in_both"])
    output.say()
    if receipt:
        output.say(card["receipt"])
    output.parameters(card["parameters"])
    output.hint(
        f"grovekeeper predict {card['id']} ROWS.csv",
        *(
            []
            if receipt
            else [
                f"grovekeeper models show {model_id} --receipt    (every draw and its noise)"
            ]
        ),
    )


@app.command("delete")
def delete(call: Remote, model_id: ModelArgument, yes: YesOption = False) -> None:
    """Delete a model. Its charge stays."""
    confirm(call.output, f"Delete {model_id} for good?", yes=yes)
    call.ask(
        lambda client: client.delete_model(model_id),
        as_json={"model": model_id, "deleted": True},
    )
    call.output.say(f"deleted {model_id}")


@app.command("download")
def download(
    call: Remote,
    model_id: ModelArgument,
    file: Annotated[Path, typer.Argument(help="Where to; must not exist.")],
    artifact_format: Annotated[
        str, typer.Option("--format", help="safetensors or onnx.")
    ] = "safetensors",
    read_out: Annotated[
        str | None,
        typer.Option(help="Read-out of an ONNX file, if the model has several."),
    ] = None,
) -> None:
    """Download a model. A safetensors file is compared with the digest on the model
    card.
    """
    check_new(file)
    output = call.output
    with call.client() as client:
        expected = (
            client.model(model_id)["digest"]
            if artifact_format == "safetensors"
            else None
        )
        digest = client.download_model(
            model_id, file, artifact_format=artifact_format, read_out=read_out
        )
    if expected not in (None, digest):
        file.unlink()
        output.complain(
            "the bytes that came are not those of the model card; nothing was kept"
        )
        raise typer.Exit(ExitCode.FAILED)
    output.answer({"model": model_id, "file": str(file), "sha256": digest})
    output.say(f"wrote {file} ({file.stat().st_size} bytes, SHA-256 {digest})")
    output.hint(f"grovekeeper models show {model_id}    (its guarantee and receipt)")


@command
def predict(
    call: Remote,
    model_id: ModelArgument,
    file: Annotated[
        Path,
        typer.Argument(
            help="Rows: .csv with a header, .jsonl or JSON, or .gz.", metavar="ROWS"
        ),
    ],
    read_out: Annotated[
        str | None, typer.Option(help="Read-out: mv, ta or pa, if the model has them.")
    ] = None,
) -> None:
    """Predict rows. Predictions cost no budget, and nothing is stored."""
    from grovekeeper_client.models import predict_rows

    with call.client() as client:
        schema = client.model(model_id)["schema"]
        rows_in = read_rows(file, schema)
        check_columns(rows_in, schema)
        answer = predict_rows(
            client, model_id, rows_in, schema=schema, read_out=read_out
        )
    output = call.output
    output.answer(answer)
    for what, counts in (
        ("out of the declared bounds", "clamped"),
        ("of no declared category", "unseen"),
    ):
        for name, number in answer["counts"][counts].items():
            output.say(
                f"note: {name}: {number} of {len(rows_in)} rows {what}; {_SEEN_AS[counts]}"
            )
    rows = [
        [number, label, *(f"{probability:.3f}" for probability in probabilities)]
        for number, (label, probabilities) in enumerate(
            zip(answer["labels"], answer["probabilities"], strict=True), start=1
        )
    ]
    output.table(
        ["row", "label", *(f"P({name})" for name in answer["classes"])],
        rows,
        empty="no rows",
    )


_SEEN_AS = {
    "clamped": "the nearer bound counts",
    "unseen": "they count as one unknown category",
}
Rows: TypeAlias = list[dict[str, Any]]


def read_rows(file: Path, schema: Mapping[str, Any]) -> Rows:
    """Rows of a file, by its ending: ``.csv``, ``.jsonl``, or JSON (a list of rows or
    ``{"rows": […]}``).

    Args:
        file: plain or gzip; the ending ``.gz`` does not count.
        schema: the public schema on the model card, with the types of the columns.

    Raises:
        WrongUse: the file cannot be read, has another form or is empty, or a cell of a
            number column is not a number.
    """
    content = _unpacked(read_bytes(file), file)
    form = (
        file.with_suffix("") if file.suffix.lower() == ".gz" else file
    ).suffix.lower()
    if not content.strip():
        raise WrongUse(f"{file} is empty: {_FORMS}")
    _check_text(content, file)
    if form == ".csv":
        text = content.decode("utf-8-sig")
        _check_separator(text, file, schema)
        return from_csv(io.StringIO(text, newline=""), schema)
    if form not in (".json", ".jsonl") and not content.removeprefix(
        codecs.BOM_UTF8
    ).lstrip().startswith((b"[", b"{")):
        raise WrongUse(f"{file} does not say its form: {_FORMS}")
    return _from_json(content, file, is_lines=form == ".jsonl")


_FORMS = "predict takes .csv with a header, .jsonl and .json, each plain or gzip (.gz)"
_OTHER_FORMS = {
    b"PAR1": "Parquet",
    b"ARROW1": "Arrow",
    b"\xff\xff\xff\xff": "Arrow",
    b"PK": "a workbook or a zip archive",
    b"\xd0\xcf\x11\xe0": "a workbook",
}
"""Forms of files that are no text, by their first bytes."""


def _unpacked(content: bytes, file: Path) -> bytes:
    if not content.startswith(b"\x1f\x8b"):
        return content
    try:
        return gzip.decompress(content)
    except (OSError, EOFError, zlib.error):
        raise WrongUse(
            f"{file} looks like gzip and cannot be unpacked: it is cut off or damaged"
        ) from None


def _check_text(content: bytes, file: Path) -> None:
    """Checks that a file is UTF-8 text; says what it looks like if it is not."""
    for begin, form in _OTHER_FORMS.items():
        if content.startswith(begin):
            raise WrongUse(
                f"{file} looks like {form}: {_FORMS}; in Python, Model.predict takes a table of pyarrow"
            )
    with suppress(UnicodeDecodeError):
        content.decode("utf-8")
        if 0 not in content[:2]:  # as in UTF-16 without its mark
            return
    raise WrongUse(f"{file} is {suspicions.of_no_text(content)}")


def _check_separator(text: str, file: Path, schema: Mapping[str, Any]) -> None:
    """Checks that commas separate the names in the header, as an upload does."""
    columns = [
        *(feature["name"] for feature in schema["features"]),
        schema["label"]["name"],
    ]
    number, line = next(
        (number, line)
        for number, line in enumerate(text.splitlines(), start=1)
        if line.strip()
    )
    problem = suspicions.of_header_line(line, columns)
    if problem is not None:
        commas = "; commas are needed" if problem.problem == "separator" else ""
        raise WrongUse(f"{file}, line {number}: {problem.suspected}{commas}")


def _from_json(text: bytes, file: Path, *, is_lines: bool) -> Rows:
    if is_lines:
        lines = enumerate(text.removeprefix(codecs.BOM_UTF8).splitlines(), start=1)
        return _objects(
            [
                _json(line, f"{file}, line {number},")
                for number, line in lines
                if line.strip()
            ]
        )
    value = _json(text, str(file))
    return _objects(
        value["rows"] if isinstance(value, dict) and set(value) == {"rows"} else value
    )


def _json(text: bytes, what: str) -> Any:
    """The value of a JSON text in which NaN, as pandas and Python write it, is a
    missing value.

    Raises:
        WrongUse: the text is not JSON; or it has an infinity, for which there is no
            JSON.
    """
    with suppress(ValueError, RecursionError):
        return json.loads(
            text,
            parse_constant=_missing,
            parse_float=number_of,
            object_pairs_hook=strict_json.unique,
        )
    return json_value(text, what)


def _missing(constant: str) -> None:
    if constant != "NaN":
        raise ValueError("an infinity")


def from_csv(lines: Iterable[str], schema: Mapping[str, Any]) -> Rows:
    """Rows of CSV text with a header. The label's column is left out; an empty cell is
    missing.

    Raises:
        WrongUse: the header names a column twice, a row has more or fewer cells than
            the header, or a cell of a number column is not a number.
    """
    numbers = {
        feature["name"]
        for feature in schema["features"]
        if feature["type"] != "categorical"
    }
    label = schema["label"]["name"]
    marks = {*schema.get("missing_values", ())}
    declared = {
        feature["name"]: feature.get("categories", ()) for feature in schema["features"]
    }
    reader = csv.reader(lines, strict=True)
    rows = []
    try:
        header = next(reader, [])
        if len(set(header)) < len(header):
            raise WrongUse("the header names a column twice")
        for cells in reader:
            if not cells:
                if len(header) > 1:
                    continue
                # an empty line of a file of one column is its empty cell, as R and
                # spreadsheets write it
                cells = [""]
            if len(cells) != len(header):
                raise WrongUse(
                    f"line {reader.line_num} has not as many cells as the header"
                )
            row: dict[str, Any] = {}
            for name, text in zip(header, cells, strict=True):
                mark = text.strip(BLANKS)
                if mark in marks and mark not in declared.get(name, ()):
                    text = ""
                if name in numbers:
                    row[name] = _number(name, text, line=reader.line_num)
                elif name != label:
                    row[name] = text or None
            rows.append(row)
    except csv.Error as error:
        raise WrongUse(f"line {reader.line_num} is not CSV") from error
    return rows


def check_columns(rows: Rows, schema: Mapping[str, Any]) -> None:
    """Checks that the model reads every column of the rows, and that no column is
    absent whose values must not be.

    Raises:
        WrongUse: names the column, and the features that resemble it; or the absent
            columns.
    """
    known = [feature["name"] for feature in schema["features"]]
    for name in dict.fromkeys(name for row in rows for name in row):
        if name not in known:
            meant = problems.question(problems.similar([name], known))
            raise WrongUse(
                f"the rows have a column {name!r}, which the model does not read{meant}"
            )
    required = [
        feature["name"] for feature in schema["features"] if not feature["missing"]
    ]
    absent = [
        name for name in required if rows and not any(name in row for row in rows)
    ]
    if absent:
        raise WrongUse(
            f"the rows lack columns that the model needs: {', '.join(absent)}"
        )


def _number(name: str, text: str, *, line: int) -> int | float | None:
    try:
        return number_of(text)
    except ValueError:
        suspected = suspicions.of_no_numbers([text])
        why = "" if suspected is None else f": {suspected}"
        raise WrongUse(
            f"line {line}: the cell of {name} is not a number{why}"
        ) from None


def _objects(value: object) -> Rows:
    if not isinstance(value, list) or not all(isinstance(row, dict) for row in value):
        raise WrongUse(
            'the file holds no list of rows: a list of objects is needed, or {"rows": […]}'
        )
    return value


alias_commands = Group("Give models names that can move to other models.")

AliasArgument: TypeAlias = Annotated[
    str, typer.Argument(help="DATASET@NAME, such as bank@production.", metavar="ALIAS")
]


@alias_commands.command("list")
def list_aliases(call: Remote, dataset: DatasetArgument) -> None:
    """List the aliases of a dataset's models."""
    aliases = call.ask_all("aliases", lambda client: client.aliases(dataset))
    rows = [
        [f"{dataset}@{item['alias']}", item["model_id"], item["moved_at"]]
        for item in aliases
    ]
    call.output.table(["alias", "model", "since"], rows, empty="no aliases")


@alias_commands.command("set")
def put(call: Remote, alias: AliasArgument, model_id: ModelArgument) -> None:
    """Set an alias to a model. Later requests that use the alias reach that model."""
    dataset, name = _parts(alias)
    answer = call.ask(lambda client: client.put_alias(dataset, name, model_id))
    call.output.say(f"{alias} is {answer['model_id']}")
    call.output.hint(f"grovekeeper predict {alias} ROWS.csv")


@alias_commands.command("history")
def history(call: Remote, alias: AliasArgument) -> None:
    """Show which models an alias named, newest first, and who moved it."""
    dataset, name = _parts(alias)
    moves = call.ask_all("moves", lambda client: client.alias_moves(dataset, name))
    rows = [
        [move["moved_at"], move["model_id"] or "(removed)", move["moved_by"]]
        for move in moves
    ]
    call.output.table(["since", "model", "by"], rows, empty="no moves")


@alias_commands.command("remove")
def remove_alias(call: Remote, alias: AliasArgument) -> None:
    """Remove an alias. Its model and its history stay."""
    dataset, name = _parts(alias)
    call.ask(
        lambda client: client.delete_alias(dataset, name),
        as_json={"alias": alias, "removed": True},
    )
    call.output.say(f"removed {alias}")


def _parts(alias: str) -> tuple[str, str]:
    dataset, separator, name = alias.partition("@")
    if not (separator and dataset and name):
        raise WrongUse("an alias is DATASET@NAME, such as bank@production")
    return dataset, name
