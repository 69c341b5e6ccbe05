"""A valid request for every operation of the API, by operation id."""

import secrets
from collections.abc import Callable
from dataclasses import dataclass, fields
from itertools import count
from typing import Any

from tests.support.server import (
    CSV,
    csv_rows,
    declaration,
    new_idempotency_key,
    training,
)


@dataclass(frozen=True)
class Targets:
    """The objects that the requests address."""

    dataset: str
    job: str
    model: str
    profile: str
    statistics: str
    key: str
    population: str
    reservation: str
    rival: str
    evaluation: str
    webhook: str
    upload: str


NOWHERE = Targets(**{field.name: f"no_{field.name}" for field in fields(Targets)})
"""Ids of nothing."""


def counting() -> dict[str, Any]:
    """A request for statistics."""
    tables = [
        {"statistic": "histogram", "column": "sex"},
        {"statistic": "mean", "column": "age", "where": [{"column": "sex", "in": ["Female"]}]},
    ]  # fmt: skip
    return {"epsilon": "0.5", "tables": tables}


def new_population() -> dict[str, Any]:
    return {
        "name": f"people-{secrets.token_hex(6)}",
        "budget": {"accountant": "pure", "epsilon": "1000"},
    }


_caps = count(999, -1)


def _lower_cap() -> dict[str, str]:
    """A cap lower than every cap before."""
    return {"cap": str(next(_caps)), "reason": "a test"}


_largest_jobs = count(990, -1)


def _tighter_rules() -> dict[str, Any]:
    """Rules that are tighter than all before."""
    largest = str(next(_largest_jobs))
    return {
        "largest_job": largest,
        "approval_above": None,
        "quotas": [],
        "frozen": False,
        "erase_rows_at": None,
    }


