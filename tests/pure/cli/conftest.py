"""Fixtures that run commands against a fake service with a table of answers."""

import json
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import httpx
import pytest
from typer.testing import CliRunner, Result

import grovekeeper_client.client
from app.cli.main import app as grovekeeper

KEY = "key_test." + "s" * 43
PRICE = {
    "accountant": "pure",
    "unit": "epsilon",
    "amount": "0.1",
    "epsilon": "0.1",
    "delta": None,
}
ACCOUNT = {
    "accountant": "pure", "unit": "epsilon", "cap": "3", "charged": "1", "reserved": "0.5", "remaining": "1.5",
    "available": "1.5", "limited_by": "cap",
}  # fmt: skip
VERIFICATIONS = [
    {
        "verdict": "NOT VERIFIED", "entries": None, "entries_since": None, "checkpoint": None,
        "by": "key_3", "by_name": "eva", "at": "2026-11-20T09:00:00.000000Z",
    },
    {
        "verdict": "VERIFIED", "entries": 2, "entries_since": 3, "checkpoint": "note",
        "by": None, "by_name": None, "at": "2026-11-21T08:00:00.000000Z",
    },
]  # fmt: skip
BALANCE = {
    "account": "ds_1", "account_name": "census", "kind": "dataset", "dataset": "ds_1", "dataset_name": "census",
    "deleted_at": "2026-11-21T09:00:00.000000Z", "verifications": VERIFICATIONS,
    **ACCOUNT,
}  # fmt: skip
OF_POPULATION = {
    "account": "pop_1", "account_name": "patients", "kind": "population", "dataset": None, "dataset_name": None,
    "deleted_at": None, "verifications": [],
    **ACCOUNT,
}  # fmt: skip
GRANT = {
    "role": "analyst", "granted_by": "key_1", "granted_at": "2026-11-20T09:00:00.000000Z", "expires_at": None,
    "revoked_at": None, "last_used_at": "2026-11-29T23:00:00.000000Z",
}  # fmt: skip
DATASET = {
    "id": "ds_1",
    "name": "census",
    "role": "owner",
    "state": "active",
    "account": ACCOUNT,
    "largest_that_fits": "1.25",
    "pace": {"days": 12, "charged": "0.5", "ends_on": "2027-01-29"},
    "schema": {
        "features": [
            {
                "name": "age",
                "type": "integer",
                "lower": 0,
                "upper": 120,
                "missing": False,
            },
            {
                "name": "sex",
                "type": "categorical",
                "categories": ["Female", "Male"],
                "missing": True,
            },
        ],
        "label": {"name": "income", "classes": ["low", "high"]},
    },
    "adjacency": "add_remove",
    "privacy_unit": {"column": None, "max_rows": 1},
    "protects": "row",
    "partitions": [{"name": "shard", "kind": "hash", "cells": 10}],
    "public_size": 30000,
    "population": None,
    "warnings": [],
    "epochs": [
        {
            "epoch": "ep_1",
            "uploaded_at": "2026-11-20T09:00:00.000000Z",
            "erased_at": None,
        }
    ],
    "created_at": "2026-11-20T09:00:00.000000Z",
    "deleted_at": None,
}
PLAN = {
    "dataset": "ds_1",
    "dataset_name": "census",
    "algorithm": "mrf",
    "why": None,
    "parameters": {"n_estimators": 8},
    "scope": {},
    "price": PRICE,
    "odds": {"add_remove": "0.525", "replace_one": "0.5499"},
    "event": {"type": "sequential/1", "parts": []},
    "receipt": "8 trees, one after another",
    "cap": "3",
    "remaining": "1.5",
    "fits": True,
    "largest_that_fits": "1.5",
    "left_afterwards": "1.4",
    "limited_by": "cap",
    "needs_approval": False,
    "population": None,
    "warnings": ["small data"],
    "expected_accuracy": {
        "sentence": "Expect about 84.6 % if always answering the commonest class gives 75.0 %.",
        "spread": "Similar public tables (adult, magic) recovered 95 % in the middle, half between 90 % and all.",
        "without_gain": ["bank"],
        "auroc": None,
        "band": {"epsilon": "1", "low": 0.9, "middle": 0.95, "high": 1.0},
        "tables": [{"table": "adult", "share": 0.9}, {"table": "magic", "share": 1.0}],
        "curve": [
            {"epsilon": "0.5", "low": 0.6, "middle": 0.8, "high": 0.9},
            {"epsilon": "1", "low": 0.9, "middle": 0.95, "high": 1.0},
        ],
        "note": None,
    },
    "unlabelled": None,
}
JOB = {
    "id": "jb_1",
    "dataset": "ds_1",
    "dataset_name": "census",
    "algorithm": "mrf",
    "name": None,
    "state": "succeeded",
    "reason": None,
    "held_by": None,
    "jobs_before": None,
    "charged": True,
    "progress": 1.0,
    "preparing": False,
    "trees_done": 8,
    "n_trees": 8,
    "kind": "train",
    "what": "mrf",
    "model_id": "md_1",
    "profile_id": None,
    "evaluation_id": None,
    "statistics_id": None,
    "reservation_id": "rs_1",
    "price": PRICE,
    "unlabelled": None,
    "purpose": "compare with last year",
    "submitted_by": "key_1",
    "submitted_at": "2026-11-20T09:00:00.000000Z",
}
ARTIFACT = b"artifact"
ARTIFACT_SHA256 = "c7c5c1d70c5dec4416ab6158afd0b223ef40c29b1dc1f97ed9428b94d4cadb1c"
ALIAS = {
    "alias": "production",
    "model_id": "md_1",
    "moved_at": "2026-11-20T09:00:00.000000Z",
}
MODEL = {
    "aliases": ["census@production"],
    "id": "md_1",
    "name": "forest",
    "dataset": "ds_1",
    "dataset_name": "census",
    "job_id": "jb_1",
    "algorithm": "mrf",
    "parameters": {"n_estimators": 8},
    "schema": DATASET["schema"],
    "guarantee": {
        "add_remove": {"epsilon": "3", "delta": "0"},
        "replace_one": {"epsilon": "6", "delta": "0"},
        "odds": {"add_remove": "0.9526"},
        "adds": {
            "unit": "epsilon",
            "add_remove": "0.1",
            "replace_one": "0.2",
            "odds": {"add_remove": "0.525", "replace_one": "0.5499"},
            "text": "Given …",
        },
        "text": "For any two datasets …",
    },
    "receipt": "8 trees, one after another",
    "event": {},
    "ledger": {},
    "profile_id": "pf_1",
    "scope": {"shard": [1]},
    "only_answer": {"label": "no", "text": "The model answers no whatever the row is."},
    "unlabelled": None,
    "read_outs": ["ta"],
    "digest": ARTIFACT_SHA256,
    "size_bytes": 8,
    "created_at": "2026-11-20T09:00:00.000000Z",
}
ACT: dict[str, Any] = {
    "sequence": 2, "kind": "key-revoked", "amount": "0", "scope": {}, "event": None, "job_id": None,
    "actor": "key_a", "at": "2026-11-20T12:00:00.000000Z", "previous_hash": "0" * 64, "hash": "ab" * 32,
    "details": {"key": "key_b"},
}  # fmt: skip
ENTRY = {
    "sequence": 1,
    "kind": "open",
    "amount": "3",
    "scope": {},
    "event": None,
    "job_id": None,
    "actor": "key_1",
    "at": "2026-11-20T09:00:00.000000Z",
    "previous_hash": "0" * 64,
    "hash": "ab" * 32,
}
LOAD = {
    **ENTRY, "sequence": 2, "kind": "load", "job_id": "jb_1", "hash": "cd" * 32,
    "details": {"member": {"dataset": "ds_1", "sequence": 2, "hash": "ef" * 32}},
}  # fmt: skip
NOTE = "grovekeeper/ledger/ds_1\n1\nroot\ntime\n\n— grovekeeper c2ln\n"
PROOF = {
    "kind": "consistency",
    "origin": "grovekeeper/ledger/ds_1",
    "from_size": 1,
    "size": 1,
    "path": [],
}
SIGNER = {
    "name": "grovekeeper",
    "algorithm": "ed25519",
    "public_key": "-----BEGIN\n",
    "verifier_key": "grovekeeper+1+k",
}
EXTERNAL = {
    "reservation_id": "rs_2", "dataset": "ds_1", "dataset_name": "census", "state": "charged", "scope": {},
    "price": {"accountant": "pure", "unit": "epsilon", "amount": "0.5", "delta": None}, "description": "a mean",
    "per": "row", "event": None, "declared": {}, "attested_by": "key_3", "receipt": "Declared: at most ε = 0.5",
}  # fmt: skip
CREATED_KEY = {
    "id": "key_2",
    "name": "ann",
    "key": "key_2." + "t" * 43,
    "roles": [],
    "expires_at": None,
}
ROTATED_WEBHOOK = {
    "id": "wh_1", "url": "https://hooks.test/", "events": ["job.ended"], "threshold": None, "created_by": "key_2",
    "created_at": "2026", "waiting": 0, "failures": 0, "earlier_secret_until": "2027", "secret": "whsec_" + "t" * 44,
    "deliveries": [
        {"id": "whd_2", "event": "webhook.test", "created_at": "2028", "attempted_at": "2029", "attempts": 3,
         "status": None, "reason": "no-answer"},
        {"id": "whd_1", "event": "job.ended", "created_at": "2026", "attempted_at": "2026", "attempts": 1,
         "status": 204, "reason": None},
    ],
}  # fmt: skip
LISTED_KEY = {
    "id": "key_2", "name": "ann", "issuer": None, "roles": ["auditor"], "created_at": "2026", "expires_at": "2027",
    "rotated_at": None, "revoked_at": None, "last_used_at": "2026-11-30T23:00:00.000000Z",
}  # fmt: skip
ALGORITHM = {
    "slug": "mrf",
    "title": "Multinomial forest",
    "source": "a paper",
    "accountants": ["pure"],
    "about": {
        "claimed": "much",
        "wrong": None,
        "here": "noise",
        "proof": "proof.md",
        "results": "table.md",
        "accuracy": [
            {
                "dataset": "adult",
                "accountant": "pure",
                "epsilon": "1",
                "percent": "84.1",
            },
            {
                "dataset": "magic",
                "accountant": "pure",
                "epsilon": "1",
                "percent": "83.5",
            },
            {
                "dataset": "magic",
                "accountant": "gdp",
                "epsilon": "1",
                "percent": "85.5",
            },
        ],
    },
    "parameters": [
        {
            "name": "n_estimators",
            "type": "integer",
            "minimum": 1,
            "maximum": 9,
            "default": None,
            "description": "trees",
        },
        {
            "name": "assignment",
            "type": "choice",
            "choices": ["a", "b"],
            "default": "a",
            "description": "rows",
        },
    ],
}

