"""Implements ``grovekeeper models`` and ``aliases``."""

from pathlib import Path
from typing import Annotated

import typer

from grovekeeper_client.cli.command import (
    Columns,
    DatasetArgument,
    Group,
    ModelArgument,
    ReceiptOption,
    Remote,
    WrongUse,
    YesOption,
    argument,
    cell_of,
    check_new,
    confirm,
    option,
)
from grovekeeper_client.cli.output import Output, price_with_epsilon, score_in_words
from grovekeeper_client.cli.problems import ExitCode
from grovekeeper_common import scope_words, tree_words
from grovekeeper_common.json_types import JsonMapping
from grovekeeper_common.model_words import A_TREE, NO_IMPORTANCES
from grovekeeper_common.number_words import share_in_words

app = Group("Look at model cards, take models away.")

_COLUMNS: Columns = {
    "id": "id",
    "name": "name",
    "aliases": "aliases",
    "dataset": "dataset_name",
    "label": lambda item: item.get("label"),
    "algorithm": "algorithm",
    "cells": lambda item: _cells(item["scope"]),
    "leaves": "n_leaves",
    "price": lambda item: item["price"] and price_with_epsilon(item["price"]),
    "accuracy": score_in_words,
    "trained": "created_at",
    "submitted by": lambda item: item["submitted_by_name"] or item["submitted_by"],
    "purpose": "purpose",
}
"""The columns of a list of models: what :func:`cell_of` makes of a model."""

_COMPARED = (
    "id", "aliases", "dataset", "label", "cells", "algorithm", "leaves", "price", "accuracy"
)  # fmt: skip
"""The first rows of a comparison."""


@app.command("list")
def list_models(
    call: Remote,
    dataset: str | None = option("Of this dataset only."),
    algorithm: str | None = option("Of this algorithm only."),
    alias: str | None = option("Those that this alias names, such as production."),
) -> None:
    """List the models that the key may see, with the newest released accuracy."""
    call.show_all(
        "models",
        lambda client: client.models(dataset=dataset, algorithm=algorithm, alias=alias),
        _COLUMNS,
    )


@app.command("show")
def show(
    call: Remote,
    model_id: ModelArgument,
    receipt: ReceiptOption = False,
    tree: int | None = option("Show this tree, from 0 on, and not the card.", min=0),
) -> None:
    """Show a model card: the guarantee, the parameters, and the receipt on request; or
    one of its trees.
    """
    if tree is not None:
        _show_tree(call, model_id, tree)
        return
    with call.client() as client:
        card = client.model(model_id)
        use = client.importances(model_id)
    output = call.output
    output.answer(card | {"importances": use})
    output.facts(
        {
            "model": card["id"],
            "name": card["name"],
            "aliases": ", ".join(card["aliases"]) or None,
            "dataset": card["dataset_name"],
            "predicts": card["schema"]["label"]["name"],
            "algorithm": card["algorithm"],
            "cells": _cells(card["scope"]),
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
    output.say()
    _show_use(output, use)
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


def _show_tree(call: Remote, model_id: str, number: int) -> None:
    tree = call.ask(lambda client: client.tree(model_id, number))
    output = call.output
    output.say(f"tree {number} of {tree['n_trees']} ({A_TREE})")
    output.say()
    output.say(tree_words.as_text(tree))


@app.command("compare")
def compare(
    call: Remote,
    model_ids: Annotated[
        list[str],
        argument("Ids or aliases of two models or more.", metavar="MODEL"),
    ],
    receipt: ReceiptOption = False,
) -> None:
    """Compare models: price, parameters that differ, released accuracy, importances.
    Nothing is computed from rows.
    """
    if len(model_ids) < 2:
        raise WrongUse("a comparison takes two models or more")
    answer = call.ask(lambda client: client.compare_models(*model_ids))
    models = answer["models"]
    rows = {
        name: [cell_of(model, _COLUMNS[name]) for model in models] for name in _COMPARED
    }
    names = dict.fromkeys(name for model in models for name in model["parameters"])
    for name in names:
        rows[name] = [model["parameters"].get(name) for model in models]
    uses = [{use["name"]: use for use in model["features"]} for model in models]
    for name in dict.fromkeys(
        use["name"] for by_name in uses for use in by_name.values() if use["n_splits"]
    ):
        rows[f"looks at {name}"] = [_use_in_words(use.get(name)) for use in uses]
    output = call.output
    output.table(
        ["", *(model["name"] or model["id"] for model in models)],
        [[name, *values] for name, values in rows.items()],
        empty="no models",
    )
    if receipt:
        for model in models:
            output.say(f"\n{model['id']}:\n{model['receipt']}")


def _use_in_words(use: JsonMapping | None) -> str:
    """The importance of a feature, or its splits in a model without importances."""
    if use is None or not use["n_splits"]:
        return "–"
    if use["importance"] is None:
        return f"{use['n_splits']} splits"
    return share_in_words(use["importance"])


def _show_use(output: Output, use: JsonMapping) -> None:
    """What the trees look at: the features with splits, the most important first."""
    features = [feature for feature in use["features"] if feature["n_splits"]]
    features.sort(
        key=lambda feature: (-(feature["importance"] or 0), -feature["n_splits"])
    )
    output.table(
        ["feature", "splits", "importance"],
        [
            [
                feature["name"],
                feature["n_splits"],
                "" if feature["importance"] is None else _use_in_words(feature),
            ]
            for feature in features
        ],
        empty="no splits",
    )
    leaves = [
        f"{share_in_words(leaf['share'])} {leaf['label']}" for leaf in use["leaves"]
    ]
    if leaves:
        output.say(f"leaves by the class that they favour: {', '.join(leaves)}")
    if any(feature["importance"] is None for feature in features):
        output.say(NO_IMPORTANCES)


def _cells(scope: JsonMapping | None) -> str:
    return scope_words.cell(scope) if scope else "all"


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
    file: Annotated[Path, argument("Where to; must not exist.")],
    artifact_format: str = option(
        "safetensors or onnx.", "--format", default="safetensors"
    ),
    read_out: str | None = option(
        "Read-out of an ONNX file, if the model has several."
    ),
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


alias_commands = Group("Give models names that can move to other models.")

AliasArgument = Annotated[
    str, argument("DATASET@NAME, such as bank@production.", metavar="ALIAS")
]


@alias_commands.command("list")
def list_aliases(call: Remote, dataset: DatasetArgument) -> None:
    """List the aliases of a dataset's models."""
    call.show_all(
        "aliases",
        lambda client: client.aliases(dataset),
        {
            "alias": lambda item: f"{dataset}@{item['alias']}",
            "model": "model_id",
            "since": "moved_at",
        },
    )


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
    call.show_all(
        "moves",
        lambda client: client.alias_moves(dataset, name),
        {
            "since": "moved_at",
            "model": lambda move: move["model_id"] or "(removed)",
            "by": "moved_by",
        },
        dataset=dataset,
    )


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
