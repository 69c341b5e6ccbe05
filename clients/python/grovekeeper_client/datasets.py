"""Represents datasets of the service: quotes, training, balance, ledger and upload."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from decimal import Decimal
from typing import Any, Self, TypedDict, Unpack

from grovekeeper_client import views
from grovekeeper_client.amounts import Amount, to_text
from grovekeeper_client.client import Client
from grovekeeper_client.dummies import DummyRows
from grovekeeper_client.jobs import Job
from grovekeeper_client.models import Model, Quote, model_of
from grovekeeper_client.rows import plain
from grovekeeper_client.statistics import Statistics, statistics_of
from grovekeeper_client.uploads import UploadOptions, as_file
from grovekeeper_common.declared_columns import declared_columns
from grovekeeper_common.declared_labels import labels_of
from grovekeeper_common.json_types import JsonMapping, JsonObject


class TrainingOptions(TypedDict, total=False):
    """Options of a training job and of its quote.

    Attributes:
        delta: δ; default the δ of the account, if it has one.
        label: the label to predict; default the first of the dataset.
        parameters: of the algorithm, by name; default the public rules.
        scope: cells to train on, such as ``{"shard": [0, 1]}``; default all.
        profile: id of a profile to reuse at no privacy cost.
        unlabelled: the second part of ``sspe-1``: ``{"dataset", "epsilon", "delta",
            "scope"}``.
    """

    delta: Amount
    label: str
    parameters: JsonMapping
    scope: JsonMapping
    profile: str
    unlabelled: JsonMapping


class StatisticsOptions(TypedDict, total=False):
    """What to pay for statistics, and of which rows.

    Attributes:
        epsilon: ε of all tables together. Text and ``Decimal`` are exact.
        error: in place of ``epsilon``: the 95 % half width that no count and no sum may
            exceed, and no quantile in rank.
        error_share: the same as a share of the declared ``public_size``.
        delta: δ; default the δ of the account, if it has one.
        scope: cells to read, such as ``{"shard": [0, 1]}``; default all.
    """

    epsilon: Amount
    error: Amount
    error_share: Amount
    delta: Amount
    scope: JsonMapping


class TableOptions(StatisticsOptions, total=False):
    """Which numbers a table has, and what to pay for it.

    Attributes:
        by: up to two columns, for the numbers of each group.
        where: conditions, as in ``POST /datasets/{id}/statistics``.
        bins: how many of the column, or their edges; of several columns, and of
            the groups of ``count``, by name.
        name: a name for the statistics.
        purpose: the reason, which auditors read in the ledger, for good.
        idempotency_key: the key of an earlier attempt, whose job is then returned.
    """

    by: Sequence[str]
    where: Sequence[JsonMapping]
    bins: int | Sequence[float] | JsonMapping
    name: str
    purpose: str
    idempotency_key: str


@dataclass(frozen=True)
class Balance(views.ShowsFields):
    """The budget of an account, exact, at its tightest joint cell.

    Attributes:
        unit: ``epsilon``, ``rho`` or ``mu_squared``.
        cap: lifetime cap.
        charged: spent for good.
        reserved: held by accepted jobs that have not begun.
        remaining: the rest of the cap.
        available: the most that one job of the key may cost now: less than the rest
            where a population's cap or the rules leave less.
        limited_by: the limit that decides ``available``: ``cap``, ``population``,
            ``largest_job``, ``quota``, ``frozen``, ``erasure_due`` or ``erased``.
        largest_that_fits: the largest ε of one job.
        tightest_cell: cell by partition.
    """

    unit: str
    cap: Decimal
    charged: Decimal
    reserved: Decimal
    remaining: Decimal
    available: Decimal
    limited_by: str
    largest_that_fits: Decimal
    tightest_cell: JsonMapping

    @classmethod
    def from_json(cls, answer: JsonMapping) -> Self:
        """Reads the answer of ``GET /ledger/{account}``."""
        names = (
            "cap",
            "charged",
            "reserved",
            "remaining",
            "available",
            "largest_that_fits",
        )
        amounts = {name: Decimal(answer[name]) for name in names}
        return cls(
            unit=answer["unit"],
            limited_by=answer["limited_by"],
            tightest_cell=answer["tightest_cell"],
            **amounts,
        )


@dataclass(frozen=True)
class Entry(views.ShowsFields):
    """One immutable line of the ledger.

    Attributes:
        sequence: number in the account, from 1.
        kind: ``open``, ``reserve``, ``charge``, ``void``, ``expire``, ``cap`` and
            others.
        amount: exact, in the account's unit.
        scope: cells that the entry is about; empty for all.
        job_id: job that the entry is about.
        purpose: the reason that the submitter of the job stated.
        job: public facts of the job: kind, algorithm, what it ran, name, models and the key
            that submitted it.
        actor: id of the key that acted.
        at: time in UTC.
        hash: SHA-256 that chains the entry to the entry before it.
    """

    sequence: int
    kind: str
    amount: Decimal
    scope: JsonMapping
    job_id: str | None
    purpose: str | None
    job: JsonMapping | None
    actor: str
    at: str
    hash: str

    @classmethod
    def from_json(cls, entry: JsonMapping, job: JsonMapping | None) -> Self:
        """Reads an entry of ``GET /ledger/{account}/entries``, and the facts of its job
        in the same answer.
        """
        names = ("sequence", "kind", "scope", "job_id", "actor", "at", "hash")
        facts = {name: entry[name] for name in names}
        purpose = entry.get("details", {}).get("purpose")
        return cls(amount=Decimal(entry["amount"]), purpose=purpose, job=job, **facts)


class Dataset:
    """A dataset of the service: public facts, budget and training, never a row.

    Args:
        client: calls the service.
        facts: answer of ``GET /datasets/{id}``.
    """

    def __init__(self, client: Client, facts: JsonMapping) -> None:
        self.facts = facts
        self._client = client

    def __repr__(self) -> str:
        return f"Dataset({self.name!r})"

    @property
    def client(self) -> Client:
        """Calls the service with the key of the dataset's connection."""
        return self._client

    def _repr_html_(self) -> str:
        account = self.facts["account"]
        amounts = ("unit", "cap", "charged", "reserved", "remaining")
        shown = {"name": self.name, "id": self.id}
        shown |= {name: account[name] for name in amounts}
        features = [feature["name"] for feature in self.schema["features"]]
        labels = [label["name"] for label in labels_of(self.schema)]
        columns = {"features": features, "label": ", ".join(labels)}
        return views.facts("Dataset", shown | columns)

    @property
    def id(self) -> str:
        """Id of the dataset."""
        return str(self.facts["id"])

    @property
    def name(self) -> str:
        """Name of the dataset."""
        return str(self.facts["name"])

    @property
    def schema(self) -> JsonMapping:
        """The public schema: features, and ``label`` or several ``labels``."""
        return dict(self.facts["schema"])

    def profiles(self) -> views.Records:
        """The released profiles, newest first."""
        columns = ("id", "name", "scope", "created_at")
        return views.Records(self._client.profiles(self.id), columns=columns)

    def released_statistics(self) -> views.Records:
        """The released statistics, newest first; ``Grovekeeper.statistics`` has each."""
        columns = ("id", "name", "titles", "scope", "created_at")
        return views.Records(self._client.all_statistics(self.id), columns=columns)

    def balance(self, *, scope: JsonMapping | None = None) -> Balance:
        """The budget, at the tightest joint cell of a scope or of the dataset."""
        return Balance.from_json(
            self._client.balance(self.id, scope=None if scope is None else plain(scope))
        )

    def ledger(self) -> list[Entry]:
        """Every entry of the dataset's account, in order; for an analyst, those of what
        the own key submitted.
        """
        listed = self._client.entry_list(self.id)
        return [
            Entry.from_json(entry, listed["jobs"].get(entry["job_id"]))
            for entry in listed["entries"]
        ]

    def spent(self, by: str = "key") -> list[JsonMapping]:
        """What was charged by ``key``, ``purpose``, ``key,purpose``, ``kind``, ``month``
        or ``cell``: a record of each, the largest first.
        """
        return list(self._client.spent(self.id, by=by)["groups"])

    def plan(
        self,
        algorithm: str = "auto",
        *,
        epsilon: Amount,
        **options: Unpack[TrainingOptions],
    ) -> Quote:
        """The price of a training job. Reads no row and costs nothing.

        Args:
            algorithm: slug, such as ``rpf``; ``auto`` chooses.
            epsilon: ε of the job. Text and ``Decimal`` are exact.
            options: see :class:`TrainingOptions`.
        """
        return Quote.from_json(
            self._client.plan(self._training(algorithm, epsilon, options))
        )

    def train(
        self,
        algorithm: str = "auto",
        *,
        epsilon: Amount,
        name: str | None = None,
        purpose: str | None = None,
        idempotency_key: str | None = None,
        **options: Unpack[TrainingOptions],
    ) -> Job[Model]:
        """Reserves the price and queues the job; ``wait`` gives the model.

        One call pays once: after a lost connection, the request is repeated with the
        same idempotency key.

        Args:
            algorithm: slug, such as ``rpf``; ``auto`` chooses.
            epsilon: ε of the job. Text and ``Decimal`` are exact.
            name: a name for the model.
            purpose: the reason for the job, which auditors read in the ledger, for
                good.
            idempotency_key: the key of an earlier attempt, whose job is then returned.
            options: see :class:`TrainingOptions`.

        Raises:
            Refused: the budget does not cover the price; nothing was charged.
            Unreachable: no answer arrived. Its ``idempotency_key`` continues the
                request.
        """
        body = self._training(algorithm, epsilon, options) | {
            "name": name,
            "purpose": purpose,
        }
        accepted = self._client.train(body, idempotency_key=idempotency_key)
        return Job(
            self._client, accepted["job_id"], lambda job: model_of(self._client, job)
        )

    def quote_statistics(
        self, *tables: JsonMapping, **options: Unpack[StatisticsOptions]
    ) -> JsonMapping:
        """The errors and the price of tables of statistics. Reads no row and costs
        nothing.

        Args:
            tables: as in ``POST /datasets/{id}/statistics``, such as ``{"statistic":
                "mean", "column": "age", "by": ["sex"]}``.
            options: see :class:`StatisticsOptions`.
        """
        return self._client.quote_statistics(self.id, _statistics(tables, options))

    def statistics(
        self,
        *tables: JsonMapping,
        name: str | None = None,
        purpose: str | None = None,
        idempotency_key: str | None = None,
        **options: Unpack[StatisticsOptions],
    ) -> Job[Statistics]:
        """Reserves the price of tables of statistics and queues the job; ``wait`` gives
        the numbers.

        Args:
            tables: see :meth:`quote_statistics`. They are released for one charge.
            name: a name for the statistics.
            purpose: the reason, which auditors read in the ledger, for good.
            idempotency_key: the key of an earlier attempt, whose job is then returned.
            options: see :class:`StatisticsOptions`.

        Raises:
            Refused: the budget does not cover the price; nothing was charged.
        """
        body = _statistics(tables, options) | {"name": name, "purpose": purpose}
        accepted = self._client.release_statistics(
            self.id, body, idempotency_key=idempotency_key
        )
        return Job(
            self._client,
            accepted["job_id"],
            lambda job: statistics_of(self._client, job),
        )

    def count(self, **options: Unpack[TableOptions]) -> Job[Statistics]:
        """Reserves the price of the number of rows, and queues the job; ``wait`` gives
        statistics of one table.

        Args:
            options: see :class:`TableOptions`.

        Raises:
            Refused: the budget does not cover the price; nothing was charged.
        """
        return self._table({"statistic": "count"}, options)

    def histogram(
        self, column: str, **options: Unpack[TableOptions]
    ) -> Job[Statistics]:
        """The number of rows with each category, or in each bin of a number; see
        :meth:`count`.
        """
        return self._table({"statistic": "histogram", "column": column}, options)

    def crosstab(
        self, *columns: str, **options: Unpack[TableOptions]
    ) -> Job[Statistics]:
        """The number of rows with each combination of two or three columns; see
        :meth:`count`.
        """
        return self._table({"statistic": "crosstab", "columns": columns}, options)

    def sum(self, column: str, **options: Unpack[TableOptions]) -> Job[Statistics]:
        """The sum of a number; see :meth:`count`."""
        return self._table({"statistic": "sum", "column": column}, options)

    def mean(self, column: str, **options: Unpack[TableOptions]) -> Job[Statistics]:
        """The mean of a number; see :meth:`count`."""
        return self._table({"statistic": "mean", "column": column}, options)

    def variance(self, column: str, **options: Unpack[TableOptions]) -> Job[Statistics]:
        """The variance of a number; see :meth:`count`."""
        return self._table({"statistic": "variance", "column": column}, options)

    def quantiles(
        self,
        column: str,
        quantiles: Sequence[Amount],
        **options: Unpack[TableOptions],
    ) -> Job[Statistics]:
        """Quantiles of a number; see :meth:`count`. The bins are the cells among which a
        quantile is selected.

        Args:
            column: a number.
            quantiles: ascending, such as 0.25, with at most three digits; at most nine.
            options: see :class:`TableOptions`.
        """
        table = {"statistic": "quantiles", "quantiles": list(map(to_text, quantiles))}
        return self._table({"column": column, **table}, options)

    def median(self, column: str, **options: Unpack[TableOptions]) -> Job[Statistics]:
        """The median of a number; see :meth:`quantiles`."""
        return self._table({"statistic": "median", "column": column}, options)

    def _table(self, table: JsonMapping, options: TableOptions) -> Job[Statistics]:
        """Releases one table."""
        paid: JsonObject = {**options}
        chosen = {name: paid.pop(name, None) for name in ("by", "where", "bins")}
        bins = chosen["bins"]
        if bins is not None and not isinstance(bins, Mapping):
            if "column" not in table:
                raise TypeError(
                    "bins of a count or of several columns are a mapping by name"
                )
            chosen["bins"] = {table["column"]: bins}
        given = {name: value for name, value in chosen.items() if value is not None}
        return self.statistics({**table, **given}, **paid)

    def name_model(self, alias: str, model: Model) -> str:
        """Makes an alias, such as ``production``, name a model of the dataset, and
        returns the address of both.

        :meth:`Grovekeeper.model` and every service that predicts take the address, such
        as ``bank@production``.
        """
        self._client.put_alias(self.id, alias, model.id)
        return f"{self.name}@{alias}"

    def change(self, schema: JsonMapping) -> None:
        """Declares other columns, all of them: names, bounds, categories, classes.

        The service refuses a change once rows were uploaded, budget was reserved or
        charged, or the dataset joined a population, and if somebody else changed the
        columns since :attr:`facts` were read. Privacy unit, protection, partitions and
        budget stay.
        """
        now, etag = self._client.dataset_with_etag(self.id)
        if now["schema"] != self.facts["schema"]:
            etag = ""  # no state has this tag, so the service refuses
        self.facts = self._client.change_dataset(self.id, schema, etag=etag)

    def dummy(self, n_rows: int, *, seed: int = 0) -> DummyRows:
        """Rows that mean nothing, drawn from the declaration alone, for the development
        of a program that reads such rows. No row is read, and nothing is charged.

        Args:
            n_rows: number of rows.
            seed: other rows for another seed.
        """
        return DummyRows(self.facts, n_rows, seed=seed)

    def upload(self, rows: Any, **options: Unpack[UploadOptions]) -> JsonMapping:
        """Uploads rows as the owner, and returns the owner's report.

        Args:
            rows: path of a file of CSV, Parquet or Arrow IPC; or a DataFrame (its index
                is left out), an Arrow Table or RecordBatch, which are written to a
                temporary file first.
            options: see :class:`~grovekeeper_client.uploads.UploadOptions`.
        """
        with as_file(rows, declared_columns(self.facts)) as file:
            return self._client.upload_rows(self.id, file, **options)

    def replace_upload(
        self, upload: str, rows: Any, **options: Unpack[UploadOptions]
    ) -> JsonMapping:
        """Erases an upload, then uploads the rows of a corrected file, as
        :meth:`upload` does.

        The service checks the rows first, and nothing is erased if it refuses them. If
        their upload fails nevertheless, as without a network, the upload is erased, and
        :meth:`upload` stores the rows.

        Returns:
            ``erased``, which tells in ``places`` whether the places of units are free,
            and ``stored``, the report.
        """
        with as_file(rows, declared_columns(self.facts)) as file:
            self._client.check_replacement(self.id, upload, file, **options)
            erased = self._client.erase_upload(self.id, upload)
            return {
                "erased": erased,
                "stored": self._client.upload_rows(self.id, file, **options),
            }

    def _training(
        self, algorithm: str, epsilon: Amount, options: TrainingOptions
    ) -> JsonObject:
        body = {
            "dataset": self.id,
            "algorithm": algorithm,
            "epsilon": epsilon,
            **options,
        }
        return _exact(
            {name: value for name, value in body.items() if value is not None}
        )


def _statistics(
    tables: Sequence[JsonMapping], options: StatisticsOptions
) -> JsonObject:
    body = {"tables": list(tables), **options}
    return _exact({name: value for name, value in body.items() if value is not None})


def _exact(body: JsonMapping) -> JsonObject:
    """A body whose amounts are exact text, also those of its second part."""
    amounts = ("epsilon", "delta", "error", "error_share")
    exact = {name: to_text(body[name]) for name in amounts if name in body}
    second = {"unlabelled": _exact(body["unlabelled"])} if "unlabelled" in body else {}
    return plain({**body, **exact, **second})  # type: ignore[no-any-return]