OVERLAPS = {
    "dataset": "ds_1", "dataset_name": "census", "population": None,
    "epochs": [
        {"epoch": "ep_0", "uploaded_at": "then", "rows": None, "distinct": None, "shared": []},
        {"epoch": "ep_1", "uploaded_at": "then", "rows": 9, "distinct": 8,
         "shared": [{"dataset": "ds_2", "dataset_name": "survey", "population": "patients", "rows": 7}]},
    ],
}  # fmt: skip
POPULATION = {
    "id": "pp_1", "name": "patients", "accountant": "pure", "unit": "epsilon", "delta": None, "cap": "3",
    "charged": "1", "reserved": "0.5", "remaining": "1.5", "adjacency": "add_remove", "unit_column": None,
    "guarantee": {"epsilon": "3", "delta": "0", "text": "For any two worlds", "odds": {"person": "0.9526"}},
    "warnings": [],
    "members": [{"dataset": "ds_1", "dataset_name": "census", "charged": "1", "reserved": "0.5", "deleted_at": "now"}],
    "created_at": "2026-11-20T09:30:00.000000Z",
}  # fmt: skip
_QUOTED = {
    "dataset": "ds_1", "dataset_name": "census", "scope": {}, "price": PRICE, "event": {}, "receipt": "2 counts",
    "cap": "3", "remaining": "1.5", "fits": True, "largest_that_fits": "1.5", "left_afterwards": "1.4",
    "limited_by": "cap", "needs_approval": False, "population": None, "odds": PLAN["odds"],
}  # fmt: skip
_RELEASED = {
    "dataset": "ds_1", "dataset_name": "census", "name": None, "scope": {}, "epochs": ["ep_1"], "price": PRICE,
    "created_at": "2026-11-20T09:00:00.000000Z", "job_id": "jb_1", "guarantee": MODEL["guarantee"],
    "receipt": "2 counts", "event": {}, "ledger": {},
}  # fmt: skip
PROFILE = {
    **_RELEASED, "id": "pf_1", "parameters": {"bins": "16"}, "features": [{"name": "age", "edges": [17.5, 40]}],
    "class_counts": [{"label": "low", "count": 120.0, "noise_sd": 2.5}], "tables": [],
    "size": {"count": 151.25, "noise_sd": 3.5},
}  # fmt: skip
EVALUATION = {
    **_RELEASED, "id": "ev_1", "models": ["md_1"], "best": None, "releases": ["confusion", "auroc"],
    "accuracy": {
        "estimate": 0.75, "interval": {"low": 0.7, "high": 0.8}, "population_interval": {"low": 0.6, "high": 0.9},
        "on_training_rows": False,
    },
    "majority": {"label": "high", "share": 0.521, "source": "confusion"},
    "confusion": {"classes": ["low", "high"], "counts": [[30.0, 9.0], [11.5, 31.0]], "noise_sd": 1.0},
    "auroc": {"estimate": 0.8125, "noise_sd": 0.01, "histogram": [[1.0], [2.0]], "histogram_noise_sd": 1.0},
    "mae": None, "rmse": None, "r2": None, "largest_error": None,
    "warnings": ["rows were trained on"],
}  # fmt: skip
LISTED_MODEL = MODEL | {
    "price": PRICE,
    "n_leaves": 2048,
    "purpose": "audit",
    "submitted_by": "key_1",
    "submitted_by_name": "ada",
    "error": None,
    "accuracy": EVALUATION["accuracy"]
    | {"evaluation": "ev_1", "dataset": "ds_1", "dataset_name": "census"},
}
IMPORTANCES = {
    "model": "md_1",
    "features": [
        {"name": "hours", "n_splits": 0, "importance": 0.0},
        {"name": "sex", "n_splits": 1, "importance": 0.25},
        {"name": "age", "n_splits": 3, "importance": 0.75},
    ],
    "leaves": [{"label": "low", "share": 0.625}, {"label": "high", "share": 0.375}],
}
_NODE = dict.fromkeys(("test", "yes", "no", "label", "share", "number", "n_leaves"))
TREE = {
    "model": "md_1",
    "tree": 0,
    "n_trees": 8,
    "nodes": [
        {**_NODE, "test": "age ≤ 40", "yes": 1, "no": 2},
        {**_NODE, "label": "low", "share": 0.75, "n_leaves": 1},
        {**_NODE, "label": "high", "share": 0.5, "n_leaves": 4},
    ],
}
COMPARED = [
    LISTED_MODEL | {"parameters": {"max_depth": 4}, "features": IMPORTANCES["features"]},
    LISTED_MODEL | {
        "id": "md_2", "name": None, "aliases": [], "accuracy": None, "receipt": "2 trees",
        "parameters": {"splits": "random"},
        "features": [{"name": "age", "n_splits": 7, "importance": None}],
    },
]  # fmt: skip
_ACCEPTED = {
    "job_id": "jb_1",
    "state": "waiting",
    "reservation_id": "rs_1",
    "price": PRICE,
    "unlabelled": None,
}
_RULES = {
    "largest_job": "0.5", "approval_above": None, "quotas": [{"keys": ["key_a", "key_b"], "cap": "2"}], "frozen": True,
    "erase_rows_at": "2030-01-01T00:00:00.000000Z",
}  # fmt: skip
RULES = {
    **_RULES, "dataset": "ds_1", "dataset_name": "census", "unit": "epsilon", "etag": '"rules-1"',
    "quotas": [{"keys": ["key_a", "key_b"], "cap": "2", "spent": "1.5"}],
    "changed_by": "key_a", "changed_at": "2026-11-20T09:00:00.000000Z",
    "proposal": {"rules": {**_RULES, "largest_job": None}, "by": "key_b", "at": "2026-11-20T09:00:00.000000Z"},
}  # fmt: skip
APPROVAL = {
    "job": "jb_1", "kind": "train", "algorithm": "mrf", "what": "mrf", "state": "waiting", "submitted_by": "key_b",
    "submitted_by_name": "ben", "name": None,
    "submitted_at": "2026-11-20T09:00:00.000000Z", "expires_at": "2026-11-27T09:00:00.000000Z",
    "parts": [{"dataset": "ds_1", "dataset_name": "census", "scope": {}, "price": PRICE}],
}  # fmt: skip
ATTENTION = {
    "at": "2026-11-20T10:00:00.000000Z", "approvals": [APPROVAL],
    "proposals": [{
        "dataset": "ds_1", "dataset_name": "census", "by": "key_c", "by_name": None,
        "at": "2026-11-19T09:00:00.000000Z",
    }],
    "held": [JOB | {"state": "queued", "held_by": "no-room", "submitted_by_name": None}],
    "failed": [JOB | {"state": "failed", "submitted_by_name": None}],
    "keys": [{"id": "key_d", "name": "etl", "expires_at": "2026-12-01T00:00:00.000000Z"}],
    "jobs": {"waiting": 1, "queued": 0, "running": 0}, "recent": [],
    "budgets": [{
        "dataset": "ds_1", "dataset_name": "census", "account": ACCOUNT, "population": None, "protects": "row",
        "role": "owner", "may_submit": True, "largest_that_fits": "1.25", "limited_by": "quota", "has_rows": True,
        "state": "active",
    }],
}  # fmt: skip
PROBLEM = {"Content-Type": "application/problem+json", "X-Request-Id": "rq_1"}
ANSWERS: dict[tuple[str, str], tuple[int, Any]] = {
    ("POST", "/datasets"): (201, DATASET | {"warnings": ["ε is above 10"]}),
    ("GET", "/datasets"): (200, {"datasets": [DATASET], "next": None}),
    ("GET", "/datasets/census"): (200, DATASET),
    ("GET", "/datasets/ds_1"): (200, DATASET),
    ("PATCH", "/datasets/census"): (200, {**DATASET, "schema": {}}),
    ("DELETE", "/datasets/census"): (204, None),
    ("POST", "/datasets/census/rows/check"): (204, None),
    ("POST", "/datasets/census/rows"): (
        201, {"epoch": "ep_1", "rows": 40, "warnings": ["This body equals"],
              "columns": [{"name": "age", "clamped": 2, "missing": 0, "unknown": 0}],
              "dropped": {"without_unit": 4, "over_bound": 7}},
    ),
    ("GET", "/datasets/census/uploads"): (200, {
        "dataset": "ds_1", "dataset_name": "census", "next": None,
        "uploads": [{
            "epoch": "ep_1", "uploaded_at": "2026-11-20T09:00:00.000000Z", "erased_at": None, "rows": 40,
        }],
    }),
    ("DELETE", "/datasets/census/uploads/ep_1"): (200, {
        "dataset": "ds_1", "dataset_name": "census", "epoch": "ep_1", "erased_at": "2026-11-20T09:00:00.000000Z",
        "places": "free", "stays": "What was spent stays.",
    }),
    ("GET", "/datasets/census/grants"): (200, {
        "dataset": "ds_1", "dataset_name": "census", "next": None,
        "grants": [GRANT | {"key_id": key_id, "key_name": name} for key_id, name in (
            ("key_1", "ada"), ("key_2", "ann"), ("key_3", "eva"), ("key_a", "amy"),
        )],
    }),
    ("PUT", "/datasets/census/grants/key_2"): (
        200, {"dataset": "ds_1", "dataset_name": "census", "key_id": "key_2", "role": "analyst"},
    ),
    ("DELETE", "/datasets/census/grants/key_2"): (204, None),
    ("POST", "/datasets/census/erasures"): (
        200,
        {
            "dataset": "ds_1", "dataset_name": "census", "act": 131, "at": "2026-11-28T14:29:00Z",
            "erased": 3, "similar_units": 2,
        },
    ),
    ("POST", "/populations/patients/erasures"): (
        200,
        {
            "population": "pp_1", "population_name": "patients", "reference": "request 118",
            "members": [
                {
                    "dataset": "ds_1", "dataset_name": "census", "act": 131, "at": "2026-11-28T14:29:00Z",
                    "erased": 3, "similar_units": 2,
                },
                {
                    "dataset": "ds_2", "dataset_name": "survey", "act": 132, "at": "2026-11-28T14:29:01Z",
                    "erased": None, "similar_units": None,
                },
            ],
        },
    ),
    ("GET", "/datasets/census/overlaps"): (200, OVERLAPS),
    ("PUT", "/datasets/census/population"): (200, {**DATASET, "population": "patients"}),
    ("POST", "/populations"): (201, POPULATION),
    ("GET", "/populations"): (200, {"populations": [POPULATION], "next": None}),
    ("GET", "/populations/patients"): (200, POPULATION),
    ("GET", "/algorithms"): (200, {"algorithms": [ALGORITHM]}),
    ("POST", "/plans"): (200, PLAN),
    ("POST", "/datasets/census/profiles/quote"): (
        200, {**_QUOTED, "parameters": {"bins": "16"}, "private_features": ["age"], "tables": [], "warnings": []},
    ),
    ("POST", "/datasets/census/profiles"): (202, _ACCEPTED),
    ("GET", "/datasets/census/profiles"): (200, {"profiles": [PROFILE], "next": None}),
    ("GET", "/profiles/pf_1"): (200, PROFILE),
    ("POST", "/models/md_1/evaluations/quote"): (
        200,
        {
            **_QUOTED, "models": ["md_1"], "releases": ["accuracy"], "mae_half_width": None,
            "warnings": ["rows were trained on"],
        },
    ),
    ("POST", "/models/md_1/evaluations"): (202, _ACCEPTED),
    ("GET", "/models/md_1/evaluations"): (200, {"evaluations": [EVALUATION], "next": None}),
    ("POST", "/evaluations/quote"): (
        200, {**_QUOTED, "models": ["md_1", "md_2"], "releases": ["best"], "mae_half_width": None, "warnings": []},
    ),
    ("POST", "/evaluations"): (202, _ACCEPTED),
    ("GET", "/evaluations/ev_1"): (200, EVALUATION),
    ("POST", "/train"): (
        202, {"job_id": "jb_1", "state": "queued", "reservation_id": "rs_1", "price": PRICE, "unlabelled": None},
    ),
    ("GET", "/datasets/census/rules"): (200, RULES),
    ("PUT", "/datasets/census/rules"): (200, RULES),
    ("GET", "/attention"): (200, ATTENTION),
    ("GET", "/approvals"): (200, {"approvals": [APPROVAL], "next": None}),
    ("POST", "/approvals/jb_1"): (200, {**APPROVAL, "state": "queued"}),
    ("GET", "/jobs"): (200, {"jobs": [JOB | {"submitted_by_name": None}], "next": None}),
    ("GET", "/jobs/jb_1"): (200, JOB),
    ("DELETE", "/jobs/jb_1"): (200, {**JOB, "state": "cancelled", "reason": "cancelled"}),
    ("GET", "/models"): (200, {"models": [LISTED_MODEL], "next": None}),
    ("GET", "/models/md_1"): (200, MODEL),
    ("GET", "/datasets/census/aliases"): (200, {"aliases": [ALIAS], "next": None}),
    ("GET", "/datasets/census/aliases/production"): (
        200, {"moves": [{"model_id": None, "moved_by": "key_1", "moved_at": ALIAS["moved_at"]}], "next": None},
    ),
    ("PUT", "/datasets/census/aliases/production"): (200, {**ALIAS, "dataset": "ds_1", "dataset_name": "census"}),
    ("DELETE", "/datasets/census/aliases/production"): (204, None),
    ("GET", "/models/md_1/importances"): (200, IMPORTANCES),
    ("GET", "/models/md_1/trees/0"): (200, TREE),
    ("GET", "/models/md_1/comparison"): (200, {"models": COMPARED}),
    ("DELETE", "/models/md_1"): (204, None),
    ("GET", "/models/md_1/artifact"): (200, ARTIFACT),
    ("POST", "/models/md_1/predict"): (
        200,
        {
            "model": "md_1",
            "classes": ["low", "high"],
            "labels": ["high"],
            "probabilities": [[0.25, 0.75]],
            "counts": {"clamped": {}, "unseen": {}},
        },
    ),
    ("GET", "/ledger"): (200, {"datasets": [BALANCE], "next": None}),
    ("GET", "/ledger/census"): (
        200,
        {
            **BALANCE, "scope": {}, "tightest_cell": {"shard": 3}, "exact": True, "largest_that_fits": "0.5",
            "partitions": [], "guarantee": MODEL["guarantee"],
        },
    ),
    ("POST", "/ledger/census/quotes"): (
        200,
        EXTERNAL
        | {"fits": False, "limited_by": "largest_job", "remaining": "0.1"}
        | {"odds": {"add_remove": "0.6225"}, "warnings": ["ε is above 10"]},
    ),
    ("POST", "/ledger/census/reservations"): (201, EXTERNAL),
    ("GET", "/ledger/census/reservations"): (200, {"reservations": [EXTERNAL], "next": None}),
    ("POST", "/ledger/census/cap"): (
        200,
        {**BALANCE, "cap": "2", "remaining": "0.5", "warnings": ["ε is above 10: little is promised."]},
    ),
    ("GET", "/ledger/census/entries"): (
        200,
        {"actors": {"key_1": "ada"}, "jobs": {}, "entries": [ENTRY], "next": None},
    ),
    ("GET", "/ledger/census/spent"): (
        200,
        {
            "account": "ds_1", "account_name": "census", "kind": "dataset", "unit": "epsilon", "by": "key",
            "charged": "2.5", "carried": "0.25", "spent": "1.5", "n_groups": 2,
            "groups": [
                {"group": "key_1", "name": "ada", "purpose": None, "charges": 3, "charged": "2", "share": 0.8},
                {"group": None, "name": None, "purpose": None, "charges": 1, "charged": "0.5", "share": 0.2},
            ],
        },
    ),
    ("GET", "/ledger/census/export"): (200, b"{}\n"),
    ("GET", "/ledger/census/checkpoint"): (200, NOTE.encode()),
    ("GET", "/ledger/census/proofs"): (200, PROOF),
    ("GET", "/ledger/pop_1"): (
        200,
        {
            **OF_POPULATION, "scope": {}, "tightest_cell": {}, "exact": True, "largest_that_fits": "1.5",
            "partitions": [], "guarantee": {"epsilon": "3", "delta": "1e-6", "text": "For any two worlds"},
            "delta_set_aside": None,
        },
    ),
    ("POST", "/ledger/pop_1/cap"): (200, {**OF_POPULATION, "cap": "2", "remaining": "0.5", "warnings": []}),
    ("GET", "/ledger/pop_1/entries"): (200, {"actors": {}, "jobs": {}, "entries": [ENTRY, LOAD], "next": None}),
    ("GET", "/signer"): (200, SIGNER),
    ("GET", "/audit"): (200, {"acts": [ACT], "next": None}),
    ("GET", "/audit/export"): (200, b"{}\n"),
    ("GET", "/audit/checkpoint"): (200, NOTE.encode()),
    ("POST", "/keys"): (201, CREATED_KEY),
    ("GET", "/keys"): (200, {"keys": [LISTED_KEY], "next": None}),
    ("POST", "/keys/key_2/secret"): (201, CREATED_KEY),
    ("DELETE", "/keys/key_2"): (204, None),
    ("POST", "/datasets/census/webhooks/wh_1/secret"): (201, ROTATED_WEBHOOK),
    ("POST", "/datasets/census/webhooks/wh_1/test"): (202, {**ROTATED_WEBHOOK, "waiting": 1}),
    ("GET", "/datasets/census/webhooks"): (200, {"webhooks": [ROTATED_WEBHOOK]}),
}  # fmt: skip


