"""Calls the endpoints of the ledger, of its evidence and of external charges."""

import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from grovekeeper_client.calls import Calls, Json, segment
from grovekeeper_client.transport import Request, new_idempotency_key


class LedgerCalls(Calls):
    """Methods for ``/ledger``, ``/audit`` and ``/signer``. An account is a dataset, by id or name, or a population."""

    def balances(self) -> Iterator[Json]:
        """``GET /ledger``, all pages: the datasets' balances."""
        return self._pages("/ledger", "datasets")

    def balance(self, account: str, *, scope: Mapping[str, Any] | None = None) -> Json:
        """``GET /ledger/{account}``: of a dataset the tightest joint cell, within a scope if one is given."""
        params = {"scope": None if scope is None else json.dumps(scope)}
        return self._json("GET", f"/ledger/{segment(account)}", params=params)

    def entries(self, account: str, **search: Any) -> Iterator[Json]:
        """``GET /ledger/{account}/entries``, all pages, in order; arguments as for :meth:`entry_list`."""
        for page in self._entry_pages(account, **search):
            yield from page["entries"]

    def entry_list(self, account: str, **search: Any) -> Json:
        """Entries in order, and beside them by id: ``jobs``, their public facts, and ``actors``, the names of the keys
        that acted or submitted a job, as far as this key may know them.

        Args:
            account: a dataset, by id or name, or a population.
            search: ``kind`` of entries, ``job`` (or reservation), ``actor`` (a key), ``scope`` (cells of which an entry
                covers some). All entries by default.
        """
        listed: Json = {"entries": [], "actors": {}, "jobs": {}}
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
        scope: Mapping[str, Any] | None = None,
    ) -> Iterator[Json]:
        cells = None if scope is None else json.dumps(scope)
        path = f"/ledger/{segment(account)}/entries"
        return self._whole_pages(path, kind=kind, job=job, actor=actor, scope=cells)

    def export_ledger(self, account: str, file: Path, *, export_format: str = "jsonl") -> str:
        """``GET /ledger/{account}/export`` into a file, which appears only when it is complete.

        Returns:
            SHA-256 of the bytes, in lower-case hexadecimal.
        """
        params = {"format": None if export_format == "jsonl" else export_format}
        return self._download(Request("GET", f"/ledger/{segment(account)}/export", params=params), file)

    def change_cap(self, account: str, cap: str, *, reason: str, idempotency_key: str | None = None) -> Json:
        """``POST /ledger/{account}/cap``: a new lifetime cap, an ε as exact decimal text; once per key."""
        body = {"cap": cap, "reason": reason}
        key = idempotency_key or new_idempotency_key()
        return self._json("POST", f"/ledger/{segment(account)}/cap", body=body, key=key)

    def checkpoint(self, account: str) -> str:
        """``GET /ledger/{account}/checkpoint``: the signed note."""
        return self._transport.send(Request("GET", f"/ledger/{segment(account)}/checkpoint")).text

    def deployment(self, account: str) -> Json:
        """``GET /ledger/{account}/deployment``: a record for the public registry, and what its owner has to add."""
        return self._json("GET", f"/ledger/{segment(account)}/deployment")

    def inclusion(self, account: str, sequence: int, *, size: int | None = None) -> Json:
        """``GET /ledger/{account}/proofs``: that an entry is among the first ``size``, or among all."""
        return self._json("GET", f"/ledger/{segment(account)}/proofs", params={"sequence": sequence, "size": size})

    def consistency(self, account: str, from_size: int, *, size: int | None = None) -> Json:
        """``GET /ledger/{account}/proofs``: that the log only grew since it had ``from_size`` entries."""
        return self._json("GET", f"/ledger/{segment(account)}/proofs", params={"from_size": from_size, "size": size})

    def acts(self) -> Iterator[Json]:
        """``GET /audit``, all pages, in order: the administrative acts."""
        return self._pages("/audit", "acts")

    def export_acts(self, file: Path) -> str:
        """``GET /audit/export`` into a file, which appears only when it is complete.

        Returns:
            SHA-256 of the bytes, in lower-case hexadecimal.
        """
        return self._download(Request("GET", "/audit/export"), file)

    def checkpoint_of_acts(self) -> str:
        """``GET /audit/checkpoint``: the signed head of the administrative acts."""
        return self._transport.send(Request("GET", "/audit/checkpoint")).text

    def signer(self) -> Json:
        """``GET /signer``: the public key that checkpoints are checked with."""
        return self._json("GET", "/signer")

    def quote_external(self, dataset: str, request: Json) -> Json:
        """``POST /ledger/{dataset}/quotes``: the price of an external mechanism; it costs nothing."""
        return self._json("POST", f"/ledger/{segment(dataset)}/quotes", body=request, repeatable=True)

    def charge_external(self, dataset: str, request: Json, *, idempotency_key: str | None = None) -> Json:
        """``POST /ledger/{dataset}/reservations``: charges for an external mechanism, once per key and for good.

        Call it before the mechanism reads a row.
        """
        key = idempotency_key or new_idempotency_key()
        return self._json("POST", f"/ledger/{segment(dataset)}/reservations", body=request, key=key)

    def reservations(self, dataset: str) -> Iterator[Json]:
        """``GET /ledger/{dataset}/reservations``, all pages: the charges for external mechanisms."""
        return self._pages(f"/ledger/{segment(dataset)}/reservations", "reservations")

    def reservation(self, dataset: str, reservation_id: str) -> Json:
        """``GET /ledger/{dataset}/reservations/{id}``."""
        return self._json("GET", f"/ledger/{segment(dataset)}/reservations/{segment(reservation_id)}")
