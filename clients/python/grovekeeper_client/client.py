"""Calls each endpoint of the API by one method. Answers are the API's JSON; amounts are
exact decimal text.

Every method raises :class:`~grovekeeper_client.errors.ApiProblem` when the service
refuses or fails, and :class:`~grovekeeper_client.errors.Unreachable` when no answer
came. Requests that spend budget, and uploads, carry an ``Idempotency-Key``, which is
new for every call unless the caller gives the key of an earlier attempt.
"""

import json
import os
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any, Self, Unpack

from grovekeeper_client.errors import FINISHED, RETRIED, ApiProblem, Unreachable
from grovekeeper_client.settings import key_of
from grovekeeper_client.transport import (
    CHUNK_BYTES,
    Calls,
    Request,
    key_reference,
    key_segment,
    new_idempotency_key,
    read_object,
    segment,
)
from grovekeeper_client.uploads import UploadOptions, headers_of
from grovekeeper_common.json_types import JsonMapping, JsonObject

_UPLOAD_TIMEOUT_S = 3_600.0
_POLL_INTERVAL_S = 0.5
_POLLS_WITHOUT_ANSWER = 10
"""Polls without an answer, each of several attempts, after which the waiting for a job
ends.
"""
WAITING = "waiting"
"""The state of a job that waits for an approval."""