class FakeService:
    """Answers from :data:`ANSWERS` or with a test's answers, and records the requests."""

    def __init__(self) -> None:
        self.answers = dict(ANSWERS)
        self.requests: list[httpx.Request] = []
        self.is_down = False

    def __call__(self, request: httpx.Request) -> httpx.Response:
        self.requests.append(request)
        if self.is_down:
            raise httpx.ConnectError("x")
        if request.url.path.endswith("/events"):
            _, job = self.answers[
                request.method, request.url.path.removesuffix("/events")
            ]
            return httpx.Response(
                200, content=f"event: job\ndata: {json.dumps(job)}\n\n"
            )
        status, body, *fields = self.answers[request.method, request.url.path]
        if isinstance(body, bytes):
            return httpx.Response(status, content=body)
        if status >= 400:
            content = json.dumps(
                {"title": "t", "status": status, "detail": "a sentence", **body}
            )
            return httpx.Response(status, content=content, headers=PROBLEM)
        return (
            httpx.Response(status)
            if body is None
            else httpx.Response(status, json=body, headers=dict(*fields))
        )

    def body(self) -> Any:
        """The JSON of the last request that had a body."""
        return json.loads(
            [request.content for request in self.requests if request.content][-1]
        )


@pytest.fixture
def service(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> FakeService:
    """The service that every command of the test calls; the working directory is
    ``tmp_path``.
    """
    fake = FakeService()
    client = partial(
        grovekeeper_client.client.Client,
        transport=httpx.MockTransport(fake),
        sleep=lambda _seconds: None,
    )
    monkeypatch.setattr(grovekeeper_client.client, "Client", client)
    for name in (
        "GROVEKEEPER_URL",
        "GROVEKEEPER_API_KEY_FILE",
        "GROVEKEEPER_ADMIN_KEY",
    ):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("GROVEKEEPER_HOME", str(tmp_path / "home"))
    monkeypatch.setenv("GROVEKEEPER_API_KEY", KEY)
    monkeypatch.setenv("COLUMNS", "240")
    monkeypatch.chdir(tmp_path)
    return fake


@pytest.fixture
def run(service: FakeService) -> Callable[..., Result]:
    """Runs one command as typed: ``run("datasets", "list")``."""
    return lambda *arguments, **options: CliRunner().invoke(
        grovekeeper, list(arguments), **options
    )


@pytest.fixture
def files(service: FakeService, tmp_path: Path) -> None:
    """Writes a declaration, file.json, and rows, rows.csv, to the working directory."""
    (tmp_path / "file.json").write_text('{"name": "census"}')
    (tmp_path / "rows.csv").write_text("age,sex,income\n39,Male,low\n")
