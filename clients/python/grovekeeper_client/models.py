"""Represents models, quotes and evaluations, and predicts any number of rows within the
limits of the API.
"""

import json
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from decimal import Decimal
from pathlib import Path
from typing import Any, Self, TypedDict, Unpack

from grovekeeper_client import rows as row_kinds
from grovekeeper_client.amounts import Amount, Price, to_text
from grovekeeper_client.client import Client
from grovekeeper_client.errors import ApiProblem
from grovekeeper_client.jobs import Job
from grovekeeper_client.rows import plain, read_arrays, read_stream, write_stream
from grovekeeper_client.views import Records, ShowsFields, facts
from grovekeeper_common import text_cells, tree_words
from grovekeeper_common.json_types import JsonMapping, JsonObject

MAX_ROWS = 10_000
"""Rows of one request."""

MAX_CELLS = 1_000_000
"""Rows times features of the model in one request, and rows times classes in its
answer.
"""

MAX_BYTES = 16 * 1024 * 1024
"""Bytes of one request."""


class EvaluationOptions(TypedDict, total=False):
    """Options of an evaluation.

    Attributes:
        delta: δ; default the δ of the account, if it has one.
        metrics: of ``accuracy``, ``confusion`` and ``auroc``, or of ``mae``, ``rmse``
            and ``r2`` where the label is a number; they share the price, default the
            first.
        largest_error: where the label is a number, larger errors count as this one;
            default the range of the label.
        dataset: id or name of another dataset to evaluate on.
        label: of a dataset with several; default the one that the model predicts.
        scope: cells to evaluate on, such as ``{"shard": [4]}``; default all.
        name: a name for the evaluation.
        purpose: the reason for the evaluation, which auditors read in the ledger, for
            good.
    """

    delta: Amount
    metrics: Sequence[str]
    largest_error: float
    dataset: str
    label: str
    scope: JsonMapping
    name: str
    purpose: str


@dataclass(frozen=True)
class Quote(ShowsFields):
    """What a job would cost. A quote reads no row and costs nothing.

    Attributes:
        price: exact price on the dataset. A job on two accounts costs the second one
            ``answer["unlabelled"]["price"]``, too.
        fits: whether each account covers its price now.
        largest_that_fits: the largest ε that the account covers for this request.
        limited_by: the limit that decides it, as in
            :class:`~grovekeeper_client.datasets.Balance`.
        odds: the largest probability that somebody who knows all rows of every other
            unit guesses one change right, given all earlier outputs; by change:
            ``add_remove`` and ``replace_one``, or ``label``.
        why: the reason for the algorithm, if ``auto`` chose it.
        receipt: each draw that the job would make, and why they cost no more than the
            price.
        warnings: sentences.
        answer: the whole answer of the service.
    """

    price: Price
    fits: bool
    largest_that_fits: Decimal
    limited_by: str
    odds: Mapping[str, float]
    why: str | None
    receipt: str = field(repr=False)
    warnings: tuple[str, ...]
    answer: JsonMapping = field(repr=False)

    @classmethod
    def from_json(cls, answer: JsonMapping) -> Self:
        """Reads the answer to a request for a quote."""
        return cls(
            price=Price.from_json(answer["price"]),
            fits=answer["fits"]
            and (answer.get("unlabelled") is None or answer["unlabelled"]["fits"]),
            largest_that_fits=Decimal(answer["largest_that_fits"]),
            limited_by=answer["limited_by"],
            odds={change: float(chance) for change, chance in answer["odds"].items()},
            why=answer.get("why"),
            receipt=answer["receipt"],
            warnings=tuple(answer["warnings"]),
            answer=answer,
        )