EXTERNAL = {
    "description": "a mean", "per": "row", "declared": {"adjacency": "add_remove", "epsilon": "0.001"},
}  # fmt: skip
INFERENCE = {
    "inputs": [{"name": "age", "datatype": "INT64", "shape": [1], "data": [30]}]
}
WEBHOOK = {"url": "https://hooks.invalid/a", "events": ["request.refused"]}
Ask = tuple[str, str, dict[str, Any]]
REQUESTS: dict[str, Callable[[Targets], Ask]] = {
    "check_health": lambda it: ("GET", "/healthz", {}),
    "check_readiness": lambda it: ("GET", "/readyz", {}),
    "create_key": lambda it: ("POST", "/keys", {"json": {"name": "another", "roles": []}}),
    "list_keys": lambda it: ("GET", "/keys", {}),
    "rotate_key": lambda it: ("POST", f"/keys/{it.key}/secret", {"json": {}}),
    "revoke_key": lambda it: ("DELETE", f"/keys/{it.key}", {}),
    "declare_dataset": lambda it: ("POST", "/datasets", {"json": declaration()}),
    "check_declaration": lambda it: ("POST", "/declarations", {"json": declaration()}),
    "list_datasets": lambda it: ("GET", "/datasets", {}),
    "show_dataset": lambda it: ("GET", f"/datasets/{it.dataset}", {}),
    # the columns in force, which change nothing
    "change_dataset": lambda it: ("PATCH", f"/datasets/{it.dataset}", {"json": {"schema": declaration()["schema"]}}),
    "delete_dataset": lambda it: ("DELETE", f"/datasets/{it.dataset}", {}),
    "list_grants": lambda it: ("GET", f"/datasets/{it.dataset}/grants", {}),
    "put_grant": lambda it: ("PUT", f"/datasets/{it.dataset}/grants/{it.key}", {"json": {"role": "predictor"}}),
    "delete_grant": lambda it: ("DELETE", f"/datasets/{it.dataset}/grants/{it.key}", {}),
    "upload_rows": lambda it: ("POST", f"/datasets/{it.dataset}/rows", {"content": csv_rows(3), "headers": CSV}),
    "check_rows": lambda it: ("POST", f"/datasets/{it.dataset}/rows/check", {"content": csv_rows(4), "headers": CSV}),
    "list_uploads": lambda it: ("GET", f"/datasets/{it.dataset}/uploads", {}),
    "erase_upload": lambda it: ("DELETE", f"/datasets/{it.dataset}/uploads/{it.upload}", {}),
    "list_algorithms": lambda it: ("GET", "/algorithms", {}),
    "create_plan": lambda it: ("POST", "/plans", {"json": training(it.dataset)}),
    "train_model": lambda it: ("POST", "/train", {"json": training(it.dataset), "headers": new_idempotency_key()}),
    "quote_profile": lambda it: ("POST", f"/datasets/{it.dataset}/profiles/quote", {"json": {"epsilon": "0.1"}}),
    "release_profile": lambda it: (
        "POST",
        f"/datasets/{it.dataset}/profiles",
        {"json": {"epsilon": "0.1"}, "headers": new_idempotency_key()},
    ),
    "list_profiles": lambda it: ("GET", f"/datasets/{it.dataset}/profiles", {}),
    "show_profile": lambda it: ("GET", f"/profiles/{it.profile}", {}),
    "quote_statistics": lambda it: ("POST", f"/datasets/{it.dataset}/statistics/quote", {"json": counting()}),
    "release_statistics": lambda it: (
        "POST", f"/datasets/{it.dataset}/statistics", {"json": counting(), "headers": new_idempotency_key()},
    ),
    "list_statistics": lambda it: ("GET", f"/datasets/{it.dataset}/statistics", {}),
    "show_statistics": lambda it: ("GET", f"/statistics/{it.statistics}", {}),
    "quote_evaluation": lambda it: ("POST", f"/models/{it.model}/evaluations/quote", {"json": {"epsilon": "0.1"}}),
    "evaluate_model": lambda it: (
        "POST", f"/models/{it.model}/evaluations", {"json": {"epsilon": "0.1"}, "headers": new_idempotency_key()},
    ),
    "list_evaluations": lambda it: ("GET", f"/models/{it.model}/evaluations", {}),
    "show_evaluation": lambda it: ("GET", f"/evaluations/{it.evaluation}", {}),
    "quote_selection": lambda it: (
        "POST", "/evaluations/quote", {"json": {"epsilon": "0.1", "models": [it.model, it.rival]}},
    ),
    "select_model": lambda it: (
        "POST", "/evaluations",
        {"json": {"epsilon": "0.1", "models": [it.model, it.rival]}, "headers": new_idempotency_key()},
    ),
    "list_jobs": lambda it: ("GET", "/jobs", {}),
    "show_job": lambda it: ("GET", f"/jobs/{it.job}", {}),
    "cancel_job": lambda it: ("DELETE", f"/jobs/{it.job}", {}),
    "show_attention": lambda it: ("GET", "/attention", {}),
    "list_approvals": lambda it: ("GET", "/approvals", {}),
    "decide_job": lambda it: ("POST", f"/approvals/{it.job}", {"json": {"decision": "approve", "reason": "a test"}}),
    "watch_job": lambda it: ("GET", f"/jobs/{it.job}/events", {}),
    "list_models": lambda it: ("GET", "/models", {}),
    "show_model": lambda it: ("GET", f"/models/{it.model}", {}),
    "show_comparison": lambda it: ("GET", f"/models/{it.model}/comparison?others={it.rival}", {}),
    "show_importances": lambda it: ("GET", f"/models/{it.model}/importances", {}),
    "show_tree": lambda it: ("GET", f"/models/{it.model}/trees/0", {}),
    "create_webhook": lambda it: ("POST", f"/datasets/{it.dataset}/webhooks", {"json": WEBHOOK}),
    "rotate_webhook": lambda it: ("POST", f"/datasets/{it.dataset}/webhooks/{it.webhook}/secret", {"json": {}}),
    "test_webhook": lambda it: ("POST", f"/datasets/{it.dataset}/webhooks/{it.webhook}/test", {}),
    "list_webhooks": lambda it: ("GET", f"/datasets/{it.dataset}/webhooks", {}),
    "delete_webhook": lambda it: ("DELETE", f"/datasets/{it.dataset}/webhooks/{it.webhook}", {}),
    "list_aliases": lambda it: ("GET", f"/datasets/{it.dataset}/aliases", {}),
    "show_alias": lambda it: ("GET", f"/datasets/{it.dataset}/aliases/production", {}),
    "put_alias": lambda it: ("PUT", f"/datasets/{it.dataset}/aliases/another", {"json": {"model": it.model}}),
    "delete_alias": lambda it: ("DELETE", f"/datasets/{it.dataset}/aliases/production", {}),
    "delete_model": lambda it: ("DELETE", f"/models/{it.model}", {}),
    "download_artifact": lambda it: ("GET", f"/models/{it.model}/artifact", {}),
    "predict": lambda it: ("POST", f"/models/{it.model}/predict", {"json": {"rows": [{"age": 30}]}}),
    "check_live": lambda it: ("GET", "/v2/health/live", {}),
    "check_ready": lambda it: ("GET", "/v2/health/ready", {}),
    "show_server": lambda it: ("GET", "/v2", {}),
    "show_metadata": lambda it: ("GET", f"/v2/models/{it.model}", {}),
    "show_version": lambda it: ("GET", f"/v2/models/{it.model}/versions/{it.model}", {}),
    "check_model": lambda it: ("GET", f"/v2/models/{it.model}/ready", {}),
    "check_version": lambda it: ("GET", f"/v2/models/{it.model}/versions/{it.model}/ready", {}),
    "infer_model": lambda it: ("POST", f"/v2/models/{it.model}/infer", {"json": INFERENCE}),
    "infer_version": lambda it: ("POST", f"/v2/models/{it.model}/versions/{it.model}/infer", {"json": INFERENCE}),
    "list_balances": lambda it: ("GET", "/ledger", {}),
    "show_balance": lambda it: ("GET", f"/ledger/{it.dataset}", {}),
    "list_entries": lambda it: ("GET", f"/ledger/{it.dataset}/entries", {}),
    "show_spent": lambda it: ("GET", f"/ledger/{it.dataset}/spent?by=purpose", {}),
    "export_ledger": lambda it: ("GET", f"/ledger/{it.dataset}/export", {}),
    "change_cap": lambda it: ("POST", f"/ledger/{it.dataset}/cap", {"json": _lower_cap()}),
    "put_verification": lambda it: ("PUT", f"/ledger/{it.dataset}/verification", {"json": {"verdict": "NOT VERIFIED"}}),
    "show_checkpoint": lambda it: ("GET", f"/ledger/{it.dataset}/checkpoint", {}),
    "show_deployment": lambda it: ("GET", f"/ledger/{it.dataset}/deployment", {}),
    "show_proof": lambda it: ("GET", f"/ledger/{it.dataset}/proofs?sequence=1", {}),
    "show_metrics": lambda it: ("GET", "/metrics", {}),
    "show_signer": lambda it: ("GET", "/signer", {}),
    "list_acts": lambda it: ("GET", "/audit", {}),
    "export_acts": lambda it: ("GET", "/audit/export", {}),
    "show_head": lambda it: ("GET", "/audit/checkpoint", {}),
    "erase_unit": lambda it: ("POST", f"/datasets/{it.dataset}/erasures", {"json": {"unit": "ann"}}),
    "show_rules": lambda it: ("GET", f"/datasets/{it.dataset}/rules", {}),
    "change_rules": lambda it: ("PUT", f"/datasets/{it.dataset}/rules", {"json": _tighter_rules()}),
    "show_overlaps": lambda it: ("GET", f"/datasets/{it.dataset}/overlaps", {}),
    "join_population": lambda it: (
        "PUT", f"/datasets/{it.dataset}/population", {"json": {"population": new_population()["name"]}},
    ),
    "erase_person": lambda it: (
        "POST", f"/populations/{it.population}/erasures", {"json": {"unit": "ann", "reference": "request 118"}}
    ),
    "create_population": lambda it: ("POST", "/populations", {"json": new_population()}),
    "list_populations": lambda it: ("GET", "/populations", {}),
    "show_population": lambda it: ("GET", f"/populations/{it.population}", {}),
    "create_quote": lambda it: ("POST", f"/ledger/{it.dataset}/quotes", {"json": EXTERNAL}),
    "create_reservation": lambda it: (
        "POST", f"/ledger/{it.dataset}/reservations", {"json": EXTERNAL, "headers": new_idempotency_key()},
    ),
    "list_reservations": lambda it: ("GET", f"/ledger/{it.dataset}/reservations", {}),
    "show_reservation": lambda it: ("GET", f"/ledger/{it.dataset}/reservations/{it.reservation}", {}),
}  # fmt: skip