class Client(Calls):
    """A synchronous client for one service and one key.

    A pickle of a client holds the address and never the key, which is read from the
    environment again.

    Args:
        url: address of the service.
        key: ``<id>.<secret>``.
        transport: replaces the network in tests.
        sleep: replaces the waiting between attempts and polls in tests.

    Raises:
        ValueError: the address or the key does not have the form of one.
    """

    def __deepcopy__(self, memo: dict[int, Any]) -> Self:
        return self

    def __reduce__(self) -> tuple[Any, ...]:
        return _connected, (self.url,)

    def _repeatable(self, path: str, body: JsonObject | bytes) -> JsonObject:
        """Posts what changes nothing or, repeated, nothing more."""
        return self._json("POST", path, body=body, repeatable=True)

    def _once(self, path: str, body: JsonObject | bytes, key: str | None) -> JsonObject:
        """Posts what happens once per idempotency key."""
        headers = {"Idempotency-Key": key or new_idempotency_key()}
        return self._json("POST", path, body=body, headers=headers)

    # Datasets

    def declare_dataset(
        self, declaration: JsonObject | bytes, *, idempotency_key: str | None = None
    ) -> JsonObject:
        """``POST /datasets``. Bytes are sent unchanged, so that numbers in a file keep
        their digits.
        """
        return self._once("/datasets", declaration, idempotency_key)

    def check_declaration(self, declaration: JsonObject | bytes) -> JsonObject:
        """``POST /declarations``: checks a declaration by the rules of the service and
        stores nothing.
        """
        return self._repeatable("/declarations", declaration)

    def upload_rows(
        self,
        dataset: str,
        file: Path,
        *,
        idempotency_key: str | None = None,
        on_progress: Callable[[int], None] = lambda _sent: None,
        **options: Unpack[UploadOptions],
    ) -> JsonObject:
        """``POST /datasets/{id}/rows``: streams a file of rows. The first bytes of the
        file tell its form.

        Args:
            dataset: id or name.
            file: UTF-8 CSV with a header row, plain or gzip; Parquet; or Arrow IPC, as
                Feather writes it.
            idempotency_key: the key of an earlier attempt; rows are stored once per
                key.
            on_progress: called with the bytes sent so far; restarts from 0 with each
                attempt.
            options: see :class:`~grovekeeper_client.uploads.UploadOptions`.
        """
        request = _of_rows(dataset, file, options, on_progress=on_progress)
        keyed = {
            **request.headers,
            "Idempotency-Key": idempotency_key or new_idempotency_key(),
        }
        return read_object(self._transport.send(replace(request, headers=keyed)))

    def check_replacement(
        self,
        dataset: str,
        upload: str,
        file: Path,
        *,
        on_progress: Callable[[int], None] = lambda _sent: None,
        **options: Unpack[UploadOptions],
    ) -> None:
        """``POST /datasets/{id}/rows/check``: streams a file that is to replace an
        upload, and stores nothing.

        Rows that are those of the upload fit, because they are erased first. Raises the
        problem of an upload that does not fit.
        """
        request = _of_rows(dataset, file, options, on_progress=on_progress)
        params = {**request.params, "replaces": upload}
        self._transport.send(
            replace(
                request, path=f"{request.path}/check", params=params, repeatable=True
            )
        )

    def uploads(self, dataset: str) -> Iterator[JsonObject]:
        """``GET /datasets/{id}/uploads``, all pages: stored rows are for owners by a
        grant.
        """
        return self._pages(f"/datasets/{segment(dataset)}/uploads", "uploads")

    def erase_upload(self, dataset: str, upload: str) -> JsonObject:
        """``DELETE /datasets/{id}/uploads/{upload}``: erases the rows; what was spent
        stays spent.

        ``places`` in the answer: ``free`` if no job read the rows, so that a corrected
        file has room, else ``taken``.
        """
        return self._json(
            "DELETE", f"/datasets/{segment(dataset)}/uploads/{segment(upload)}"
        )

    def datasets(self, **filters: str | None) -> Iterator[JsonObject]:
        """``GET /datasets``, all pages.

        Args:
            filters: ``name`` (a part of it), ``population`` (id or name) and ``role``
                (that the key was granted), as the API names them.
        """
        return self._pages("/datasets", "datasets", **filters)

    def dataset(self, dataset: str) -> JsonObject:
        """``GET /datasets/{id}``."""
        return self.dataset_with_etag(dataset)[0]

    def dataset_with_etag(self, dataset: str) -> tuple[JsonObject, str | None]:
        """``GET /datasets/{id}``, and the tag of the columns, for
        :meth:`change_dataset`; no body has it.
        """
        request = Request("GET", f"/datasets/{segment(dataset)}")
        response = self._transport.send(request)
        field = response.headers.get("ETag")
        tag = None if field is None else field.removeprefix("W/").strip('"')
        return read_object(response), tag

    def delete_dataset(self, dataset: str) -> JsonObject:
        """``DELETE /datasets/{id}``: erases the rows; the ledger stays."""
        return self._json("DELETE", f"/datasets/{segment(dataset)}")

    def erase_unit(
        self, dataset: str, unit: str, *, reference: str | None = None
    ) -> JsonObject:
        """``POST /datasets/{id}/erasures``: erases the rows of one value of the unit
        column.
        """
        body: JsonObject = {"unit": unit}
        if reference is not None:
            body["reference"] = reference
        return self._repeatable(f"/datasets/{segment(dataset)}/erasures", body)

    def overlaps(self, dataset: str) -> JsonObject:
        """``GET /datasets/{id}/overlaps``: rows shared with other datasets of the same
        owner.
        """
        return self._json("GET", f"/datasets/{segment(dataset)}/overlaps")

    def grants(self, dataset: str) -> Iterator[JsonObject]:
        """``GET /datasets/{id}/grants``, all pages."""
        return self._pages(f"/datasets/{segment(dataset)}/grants", "grants")

    def grant(self, dataset: str, key_id: str, role: str) -> JsonObject:
        """``PUT /datasets/{id}/grants/{key_id}``."""
        return self._json(
            "PUT",
            f"/datasets/{segment(dataset)}/grants/{key_segment(key_id)}",
            body={"role": role},
        )

    def revoke_grant(self, dataset: str, key_id: str) -> JsonObject:
        """``DELETE /datasets/{id}/grants/{key_id}``."""
        return self._json(
            "DELETE", f"/datasets/{segment(dataset)}/grants/{key_segment(key_id)}"
        )

    def change_dataset(
        self, dataset: str, schema: JsonMapping, *, etag: str | None = None
    ) -> JsonObject:
        """``PATCH /datasets/{id}``: declares other columns, before rows or jobs follow
        from them.

        With the ``etag`` of :meth:`dataset_with_etag`, the service refuses the change if
        somebody else made one meanwhile.
        """
        return self._json(
            "PATCH",
            f"/datasets/{segment(dataset)}",
            body={"schema": schema},
            headers=_unless_changed(etag),
        )

    def rules(self, dataset: str) -> JsonObject:
        """``GET /datasets/{id}/rules``."""
        return self._json("GET", f"/datasets/{segment(dataset)}/rules")

    def change_rules(
        self, dataset: str, rules: JsonObject, *, etag: str | None = None
    ) -> JsonObject:
        """``PUT /datasets/{id}/rules``: replaces all rules; looser rules wait for a
        second owner.

        With the ``etag`` of :meth:`rules`, the service refuses the change if somebody
        else made one meanwhile.
        """
        return self._json(
            "PUT",
            f"/datasets/{segment(dataset)}/rules",
            body=rules,
            headers=_unless_changed(etag),
        )

    def attention(self) -> JsonObject:
        """``GET /attention``: what needs the key, and which budgets end first."""
        return self._json("GET", "/attention")

    def approvals(self) -> Iterator[JsonObject]:
        """``GET /approvals``, all pages."""
        return self._pages("/approvals", "approvals")

    def decide_job(self, job_id: str, decision: str, *, reason: str) -> JsonObject:
        """``POST /approvals/{job}``: ``approve`` or ``reject``."""
        return self._json(
            "POST",
            f"/approvals/{segment(job_id)}",
            body={"decision": decision, "reason": reason},
        )

    # Populations

    def open_population(
        self, name: str, budget: JsonObject, *, idempotency_key: str | None = None
    ) -> JsonObject:
        """``POST /populations``."""
        body: JsonObject = {"name": name, "budget": budget}
        return self._once("/populations", body, idempotency_key)

    def populations(self) -> Iterator[JsonObject]:
        """``GET /populations``, all pages."""
        return self._pages("/populations", "populations")

    def population(self, population: str) -> JsonObject:
        """``GET /populations/{id}``."""
        return self._json("GET", f"/populations/{segment(population)}")

    def erase_person(
        self,
        population: str,
        unit: str,
        *,
        datasets: Sequence[str] | None = None,
        reference: str | None = None,
    ) -> JsonObject:
        """``POST /populations/{id}/erasures``: erases the rows of one value of the unit
        column from members, by default from all of the caller, and returns the receipt.
        """
        body: JsonObject = {"unit": unit, "reference": reference}
        if datasets is not None:
            body["datasets"] = list(datasets)
        return self._json(
            "POST",
            f"/populations/{segment(population)}/erasures",
            body=body,
            repeatable=True,
        )

    def join_population(self, dataset: str, population: str) -> JsonObject:
        """``PUT /datasets/{id}/population``: makes the dataset a member of a
        population, for good.
        """
        return self._json(
            "PUT",
            f"/datasets/{segment(dataset)}/population",
            body={"population": population},
        )

    # Training

    def algorithms(self) -> list[JsonObject]:
        """``GET /algorithms``."""
        return list(self._json("GET", "/algorithms")["algorithms"])

    def plan(self, request: JsonObject) -> JsonObject:
        """``POST /plans``: a quote; it costs nothing."""
        return self._repeatable("/plans", request)

    def train(
        self, request: JsonObject, *, idempotency_key: str | None = None
    ) -> JsonObject:
        """``POST /train``: reserves budget and queues the job, once per key."""
        return self._once("/train", request, idempotency_key)

    def jobs(self, **filters: str | None) -> Iterator[JsonObject]:
        """``GET /jobs``, all pages; filters are ``dataset``, ``kind``, ``algorithm``,
        ``state`` and ``submitted_by`` (a key, by id or name).
        """
        return self._pages("/jobs", "jobs", **filters)

    def job(self, job_id: str) -> JsonObject:
        """``GET /jobs/{id}``."""
        return self._json("GET", f"/jobs/{segment(job_id)}")

    def cancel_job(self, job_id: str) -> JsonObject:
        """``DELETE /jobs/{id}``: voids the reservation of a queued job; a running job
        stays charged.
        """
        return self._json("DELETE", f"/jobs/{segment(job_id)}")

    def wait_for_job(
        self,
        job_id: str,
        *,
        timeout: float | None = None,
        on_change: Callable[[JsonObject], None] = lambda _job: None,
    ) -> JsonObject:
        """Follows a job until it has finished, waits for an approval or is held;
        returns its last answer.

        Only another person ends the waiting for an approval, which may take a week, and
        a freeze. What a worker lacks may pass, so the wait goes on.

        Args:
            job_id: the job.
            timeout: seconds after which the job is returned as it is; it goes on.
                ``None``: no limit.
            on_change: called with the job at the start and whenever its answer changes.
        """
        last: JsonObject = {}
        for job in self.follow_job(job_id, timeout=timeout):
            if job != last:
                on_change(job)
            last = job
            held_by = job.get("held_by")
            is_held = held_by is not None and held_by not in RETRIED
            if job["state"] == WAITING or is_held:
                break
        return last

    def follow_job(
        self, job_id: str, *, timeout: float | None = None
    ) -> Iterator[JsonObject]:
        """``GET /jobs/{id}/events`` until the job has finished, connected again if
        lost; between streams, one poll.

        With a ``timeout`` in seconds the job is polled alone, because a stream may be
        silent for longer.

        Raises:
            ValueError: the timeout is negative or not a number.
        """
        if timeout is not None and not timeout >= 0:  # not a number is not
            raise ValueError(f"timeout: a number of seconds, 0 or more, not {timeout}")
        until = None if timeout is None else time.monotonic() + timeout
        n_without_answer = 0
        while True:
            if until is None:
                # the poll says whether the problem lasts
                with suppress(ApiProblem, Unreachable):
                    for job in self._events(f"/jobs/{segment(job_id)}/events"):
                        yield job
                        if job["state"] in FINISHED:
                            return
            try:
                job = self.job(job_id)
            except Unreachable:
                n_without_answer += 1
                if n_without_answer == _POLLS_WITHOUT_ANSWER or _is_past(until):
                    raise
                continue
            n_without_answer = 0
            yield job
            if job["state"] in FINISHED or _is_past(until):
                return
            self._sleep(_POLL_INTERVAL_S)

    # Profiles

    def quote_profile(self, dataset: str, request: JsonObject) -> JsonObject:
        """``POST /datasets/{id}/profiles/quote``: a quote; it costs nothing."""
        return self._repeatable(f"/datasets/{segment(dataset)}/profiles/quote", request)

    def release_profile(
        self, dataset: str, request: JsonObject, *, idempotency_key: str | None = None
    ) -> JsonObject:
        """``POST /datasets/{id}/profiles``: reserves budget and queues the job, once
        per key.
        """
        return self._once(
            f"/datasets/{segment(dataset)}/profiles", request, idempotency_key
        )

    def profiles(self, dataset: str) -> Iterator[JsonObject]:
        """``GET /datasets/{id}/profiles``, all pages."""
        return self._pages(f"/datasets/{segment(dataset)}/profiles", "profiles")

    def profile(self, profile_id: str) -> JsonObject:
        """``GET /profiles/{id}``: the released numbers."""
        return self._json("GET", f"/profiles/{segment(profile_id)}")

    def quote_statistics(self, dataset: str, request: JsonObject) -> JsonObject:
        """``POST /datasets/{id}/statistics/quote``: the errors and the price of tables;
        it costs nothing.
        """
        return self._repeatable(
            f"/datasets/{segment(dataset)}/statistics/quote", request
        )

    def release_statistics(
        self, dataset: str, request: JsonObject, *, idempotency_key: str | None = None
    ) -> JsonObject:
        """``POST /datasets/{id}/statistics``: reserves budget and queues the job, once
        per key.
        """
        return self._once(
            f"/datasets/{segment(dataset)}/statistics", request, idempotency_key
        )

    def all_statistics(self, dataset: str) -> Iterator[JsonObject]:
        """``GET /datasets/{id}/statistics``, all pages."""
        return self._pages(f"/datasets/{segment(dataset)}/statistics", "statistics")

    def statistics(self, statistics_id: str) -> JsonObject:
        """``GET /statistics/{id}``: the released numbers with their intervals."""
        return self._json("GET", f"/statistics/{segment(statistics_id)}")

    # Models

    def models(self, **filters: str | None) -> Iterator[JsonObject]:
        """``GET /models``, all pages; filters are ``dataset``, ``algorithm`` and
        ``alias``.
        """
        return self._pages("/models", "models", **filters)

    def model(self, model_id: str) -> JsonObject:
        """``GET /models/{id}``: the model card. An alias, ``dataset@alias``, stands
        wherever a model's id does.
        """
        return self._json("GET", f"/models/{segment(model_id)}")

    def importances(self, model_id: str) -> JsonObject:
        """``GET /models/{id}/importances``: what the trees look at."""
        return self._json("GET", f"/models/{segment(model_id)}/importances")

    def tree(self, model_id: str, number: int) -> JsonObject:
        """``GET /models/{id}/trees/{number}``: a tree in words."""
        return self._json("GET", f"/models/{segment(model_id)}/trees/{number}")

    def compare_models(self, model_id: str, *others: str) -> JsonObject:
        """``GET /models/{id}/comparison``: two models or more side by side."""
        path = f"/models/{segment(model_id)}/comparison"
        return self._json("GET", path, params={"others": ",".join(others)})

    def delete_model(self, model_id: str) -> JsonObject:
        """``DELETE /models/{id}``."""
        return self._json("DELETE", f"/models/{segment(model_id)}")

    def download_model(
        self,
        model_id: str,
        file: Path,
        *,
        artifact_format: str = "safetensors",
        read_out: str | None = None,
    ) -> str:
        """``GET /models/{id}/artifact`` into a file, which appears only when it is
        whole.

        Args:
            model_id: of a model.
            file: does not exist yet.
            artifact_format: ``safetensors`` or ``onnx``.
            read_out: of an ONNX file; ``None``: the model's default.

        Returns:
            SHA-256 of the bytes, in lower-case hexadecimal.
        """
        path = f"/models/{segment(model_id)}/artifact"
        params = {"format": artifact_format} | (
            {} if read_out is None else {"read_out": read_out}
        )
        return self._download(Request("GET", path, params=params), file)

    def predict(self, model_id: str, body: JsonObject | bytes) -> JsonObject:
        """``POST /models/{id}/predict``, within the limits of one request: costs
        nothing and stores nothing.
        """
        return self._repeatable(f"/models/{segment(model_id)}/predict", body)

    def predict_table(self, model_id: str, stream: bytes) -> bytes:
        """``POST /models/{id}/predict`` with an Arrow stream, which a stream answers."""
        path = f"/models/{segment(model_id)}/predict"
        headers = {"Content-Type": "application/vnd.apache.arrow.stream"}
        request = Request(
            "POST", path, headers=headers, content=lambda: stream, repeatable=True
        )
        return self._transport.send(request).content

    def create_webhook(
        self,
        dataset: str,
        url: str,
        events: Sequence[str],
        *,
        threshold: str | None = None,
    ) -> JsonObject:
        """``POST /datasets/{id}/webhooks``: the answer has the secret of the
        signatures, which is shown once.
        """
        body = {"url": url, "events": list(events), "threshold": threshold}
        return self._json("POST", f"/datasets/{segment(dataset)}/webhooks", body=body)

    def rotate_webhook(
        self, dataset: str, webhook: str, *, overlap_s: int | None = None
    ) -> JsonObject:
        """``POST /datasets/{id}/webhooks/{webhook}/secret``: the answer has the new
        secret, which is shown once.

        Not repeated after a lost connection, because every arrival makes a secret.
        """
        body = {} if overlap_s is None else {"overlap_s": overlap_s}
        return self._json(
            "POST",
            f"/datasets/{segment(dataset)}/webhooks/{segment(webhook)}/secret",
            body=body,
        )

    def test_webhook(self, dataset: str, webhook: str) -> JsonObject:
        """``POST /datasets/{id}/webhooks/{webhook}/test``: the webhook is told about a
        test event soon.
        """
        return self._json(
            "POST", f"/datasets/{segment(dataset)}/webhooks/{segment(webhook)}/test"
        )

    def webhooks(self, dataset: str) -> list[JsonObject]:
        """``GET /datasets/{id}/webhooks``, each with its last deliveries."""
        listed: list[JsonObject] = self._json(
            "GET", f"/datasets/{segment(dataset)}/webhooks"
        )["webhooks"]
        return listed

    def delete_webhook(self, dataset: str, webhook: str) -> JsonObject:
        """``DELETE /datasets/{id}/webhooks/{webhook}``, with its waiting deliveries."""
        return self._json(
            "DELETE", f"/datasets/{segment(dataset)}/webhooks/{segment(webhook)}"
        )

    def aliases(self, dataset: str) -> Iterator[JsonObject]:
        """``GET /datasets/{id}/aliases``, all pages."""
        return self._pages(f"/datasets/{segment(dataset)}/aliases", "aliases")

    def alias_moves(self, dataset: str, alias: str) -> Iterator[JsonObject]:
        """``GET /datasets/{id}/aliases/{alias}``: who moved the alias when, newest
        first; all pages.
        """
        return self._pages(
            f"/datasets/{segment(dataset)}/aliases/{segment(alias)}", "moves"
        )

    def alias(self, dataset: str, alias: str) -> JsonObject:
        """``GET /datasets/{id}/aliases/{alias}``: the model that the alias names, its
        ``etag``, and the last moves.
        """
        return self._json(
            "GET", f"/datasets/{segment(dataset)}/aliases/{segment(alias)}"
        )

    def put_alias(
        self, dataset: str, alias: str, model: str, *, etag: str | None = None
    ) -> JsonObject:
        """``PUT /datasets/{id}/aliases/{alias}``: makes the alias name a model of the
        dataset.

        With the ``etag`` of :meth:`alias`, the service refuses the move if somebody
        else moved the alias meanwhile.
        """
        path = f"/datasets/{segment(dataset)}/aliases/{segment(alias)}"
        return self._json(
            "PUT", path, body={"model": model}, headers=_unless_changed(etag)
        )

    def delete_alias(
        self, dataset: str, alias: str, *, etag: str | None = None
    ) -> JsonObject:
        """``DELETE /datasets/{id}/aliases/{alias}``. The model stays. ``etag`` as in
        :meth:`put_alias`.
        """
        return self._json(
            "DELETE",
            f"/datasets/{segment(dataset)}/aliases/{segment(alias)}",
            headers=_unless_changed(etag),
        )

    # Evaluations

    def quote_evaluation(self, model_id: str, request: JsonObject) -> JsonObject:
        """``POST /models/{id}/evaluations/quote``: a price; it costs nothing, so it may
        be asked twice.
        """
        return self._repeatable(
            f"/models/{segment(model_id)}/evaluations/quote", request
        )

    def evaluate(
        self, model_id: str, request: JsonObject, *, idempotency_key: str | None = None
    ) -> JsonObject:
        """``POST /models/{id}/evaluations``: reserves budget and queues the job, once
        per key.
        """
        return self._once(
            f"/models/{segment(model_id)}/evaluations", request, idempotency_key
        )

    def evaluations(self, model_id: str) -> Iterator[JsonObject]:
        """``GET /models/{id}/evaluations``, all pages."""
        return self._pages(f"/models/{segment(model_id)}/evaluations", "evaluations")

    def quote_selection(self, request: JsonObject) -> JsonObject:
        """``POST /evaluations/quote``: a price; it costs nothing, so it may be asked
        twice.
        """
        return self._repeatable("/evaluations/quote", request)

    def select_model(
        self, request: JsonObject, *, idempotency_key: str | None = None
    ) -> JsonObject:
        """``POST /evaluations``: chooses the best of ``models`` for one charge, once
        per key.
        """
        return self._once("/evaluations", request, idempotency_key)

    def evaluation(self, evaluation_id: str) -> JsonObject:
        """``GET /evaluations/{id}``: the released numbers."""
        return self._json("GET", f"/evaluations/{segment(evaluation_id)}")

    # Keys

    def create_key(
        self, name: str, roles: list[str], *, expires_at: str | None = None
    ) -> JsonObject:
        """``POST /keys``. Not repeated after a lost connection, because every arrival
        makes a key.
        """
        return self._json(
            "POST",
            "/keys",
            body={"name": name, "roles": roles, "expires_at": expires_at},
        )

    def rotate_key(self, key_id: str, *, expires_at: str | None = None) -> JsonObject:
        """``POST /keys/{id}/secret``. Not repeated after a lost connection, because
        every arrival makes a secret.
        """
        return self._json(
            "POST",
            f"/keys/{key_segment(key_id)}/secret",
            body={"expires_at": expires_at},
        )

    def keys(self) -> Iterator[JsonObject]:
        """``GET /keys``, all pages."""
        return self._pages("/keys", "keys")

    def revoke_key(self, key_id: str) -> JsonObject:
        """``DELETE /keys/{id}``."""
        return self._json("DELETE", f"/keys/{key_segment(key_id)}")

    def balances(self) -> Iterator[JsonObject]:
        """``GET /ledger``, all pages: the datasets' balances."""
        return self._pages("/ledger", "datasets")

    def balance(self, account: str, *, scope: JsonMapping | None = None) -> JsonObject:
        """``GET /ledger/{account}``: of a dataset the tightest joint cell, within a
        scope if one is given.
        """
        params = {"scope": None if scope is None else json.dumps(scope)}
        return self._json("GET", f"/ledger/{segment(account)}", params=params)

    def spent(
        self, dataset: str, *, by: str = "key", actor: str | None = None
    ) -> JsonObject:
        """``GET /ledger/{dataset}/spent``: the sums of charges.

        Args:
            by: ``key``, ``purpose``, ``key,purpose``, ``kind``, ``month`` or ``cell``.
            actor: id or name of a key, whose charges alone count.
        """
        params = {"by": by, "actor": None if actor is None else key_reference(actor)}
        return self._json("GET", f"/ledger/{segment(dataset)}/spent", params=params)

    def entries(self, account: str, **search: Any) -> Iterator[JsonObject]:
        """``GET /ledger/{account}/entries``, all pages, in order; arguments as for
        :meth:`entry_list`.
        """
        for page in self._entry_pages(account, **search):
            yield from page["entries"]

    def entry_list(self, account: str, **search: Any) -> JsonObject:
        """Entries in order, and beside them by id: ``jobs``, their public facts, and
        ``actors``, the names of the keys that acted or submitted a job, as far as this
        key may know them.

        Args:
            account: a dataset, by id or name, or a population.
            search: ``kind`` of entries, ``job`` (or reservation), ``actor`` (a key),
                ``scope`` (cells of which an entry covers some), ``purpose`` of a job.
                All entries by default.
        """
        listed: JsonObject = {"entries": [], "actors": {}, "jobs": {}}
        for page in self._entry_pages(account, **search):
            listed["entries"] += page["entries"]
            listed["actors"] |= page["actors"]
            listed["jobs"] |= page["jobs"]
        return listed

    def _entry_pages(
        self,
        account: str,
        *,
        kind: str | None = None,
        job: str | None = None,
        actor: str | None = None,
        scope: JsonMapping | None = None,
        purpose: str | None = None,
    ) -> Iterator[JsonObject]:
        cells = None if scope is None else json.dumps(scope)
        path = f"/ledger/{segment(account)}/entries"
        by = None if actor is None else key_reference(actor)
        return self._whole_pages(
            path, kind=kind, job=job, actor=by, scope=cells, purpose=purpose
        )

    def export_ledger(
        self, account: str, file: Path, *, export_format: str = "jsonl"
    ) -> str:
        """``GET /ledger/{account}/export`` into a file, which appears only when it is
        complete.

        Returns:
            SHA-256 of the bytes, in lower-case hexadecimal.
        """
        params = {"format": None if export_format == "jsonl" else export_format}
        return self._download(
            Request("GET", f"/ledger/{segment(account)}/export", params=params), file
        )

    def change_cap(
        self,
        account: str,
        cap: str | None = None,
        *,
        reason: str,
        rho: str | None = None,
        mu: str | None = None,
        idempotency_key: str | None = None,
    ) -> JsonObject:
        """``POST /ledger/{account}/cap``: a new lifetime cap, an ε as exact decimal
        text, or on ``zcdp`` a ρ, on ``gdp`` a μ; once per key.
        """
        stated = {"cap": cap, "rho": rho, "mu": mu}
        body: JsonObject = {"reason": reason}
        body |= {name: value for name, value in stated.items() if value is not None}
        return self._once(f"/ledger/{segment(account)}/cap", body, idempotency_key)

    def checkpoint(self, account: str) -> str:
        """``GET /ledger/{account}/checkpoint``: the signed note."""
        return self._transport.send(
            Request("GET", f"/ledger/{segment(account)}/checkpoint")
        ).text

    def state_verification(self, account: str, **stated: Any) -> JsonObject:
        """``PUT /ledger/{account}/verification``: what your verifier said of an export,
        with its ``checkpoint``, or its ``entries`` and ``last_hash``. For auditors.
        """
        return self._json(
            "PUT", f"/ledger/{segment(account)}/verification", body=stated
        )

    def deployment(self, account: str) -> JsonObject:
        """``GET /ledger/{account}/deployment``: a record for the public registry, and
        what its owner has to add.
        """
        return self._json("GET", f"/ledger/{segment(account)}/deployment")

    def inclusion(
        self, account: str, sequence: int, *, size: int | None = None
    ) -> JsonObject:
        """``GET /ledger/{account}/proofs``: that an entry is among the first ``size``,
        or among all.
        """
        return self._json(
            "GET",
            f"/ledger/{segment(account)}/proofs",
            params={"sequence": sequence, "size": size},
        )

    def consistency(
        self, account: str, from_size: int, *, size: int | None = None
    ) -> JsonObject:
        """``GET /ledger/{account}/proofs``: that the log only grew since it had
        ``from_size`` entries.
        """
        return self._json(
            "GET",
            f"/ledger/{segment(account)}/proofs",
            params={"from_size": from_size, "size": size},
        )

    def acts(self, *, dataset: str | None = None) -> Iterator[JsonObject]:
        """``GET /audit``, all pages, in order: the administrative acts, or those about
        one dataset.
        """
        return self._pages("/audit", "acts", dataset=dataset)

    def export_acts(self, file: Path) -> str:
        """``GET /audit/export`` into a file, which appears only when it is complete.

        Returns:
            SHA-256 of the bytes, in lower-case hexadecimal.
        """
        return self._download(Request("GET", "/audit/export"), file)

    def checkpoint_of_acts(self) -> str:
        """``GET /audit/checkpoint``: the signed head of the administrative acts."""
        return self._transport.send(Request("GET", "/audit/checkpoint")).text

    def signer(self) -> JsonObject:
        """``GET /signer``: the public key that checkpoints are checked with."""
        return self._json("GET", "/signer")

    def quote_external(self, dataset: str, request: JsonObject) -> JsonObject:
        """``POST /ledger/{dataset}/quotes``: the price of an external mechanism; it
        costs nothing.
        """
        return self._repeatable(f"/ledger/{segment(dataset)}/quotes", request)

    def charge_external(
        self, dataset: str, request: JsonObject, *, idempotency_key: str | None = None
    ) -> JsonObject:
        """``POST /ledger/{dataset}/reservations``: charges for an external mechanism,
        once per key and for good.

        Call it before the mechanism reads a row.
        """
        return self._once(
            f"/ledger/{segment(dataset)}/reservations", request, idempotency_key
        )

    def reservations(self, dataset: str) -> Iterator[JsonObject]:
        """``GET /ledger/{dataset}/reservations``, all pages: the charges for external
        mechanisms.
        """
        return self._pages(f"/ledger/{segment(dataset)}/reservations", "reservations")

    def reservation(self, dataset: str, reservation_id: str) -> JsonObject:
        """``GET /ledger/{dataset}/reservations/{id}``."""
        return self._json(
            "GET", f"/ledger/{segment(dataset)}/reservations/{segment(reservation_id)}"
        )