@dataclass(frozen=True)
class Evaluation(ShowsFields):
    """A released evaluation of a model; its numbers carry noise.

    Attributes:
        id: of the evaluation.
        accuracy: share of rows that the model answers correctly, or ``None`` if nothing
            can be said.
        interval: covers the accuracy on the evaluated rows with probability 0.95.
        population_interval: covers the accuracy on other rows of the same kind with
            probability 0.90.
        confusion: noisy numbers of rows by true class and then by answered class, if
            requested.
        auroc: area under the ROC curve, if requested and defined.
        mae: mean absolute error of a model that predicts a number, if requested.
        mae_interval: covers it on the evaluated rows with probability 0.95.
        rmse: root of the mean squared error, if requested.
        rmse_interval: covers it likewise.
        r2: share of the spread of the label that predictions explain, if requested.
        r2_interval: covers it likewise; without a lower end where the noise leaves none.
        answer: the whole answer of the service.
    """

    id: str
    accuracy: float | None
    interval: tuple[float, float] | None
    population_interval: tuple[float, float] | None
    confusion: Mapping[str, Mapping[str, float]] | None
    auroc: float | None
    mae: float | None
    mae_interval: tuple[float, float] | None
    rmse: float | None
    rmse_interval: tuple[float, float] | None
    r2: float | None
    r2_interval: tuple[float | None, float] | None
    answer: JsonMapping = field(repr=False)

    @classmethod
    def from_json(cls, answer: JsonMapping) -> Self:
        """Reads the answer of ``GET /evaluations/{id}``."""
        accuracy = answer["accuracy"]
        matrix = answer["confusion"]
        mae, rmse, r2 = (answer[name] for name in ("mae", "rmse", "r2"))
        return cls(
            id=answer["id"],
            accuracy=_estimate(accuracy),
            interval=None if accuracy is None else _ends(accuracy["interval"]),
            population_interval=None
            if accuracy is None
            else _ends(accuracy["population_interval"]),
            confusion=None if matrix is None else _by_class(matrix),
            auroc=_estimate(answer["auroc"]),
            mae=_estimate(mae),
            mae_interval=None if mae is None else _ends(mae["interval"]),
            rmse=_estimate(rmse),
            rmse_interval=None if rmse is None else _ends(rmse["interval"]),
            r2=_estimate(r2),
            r2_interval=None if r2 is None else _ends(r2["interval"]),
            answer=answer,
        )


@dataclass(frozen=True)
class Tree:
    """A tree of a model: what each split asks, and what each leaf alone answers.

    Attributes:
        answer: the whole answer of the service.
    """

    answer: JsonMapping = field(repr=False)

    def __str__(self) -> str:
        return tree_words.as_text(self.answer)

    def _repr_html_(self) -> str:
        return tree_words.as_svg(self.answer)