ACTS: dict[str, tuple[str, ...]] = {
    "create_key": ("key-made",),
    "rotate_key": ("key-rotated",),
    "revoke_key": ("key-revoked",),
    "put_grant": ("grant-made",),
    "delete_grant": ("grant-removed",),
    "declare_dataset": ("dataset-declared",),
    "change_dataset": ("dataset-changed",),
    "delete_dataset": ("dataset-deleted",),
    "erase_unit": ("unit-erased",),
    "erase_person": ("unit-erased",),
    "erase_upload": ("upload-erased",),
    "change_cap": ("cap-changed",),
    "change_rules": ("rules-changed",),
    "decide_job": ("job-approved",),
    "create_population": ("population-opened",),
    "join_population": ("population-opened", "population-joined"),
    "put_alias": ("alias-moved",),
    "delete_alias": ("alias-removed",),
    "create_webhook": ("webhook-made",),
    "rotate_webhook": ("webhook-rotated",),
    "delete_webhook": ("webhook-removed",),
    "test_webhook": (),
    "upload_rows": (),
    "train_model": (),
    "release_profile": (),
    "release_statistics": (),
    "evaluate_model": (),
    "select_model": (),
    "cancel_job": (),
    "delete_model": ("model-deleted",),
    "create_reservation": (),
    "put_verification": (),
}
"""The acts that each operation with an effect records; the ledgers of accounts record
charges.
"""
