"""Implements ``grovekeeper models`` and ``predict``: shows, downloads and deletes models, and predicts rows."""

import json
from pathlib import Path
from typing import Annotated

import typer

from app.cli import prediction_rows
from app.cli.arguments import ModelArgument, ReceiptOption, check_new, confirm
from app.cli.command import Remote, command
from app.cli.exit_codes import ExitCode

app = typer.Typer(help="Look at model cards, take models away.", no_args_is_help=True)


@app.command("list")
@command
def list_models(
    call: Remote,
    dataset: Annotated[str | None, typer.Option(help="Of this dataset only.")] = None,
    algorithm: Annotated[str | None, typer.Option(help="Of this algorithm only.")] = None,
    alias: Annotated[str | None, typer.Option(help="Those that this alias names, such as production.")] = None,
) -> None:
    """List the models that the key may see."""
    with call.client() as client:
        models = list(client.models(dataset=dataset, algorithm=algorithm, alias=alias))
    call.output.answer({"models": models})
    rows = [
        [
            item["id"],
            item["name"],
            ", ".join(item["aliases"]),
            item["dataset_name"],
            item["algorithm"] + (" (no privacy)" if item["privacy"] == "none" else ""),
            item["created_at"],
        ]
        for item in models
    ]
    call.output.table(["id", "name", "aliases", "dataset", "algorithm", "trained"], rows, empty="no models")


@app.command("show")
@command
def show(call: Remote, model_id: ModelArgument, receipt: ReceiptOption = False) -> None:
    """Show a model card: the guarantee, the parameters, and the receipt on request."""
    with call.client() as client:
        card = client.model(model_id)
    output = call.output
    output.answer(card)
    output.facts(
        {
            "model": card["id"],
            "name": card["name"],
            "aliases": ", ".join(card["aliases"]) or None,
            "dataset": card["dataset_name"],
            "algorithm": card["algorithm"],
            "cells": json.dumps(card["scope"], ensure_ascii=False) if card["scope"] else "all",
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
        *([] if receipt else [f"grovekeeper models show {model_id} --receipt    (every draw and its noise)"]),
    )


@app.command("delete")
@command
def delete(
    call: Remote,
    model_id: ModelArgument,
    yes: Annotated[bool, typer.Option("--yes", help="Do not ask for confirmation.")] = False,
) -> None:
    """Delete a model. Its charge stays."""
    confirm(call.output, f"Delete {model_id} for good?", yes=yes)
    with call.client() as client:
        client.delete_model(model_id)
    call.output.answer({"model": model_id, "deleted": True})
    call.output.say(f"deleted {model_id}")


@app.command("download")
@command
def download(
    call: Remote,
    model_id: ModelArgument,
    file: Annotated[Path, typer.Argument(help="Where to; must not exist.", show_default=False)],
    artifact_format: Annotated[str, typer.Option("--format", help="safetensors or onnx.")] = "safetensors",
    read_out: Annotated[str | None, typer.Option(help="Read-out of an ONNX file, if the model has several.")] = None,
) -> None:
    """Download a model. A safetensors file is compared with the digest on the model card."""
    check_new(file)
    output = call.output
    with call.client() as client:
        expected = client.model(model_id)["digest"] if artifact_format == "safetensors" else None
        digest = client.download_model(model_id, file, artifact_format=artifact_format, read_out=read_out)
    if expected not in (None, digest):
        file.unlink()
        output.complain("the bytes that came are not those of the model card; nothing was kept")
        raise typer.Exit(ExitCode.FAILED)
    output.answer({"model": model_id, "file": str(file), "sha256": digest})
    output.say(f"wrote {file} ({file.stat().st_size} bytes, SHA-256 {digest})")
    output.hint(f"grovekeeper models show {model_id}    (its guarantee and receipt)")


@command
def predict(
    call: Remote,
    model_id: ModelArgument,
    file: Annotated[
        Path, typer.Argument(help="Rows: .csv with a header, .jsonl, or JSON.", show_default=False, metavar="ROWS")
    ],
    read_out: Annotated[str | None, typer.Option(help="Read-out: mv, ta or pa, if the model has them.")] = None,
) -> None:
    """Predict rows. Predictions cost no budget, and nothing is stored."""
    from grovekeeper_client.predictions import predict_rows

    with call.client() as client:
        schema = client.model(model_id)["schema"]
        rows_in = prediction_rows.read(file, schema)
        prediction_rows.check_columns(rows_in, schema)
        answer = predict_rows(client, model_id, rows_in, read_out=read_out)
    output = call.output
    output.answer(answer)
    rows = [
        [number, label, *(f"{probability:.3f}" for probability in probabilities)]
        for number, (label, probabilities) in enumerate(
            zip(answer["labels"], answer["probabilities"], strict=True), start=1
        )
    ]
    if answer["privacy"] == "none":
        output.say("no privacy: the model was trained on a public dataset")
    output.table(["row", "label", *(f"P({name})" for name in answer["classes"])], rows, empty="no rows")