class Model:
    """A trained forest that the service keeps. Predictions cost no budget, however many
    are requested.

    Args:
        client: calls the service.
        card: answer of ``GET /models/{id}``.
    """

    def __init__(self, client: Client, card: JsonMapping) -> None:
        self.card = card
        self._client = client

    def __repr__(self) -> str:
        return f"Model({self.id!r}, algorithm={self.card['algorithm']!r})"

    def _repr_html_(self) -> str:
        card = self.card
        names = ("id", "name", "aliases", "algorithm", "parameters", "created_at")
        shown = {name: card.get(name) for name in names}
        shown |= {"dataset": card.get("dataset_name"), "cells": card.get("scope")}
        label = card["schema"]["label"]
        shown |= {"label": label["name"]}
        shown |= {fact: label.get(fact) for fact in ("classes", "lower", "upper")}
        return facts("Model", shown | {"guarantee": card["guarantee"].get("text")})

    @property
    def client(self) -> Client:
        """Calls the service with the key of the model's connection."""
        return self._client

    @property
    def id(self) -> str:
        """Id of the model."""
        return str(self.card["id"])

    @property
    def classes(self) -> list[str]:
        """Classes of the label, in the order of probabilities; none where the label is a
        number.
        """
        return list(self.card["schema"]["label"].get("classes", ()))

    @property
    def features(self) -> list[str]:
        """Names of the features, in declared order."""
        return [feature["name"] for feature in self.card["schema"]["features"]]

    @property
    def only_answer(self) -> str | None:
        """The class that the model answers whatever the row is; ``None`` unless its
        leaves show that there is one.
        """
        only = self.card["only_answer"]
        return None if only is None else str(only["label"])

    @property
    def guarantee(self) -> JsonMapping:
        """The privacy guarantee, in numbers and in words."""
        return dict(self.card["guarantee"])

    def importances(self) -> Records:
        """What the trees look at, for each feature in declared order: ``n_splits``, and
        ``importance``, a share of the decrease of impurity computed from released noisy
        counts (``None`` in models that release none). Costs nothing.
        """
        answer = self._client.importances(self.id)
        columns = ("name", "n_splits", "importance")
        return Records(answer["features"], columns=columns)

    def tree(self, number: int = 0) -> "Tree":
        """One tree, its first four levels: printed as text, in a notebook as a picture.
        Costs nothing.
        """
        return Tree(self._client.tree(self.id, number))

    def leaf_shares(self) -> dict[str, float]:
        """The share of the leaves that favour each class alone. Costs nothing."""
        leaves = self._client.importances(self.id)["leaves"]
        return {leaf["label"]: leaf["share"] for leaf in leaves}

    def predict(self, rows: Any, *, read_out: str | None = None) -> Any:
        """Labels of rows, classes or numbers, in the kind of the rows.

        Args:
            rows: a DataFrame, an Arrow table, an array, a mapping of columns, or a list
                of rows; any number of them.
            read_out: one of the card's ``read_outs``; default the model's.

        Returns:
            A Series, an Arrow array, a NumPy array, or a list.

        Raises:
            ValueError: the columns are not those of the model.
            TypeError: a cell has a type that its feature does not take.
        """
        table = row_kinds.read(rows, self.card["schema"])
        return table.labels(
            self._answer(table, read_out)["labels"],
            name=self.card["schema"]["label"]["name"],
            is_number=not self.classes,
        )

    def predict_proba(self, rows: Any, *, read_out: str | None = None) -> Any:
        """Probabilities by row and class, in the kind of the rows; see :meth:`predict`.

        Raises:
            ValueError: the label is a number.
        """
        if not self.classes:
            raise ValueError("the model predicts a number, which has no probabilities")
        table = row_kinds.read(rows, self.card["schema"])
        return table.probabilities(
            self._answer(table, read_out)["probabilities"], classes=self.classes
        )

    def answer(self, rows: Any, *, read_out: str | None = None) -> JsonMapping:
        """Lists of ``classes``, ``labels`` and ``probabilities`` for rows of any kind;
        see :meth:`predict`. A model of numbers has ``labels`` alone.

        ``counts`` has the cells that the model does not see as they are, by column:
        ``clamped`` numbers, which are out of the declared bounds, and ``unseen``
        categories, which are not declared.
        """
        return self._answer(row_kinds.read(rows, self.card["schema"]), read_out)

    def quote_evaluation(
        self, epsilon: Amount, **options: Unpack[EvaluationOptions]
    ) -> Quote:
        """The price of an evaluation; costs nothing."""
        return Quote.from_json(
            self._client.quote_evaluation(self.id, _evaluation(epsilon, options))
        )

    def evaluate(
        self,
        epsilon: Amount,
        *,
        idempotency_key: str | None = None,
        **options: Unpack[EvaluationOptions],
    ) -> Job[Evaluation]:
        """Evaluates the model privately. Evaluate on held-out cells, whose rows alone
        pay.

        Args:
            epsilon: ε of the evaluation.
            idempotency_key: the key of an earlier attempt, whose job is then returned.
            options: see :class:`EvaluationOptions`.

        Raises:
            Refused: the budget does not cover the price; nothing was charged.
        """
        body = _evaluation(epsilon, options)
        accepted = self._client.evaluate(self.id, body, idempotency_key=idempotency_key)
        return Job(
            self._client,
            accepted["job_id"],
            lambda job: evaluation_of(self._client, job),
        )

    def download(
        self,
        file: Path | str,
        *,
        artifact_format: str = "safetensors",
        read_out: str | None = None,
    ) -> str:
        """Writes the model to a file, as ``safetensors`` or ``onnx``, and returns the
        SHA-256 of its bytes.
        """
        return self._client.download_model(
            self.id, Path(file), artifact_format=artifact_format, read_out=read_out
        )

    def _answer(self, table: row_kinds.Rows, read_out: str | None) -> JsonObject:
        schema = self.card["schema"]
        if table.table is not None:
            return predict_table(
                self._client, self.id, table.table, schema=schema, read_out=read_out
            )
        columns = table.columns
        n_rows = table.n_rows
        return predict_columns(
            self._client,
            self.id,
            columns,
            n_rows=n_rows,
            schema=schema,
            read_out=read_out,
        )


