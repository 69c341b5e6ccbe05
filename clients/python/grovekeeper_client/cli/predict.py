"""Implements ``grovekeeper predict``."""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

from grovekeeper_client.cli.command import (
    ModelArgument,
    Remote,
    WrongUse,
    argument,
    check_new,
    command,
    ended_in_order,
    option,
)
from grovekeeper_client.cli.output import Output
from grovekeeper_client.cli.prediction_rows import check_columns, read_rows
from grovekeeper_client.cli.written import Written
from grovekeeper_client.errors import ApiProblem, Unreachable
from grovekeeper_client.models import predict_rows
from grovekeeper_common.number_words import counted, few_digits
from grovekeeper_common.suspicions import composed


@dataclass(frozen=True)
class Target:
    """The file that predictions are written to."""

    output: Path | None = option(
        "File to write, of any number of rows: .csv, or with pyarrow .parquet "
        "or .arrow; must not exist."
    )
    keep: list[str] | None = option(
        "Column of the rows that stands before the predictions; repeatable."
    )


@command
def predict(
    call: Remote,
    model_id: ModelArgument,
    file: Annotated[
        Path,
        argument(
            "Rows: .csv with a header, .jsonl or JSON, or .gz; with --output and "
            "pyarrow also .parquet and .arrow.",
            metavar="ROWS",
        ),
    ],
    written: Written,
    target: Target,
    read_out: str | None = option("Read-out: mv, ta or pa, if the model has them."),
) -> None:
    """Predict rows. Predictions cost no budget, and nothing is stored."""
    if target.output is not None:
        keep = list(dict.fromkeys(map(composed, target.keep or ())))
        how = {"keep": keep, "read_out": read_out, "written": written}
        _predict_file(call, model_id, file, target.output, **how)
        return
    if target.keep:
        raise WrongUse("--keep goes with --output")
    with call.client() as client:
        schema = client.model(model_id)["schema"]
        rows_in = read_rows(file, schema, written)
        if not rows_in:
            raise WrongUse(f"{file} has no rows")
        names = dict.fromkeys(name for row in rows_in for name in row)
        check_columns(names, schema)
        answer = predict_rows(
            client, model_id, rows_in, schema=schema, read_out=read_out
        )
    output = call.output
    output.answer(answer)
    _say_counts(output, answer["counts"], len(rows_in))
    labels = answer["labels"]
    # a label that is a number has no probabilities
    shares = answer["probabilities"] or [[]] * len(labels)
    rows = [
        [number, label, *(f"{probability:.3f}" for probability in probabilities)]
        for number, (label, probabilities) in enumerate(
            zip(map(few_digits, labels), shares, strict=True), start=1
        )
    ]
    output.table(
        ["row", "label", *(f"P({name})" for name in answer["classes"])],
        rows,
        empty="no rows",
    )


def _predict_file(
    call: Remote,
    model_id: str,
    source: Path,
    target: Path,
    **how: Any,
) -> None:
    # pyarrow takes 0.2 s of CPU to load
    from grovekeeper_client.cli import prediction_files, tables

    check_new(target)
    if source.exists() and not (source.is_file() or source.is_dir()):
        raise WrongUse(
            f"{source} is a pipe or a device, and --output reads a file: write the "
            "rows into a file first"
        )
    output = call.output
    n_done = 0
    with (
        call.client() as client,
        tables.progress_of_rows(source.name) as show,
        ended_in_order(),
    ):

        def on_progress(n_rows: int, share: float) -> None:
            nonlocal n_done
            n_done = n_rows
            show(n_rows, share)

        card = client.model(model_id)
        task = prediction_files.Task(source, target, card, **how)
        try:
            answer = prediction_files.predict_file(client, task, on_progress)
        except (ApiProblem, Unreachable) as error:
            row = error.first_row if isinstance(error, ApiProblem) else None
            if row is None:
                what = f"the first {n_done} rows of {source} were answered, the others were not"
            else:
                what = f"row {row} of {source} is the first that was refused"
            output.complain(f"{what}; {target} was not written")
            raise
    output.answer({**answer, "output": str(target)})
    _say_counts(output, answer["counts"], answer["rows"])
    output.say(
        f"wrote {target}: {counted(answer['rows'], 'row')}, by {answer['model']}"
    )


def _say_counts(
    output: Output, counts: Mapping[str, Mapping[str, int]], n_rows: int
) -> None:
    """Says how many cells the model does not see as they are."""
    for what, kind in (
        ("out of the declared bounds", "clamped"),
        ("of no declared category", "unseen"),
    ):
        for name, number in counts[kind].items():
            output.say(
                f"note: {name}: {number} of {counted(n_rows, 'row')} {what}; {_SEEN_AS[kind]}"
            )


_SEEN_AS = {
    "clamped": "the nearer bound counts",
    "unseen": "they count as one unknown category",
}
