"""States who may call what: one rule for each operation, from which every cell of the
table of roles follows.

A cell is a caller (a global role and a grant on the dataset), an operation, and the
state of what the request names.
"""

import re
from dataclasses import dataclass
from enum import StrEnum
from itertools import product
from typing import NamedTuple

from tests.support.openapi import DOCUMENT


class Caller(NamedTuple):
    """A kind of caller: one global role and one grant on the dataset, each of which may
    be missing.
    """

    role: str | None
    grant: str | None


ROLES = (None, "owner", "auditor", "admin")
GRANTS = (None, "predictor", "analyst", "attester", "auditor", "owner")
CALLERS = [Caller(role, grant) for role, grant in product(ROLES, GRANTS)]
ALONE = [caller for caller in CALLERS if None in caller]
"""The callers with a role or a grant, and the caller with neither."""
ONE = [Caller(None, "analyst")]
"""A caller who is authorized for some operations, is refused others, and sees one of
two datasets.
"""

INCLUDED = {
    None: set(),
    "predictor": {"predictor"},
    "analyst": {"analyst", "predictor"},
    "attester": {"attester", "analyst", "predictor"},
    "auditor": {"auditor"},
    "owner": {"owner", "attester", "analyst", "predictor"},
    "admin": {"owner", "attester", "analyst", "predictor", "auditor", "admin"},
}


class Place(StrEnum):
    """What a request names."""

    NOTHING = "names no dataset"
    LIVING = "a living dataset, on which the caller has its grant"
    DELETED = "a deleted dataset, on which the caller has its grant"
    FOREIGN = "a living dataset, on which the caller has no grant"
    MISSING = "an id that does not exist"
    POPULATION = "a population that somebody else opened"


@dataclass(frozen=True)
class Rule:
    """Who may call an operation.

    Attributes:
        on: roles on the dataset that the request names, any of which suffices.
            ``admin`` has all of them everywhere, and the global ``auditor`` is auditor
            everywhere.
        role: global roles, any of which suffices; ``admin`` always does.
        anywhere: whether a role on any dataset suffices.
        by_grant: whether the role has to be granted, because the answer is about the
            caller's own datasets.
        deleted: the status for an authorized caller if the dataset is deleted, unless
            it is that of success.
        key: whether a key is needed.
    """

    on: frozenset[str] = frozenset()
    role: frozenset[str] = frozenset()
    anywhere: bool = False
    by_grant: bool = False
    deleted: int | None = None
    key: bool = True


def _on(*roles: str, deleted: int | None = None) -> Rule:
    return Rule(on=frozenset(roles), deleted=deleted)


def _role(*roles: str) -> Rule:
    return Rule(role=frozenset((*roles, "admin")))