def model_of(client: Client, job: JsonMapping) -> Model:
    """The model that a training job made."""
    return Model(client, client.model(job["model_id"]))


def evaluation_of(client: Client, job: JsonMapping) -> Evaluation:
    """The evaluation that a job released."""
    return Evaluation.from_json(client.evaluation(job["evaluation_id"]))


def _evaluation(epsilon: Amount, options: EvaluationOptions) -> JsonObject:
    body = plain(
        {
            name: value
            for name, value in options.items()
            if value is not None and name != "delta"
        }
    )
    delta = options.get("delta")
    amounts = {"epsilon": epsilon, "delta": delta}
    return {
        **body,
        **{
            name: to_text(amount)
            for name, amount in amounts.items()
            if amount is not None
        },
    }


def _estimate(number: Mapping[str, float | None] | None) -> float | None:
    return None if number is None else number["estimate"]


def _ends(interval: Mapping[str, float]) -> tuple[float, float]:
    return interval["low"], interval["high"]


def _by_class(matrix: JsonMapping) -> dict[str, dict[str, float]]:
    classes = matrix["classes"]
    return {
        true_class: dict(zip(classes, counts, strict=True))
        for true_class, counts in zip(classes, matrix["counts"], strict=True)
    }


def predict_rows(
    client: Client,
    model_id: str,
    rows: Sequence[JsonMapping],
    *,
    schema: JsonMapping,
    read_out: str | None = None,
) -> JsonObject:
    """Predictions for rows, each a mapping from feature to cell. Texts that the schema
    declares to mean a missing value are missing.

    Args:
        client: calls the service.
        model_id: of a model.
        rows: any number of them.
        schema: on the model's card.
        read_out: default the model's.
    """
    shape = len(rows), n_rows_at_once(schema)
    marks = text_cells.marks_of(schema)

    def read(row: JsonMapping) -> JsonObject:
        return {
            name: None if text_cells.is_mark(cell, marks.get(name, ())) else cell
            for name, cell in row.items()
        }

    if any(marks.values()):
        rows = list(map(read, rows))
    return _in_parts(
        client,
        model_id,
        lambda start, stop: {"rows": rows[start:stop]},
        shape,
        read_out,
    )


def predict_columns(
    client: Client,
    model_id: str,
    columns: Mapping[str, Sequence[Any]],
    *,
    n_rows: int,
    schema: JsonMapping,
    read_out: str | None = None,
) -> JsonObject:
    """Predictions for columns of equal length; see :func:`predict_rows`."""

    def part(start: int, stop: int) -> JsonObject:
        return {
            "columns": {name: column[start:stop] for name, column in columns.items()}
        }

    return _in_parts(client, model_id, part, (n_rows, n_rows_at_once(schema)), read_out)


def predict_table(
    client: Client,
    model_id: str,
    table: Any,
    *,
    schema: JsonMapping,
    read_out: str | None = None,
) -> JsonObject:
    """Predictions for an Arrow table whose columns the service reads; see
    :func:`predict_rows`.
    """
    return _together(
        _sent_table(client, model_id, table, schema, read_out, read_stream)
    )


