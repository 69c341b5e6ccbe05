"""Registers models of the service in MLflow, with the receipts of what they cost.

>>> version = adapter.register(gk.model("census@production"), "census-income")
"""

import json
from collections.abc import Iterator
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from grovekeeper_client.models import Model
from grovekeeper_common.json_types import JsonObject


def register(model: Model, name: str, *, read_out: str | None = None) -> Any:
    """Logs the ONNX form of a model as a run of MLflow's active experiment, and
    registers it as a new version.

    The run has the artifacts ``model`` and ``receipt``: the model's card and, of every
    account that paid, the charge's entry with its proof of inclusion and the checkpoint
    that it leads to (``grovekeeper verify NAME.proof.json --checkpoint
    NAME.checkpoint``). Run and version have tags ``grovekeeper.*``: ids, ε, δ, the
    account's unit and amount, number and hash of the entry, SHA-256 of the service's
    artifact (``digest``) and of the ONNX file. All of it is public to whoever sees the
    registry; no row is read, and nothing is charged.

    ``mlflow.pyfunc.load_model(version.source).predict(frame)`` answers arrays by name:
    ``label`` and ``probabilities``, or ``number`` where the label is a number. The
    frame has all columns of the model and an index from 0 on. An empty cell of a column
    of numbers is NaN; one of a column of categories is the empty text, because MLflow
    makes a text of ``None``.

    Args:
        model: of the service. The key reads the ledger (roles ``owner``, ``auditor``)
            and downloads the model.
        name: of the registered model in MLflow; need not exist.
        read_out: one of the card's ``read_outs``; default the model's.

    Returns:
        The ``ModelVersion`` of MLflow.

    Raises:
        ApiProblem: the key may not see the model or its entries; nothing was logged.
    """
    import mlflow
    import onnx

    with TemporaryDirectory() as folder:
        file = Path(folder) / "model.onnx"
        receipt = Path(folder) / "receipt"
        tags = {
            "onnx_sha256": model.download(
                file, artifact_format="onnx", read_out=read_out
            )
        }
        receipt.mkdir()
        (receipt / "card.json").write_text(json.dumps(model.card), encoding="utf-8")
        for part in _paying_parts(model):
            _write_evidence(model, part, receipt)
        tags |= _facts(model)
        tags = {f"grovekeeper.{fact}": value for fact, value in tags.items()}
        with mlflow.start_run(run_name=name, nested=mlflow.active_run() is not None):
            mlflow.set_tags(tags)
            mlflow.log_artifacts(str(receipt), "receipt")
            proto = onnx.load(file)
            signature = _signature(proto.graph)
            logged = mlflow.onnx.log_model(proto, name="model", signature=signature)
        return mlflow.register_model(logged.model_uri, name, tags=tags)


def _signature(graph: Any) -> Any:
    """The inputs and outputs of an ONNX graph, by which MLflow makes tensors of the
    columns of a frame.
    """
    from mlflow.models import ModelSignature
    from mlflow.types import Schema

    return ModelSignature(
        inputs=Schema(list(map(_tensor, graph.input))),
        outputs=Schema(list(map(_tensor, graph.output))),
    )


def _tensor(value: Any) -> Any:
    """A value of an ONNX graph as MLflow describes it; a side without a size is −1."""
    from mlflow.types import TensorSpec
    from onnx.helper import tensor_dtype_to_np_dtype

    kind = value.type.tensor_type
    shape = [side.dim_value or -1 for side in kind.shape.dim]
    return TensorSpec(tensor_dtype_to_np_dtype(kind.elem_type), shape, value.name)


def _paying_parts(model: Model) -> Iterator[JsonObject]:
    """The parts of a card that name an account: one, or two of a job on two datasets."""
    yield dict(model.card)
    if model.card["unlabelled"] is not None:
        yield model.card["unlabelled"]


def _charge(model: Model, part: JsonObject) -> JsonObject:
    ledger = part["ledger"]
    found = model.client.entries(ledger["dataset"], kind="charge", job=ledger["job_id"])
    return next(found)


def _write_evidence(model: Model, part: JsonObject, folder: Path) -> None:
    """A checkpoint, and the proof that the charge is among the entries before it."""
    account = part["ledger"]["dataset"]
    name = part["dataset_name"]
    checkpoint = model.client.checkpoint(account)
    size = int(checkpoint.splitlines()[1])
    sequence = _charge(model, part)["sequence"]
    proof = model.client.inclusion(account, sequence, size=size)
    (folder / f"{name}.checkpoint").write_text(checkpoint, encoding="utf-8")
    (folder / f"{name}.proof.json").write_text(json.dumps(proof), encoding="utf-8")


def _facts(model: Model) -> dict[str, str]:
    card = model.card
    price = model.client.job(card["job_id"])["price"]
    entry = _charge(model, dict(card))
    return {
        "service": model.client.url,
        "model": card["id"],
        "dataset": card["dataset_name"],
        "algorithm": card["algorithm"],
        "epsilon": price["epsilon"],
        "delta": price["delta"] or "0",
        "unit": price["unit"],
        "amount": price["amount"],
        "entry": str(entry["sequence"]),
        "entry_hash": entry["hash"],
        "digest": card["digest"],
    }