PUBLIC, ANY_KEY = Rule(key=False), Rule()
_MAY_SEE = ("predictor", "auditor")
_READS_LEDGER = ("auditor", "owner")
RULES: dict[str, Rule] = {
    "check_health": PUBLIC,
    "check_readiness": PUBLIC,
    **dict.fromkeys(("check_live", "check_ready", "show_server"), PUBLIC),
    **dict.fromkeys(
        ("list_datasets", "list_algorithms", "list_jobs", "list_models", "list_approvals", "show_attention",
         "show_signer"),
        ANY_KEY,
    ),
    **dict.fromkeys(("create_key", "list_keys", "rotate_key", "revoke_key"), _role()),
    **dict.fromkeys(("declare_dataset", "check_declaration", "create_population"), _role("owner")),
    **dict.fromkeys(("list_acts", "export_acts", "show_head", "show_metrics"), _role("auditor")),
    "list_populations": _role("owner", "auditor"),
    "list_balances": Rule(on=frozenset(_READS_LEDGER), role=frozenset({"owner", "auditor", "admin"}), anywhere=True),
    "show_population": _on("auditor"),
    "show_dataset": _on(*_MAY_SEE),
    "list_grants": _on("auditor", "owner"),
    **dict.fromkeys(("put_grant", "delete_grant", "delete_dataset", "show_rules", "list_uploads"), _on("owner")),
    **dict.fromkeys(("list_webhooks", "delete_webhook"), _on("owner")),
    "show_overlaps": Rule(on=frozenset({"owner"}), by_grant=True),
    **dict.fromkeys(
        ("change_dataset", "change_rules", "decide_job", "change_cap", "upload_rows", "check_rows", "erase_unit",
         "erase_person", "erase_upload", "join_population", "cancel_job", "create_webhook", "rotate_webhook",
         "test_webhook"),
        _on("owner", deleted=409),
    ),
    **dict.fromkeys(
        ("create_plan", "train_model", "quote_profile", "release_profile", "quote_evaluation", "evaluate_model",
         "quote_statistics", "release_statistics",
         "quote_selection", "select_model"),
        _on("analyst", deleted=409),
    ),
    **dict.fromkeys(
        ("list_profiles", "show_profile", "list_statistics", "show_statistics", "show_evaluation", "delete_model",
         "download_artifact"),
        _on("analyst"),
    ),
    **dict.fromkeys(("show_model", "show_importances", "show_tree", "show_comparison", "list_evaluations", "predict",
         "show_metadata", "show_version",
         "check_model", "check_version", "infer_model", "infer_version"),
        _on("predictor"),
    ),
    **dict.fromkeys(("show_job", "watch_job"), _on("analyst", "auditor")),
    "list_aliases": _on(*_MAY_SEE),
    **dict.fromkeys(("put_alias", "delete_alias"), _on("analyst")),
    **dict.fromkeys(("show_balance", "list_entries", "show_spent", "show_alias"), _on("analyst", *_READS_LEDGER)),
    **dict.fromkeys(("export_ledger", "show_checkpoint", "show_proof"), _on(*_READS_LEDGER)),
    "show_deployment": _on(*_READS_LEDGER),
    "put_verification": _on("auditor"),
    **dict.fromkeys(("create_quote", "create_reservation"), _on("attester", deleted=409)),
    **dict.fromkeys(("list_reservations", "show_reservation"), _on("attester", *_READS_LEDGER)),
}  # fmt: skip
"""The table of roles of docs/api.md and docs/glossary.md, by operation."""

OPERATIONS: dict[str, tuple[str, str, int]] = {
    it["operationId"]: (
        method.upper(),
        path,
        next(int(status) for status in it["responses"] if status < "300"),
    )
    for path, methods in DOCUMENT["paths"].items()
    for method, it in methods.items()
}
"""Method, path and status of success of every operation."""

IN_THE_BODY = {"create_plan", "train_model", "quote_selection", "select_model"}
"""Operations whose body names a dataset or its models."""
_NOT_OF_A_DATASET = {"key_id", "population"}


def names_a_dataset(operation: str) -> bool:
    """Whether a request names a dataset, or a part of it."""
    parameters = set(re.findall(r"\{(\w+)\}", OPERATIONS[operation][1]))
    return operation in IN_THE_BODY or not parameters <= _NOT_OF_A_DATASET


def places(operation: str) -> list[Place]:
    """Every state of what a request may name."""
    path = OPERATIONS[operation][1]
    if "{population}" in path:
        return [Place.POPULATION, Place.MISSING]
    if not names_a_dataset(operation):
        return [Place.NOTHING]
    of_accounts = [Place.POPULATION] if "{account}" in path else []
    return [Place.LIVING, Place.DELETED, Place.FOREIGN, Place.MISSING, *of_accounts]


def expected(operation: str, caller: Caller, place: Place) -> int:
    """The status of a cell."""
    rule, success = RULES[operation], OPERATIONS[operation][2]
    if place is Place.NOTHING:
        may = (
            not rule.role
            or caller.role in rule.role
            or (rule.anywhere and caller.grant in rule.on)
        )
        return success if may else 403
    granted = (
        INCLUDED[caller.grant] if place in (Place.LIVING, Place.DELETED) else set()
    )
    roles = granted | (
        INCLUDED[caller.role] if caller.role in ("admin", "auditor") else set()
    )
    if place is Place.MISSING or not roles:
        return 404
    if not rule.on & (granted if rule.by_grant else roles):
        return 403
    return rule.deleted or success if place is Place.DELETED else success