def predict_arrays(
    client: Client,
    model_id: str,
    table: Any,
    *,
    schema: JsonMapping,
    read_out: str | None = None,
) -> JsonObject:
    """Predictions for an Arrow table, as :func:`predict_table`, in columns of Arrow:
    ``labels``, and a list of ``probabilities`` by class.
    """
    answers = _sent_table(client, model_id, table, schema, read_out, read_arrays)
    columns = row_kinds.joined_arrays(answers)
    return answers[0] | columns | {"counts": counted(answers)}


def _sent_table(
    client: Client,
    model_id: str,
    table: Any,
    schema: JsonMapping,
    read_out: str | None,
    read: Callable[[bytes], JsonObject],
) -> list[JsonObject]:
    """The answers to the parts of an Arrow table, each read by a function."""

    def body(start: int, stop: int) -> bytes:
        return write_stream(table, start, stop, read_out=read_out)

    def send(address: str, part: bytes) -> JsonObject:
        return read(client.predict_table(address, part))

    return _sent(body, send, model_id, (table.num_rows, n_rows_at_once(schema)))


def _in_parts(
    client: Client,
    model_id: str,
    part: Callable[[int, int], JsonObject],
    shape: tuple[int, int],
    read_out: str | None,
) -> JsonObject:
    """Sends parts of rows in JSON.

    Args:
        client: calls the service.
        model_id: of a model.
        part: the body with the rows from the first number up to the second.
        shape: number of rows, of all parts and of one.
        read_out: default the model's.
    """
    options: JsonObject = (
        {"counts": True} if read_out is None else {"counts": True, "read_out": read_out}
    )

    def body(start: int, stop: int) -> bytes:
        return json.dumps({**part(start, stop), **options}, allow_nan=False).encode()

    return _together(_sent(body, client.predict, model_id, shape))


def n_rows_at_once(schema: JsonMapping) -> int:
    """Rows of one request for a model with this schema."""
    n_classes = len(schema["label"].get("classes", ()))
    return min(MAX_ROWS, MAX_CELLS // max(len(schema["features"]), n_classes))


def _sent(
    body: Callable[[int, int], bytes],
    send: Callable[[str, bytes], JsonObject],
    address: str,
    shape: tuple[int, int],
) -> list[JsonObject]:
    """Sends the rows in bodies of a largest number; one with too many bytes is halved.

    The model of the first answer answers all bodies: an alias may move meanwhile.

    Args:
        body: the body with the rows from the first number up to the second.
        send: sends a body to an address.
        address: of the model.
        shape: number of rows, of all bodies and of one.

    Raises:
        ApiProblem: with the number of rows before the refused body.
    """
    answers: list[JsonObject] = []
    start, (n_rows, size) = 0, shape
    while start < n_rows or not answers:
        content = body(start, start + size)
        if len(content) > MAX_BYTES and size > 1:
            size //= 2
            continue
        model = answers[0].get("model", address) if answers else address
        try:
            answers.append(send(model, content))
        except ApiProblem as problem:
            raise replace(problem, n_before=start) from problem
        start += size
    return answers


def _together(answers: Sequence[JsonObject]) -> JsonObject:
    """The answers to parts of rows as one answer."""
    lists = {
        name: [item for answer in answers for item in answer[name]]
        for name in ("labels", "probabilities")
    }
    return answers[0] | lists | {"counts": counted(answers)}


def counted(answers: Iterable[JsonObject]) -> dict[str, dict[str, int]]:
    """The cells of all parts of rows that the model does not see as they are, by
    column.
    """
    sums: dict[str, Counter[str]] = {"clamped": Counter(), "unseen": Counter()}
    for answer in answers:
        for name, by_column in sums.items():
            by_column.update(answer["counts"][name])
    return {name: dict(by_column) for name, by_column in sums.items()}