def _is_past(until: float | None) -> bool:
    return until is not None and time.monotonic() >= until


def _unless_changed(etag: str | None) -> dict[str, str]:
    return {} if etag is None else {"If-Match": f'"{etag}"'}


def _of_rows(
    dataset: str,
    file: Path,
    options: Mapping[str, object],
    *,
    on_progress: Callable[[int], None],
) -> Request:
    """The request that sends a file of rows."""
    return Request(
        "POST",
        f"/datasets/{segment(dataset)}/rows",
        params={name: _parameter(value) for name, value in options.items()},
        headers=headers_of(file) | {"Content-Length": str(file.stat().st_size)},
        content=lambda: _chunks(file, on_progress),
        read_timeout_s=_UPLOAD_TIMEOUT_S,
    )


def _parameter(value: object) -> str | None:
    """The query parameter of an option: a text, or something that is insisted on."""
    if isinstance(value, str):
        return value
    return "true" if value else None


def _chunks(file: Path, on_progress: Callable[[int], None]) -> Iterator[bytes]:
    sent = 0
    on_progress(0)
    with file.open("rb") as stream:
        while chunk := stream.read(CHUNK_BYTES):
            yield chunk
            sent += len(chunk)
            on_progress(sent)


def _connected(url: str) -> Client:
    return Client(url, key_of(os.environ))
