"""Sets rules of a scene's dataset, and decides about its waiting jobs."""

from typing import Any

from app.access.grants import Principal
from app.services.dataset_rules import change_rules, decide
from app.services.keys import put_grant
from app.wire.approvals import ApprovalOut, DecisionIn
from app.wire.rules import RulesIn, RulesOut
from tests.support.crash_scene import OWNER, STRANGER, Scene

SECOND = Principal(STRANGER.key_id)
"""A second key, without global roles, to which tests grant roles."""


def grant(scene: Scene, role: str, *, to: Principal = SECOND) -> None:
    """Grants a key a role on the scene's dataset."""
    put_grant(scene.installation, OWNER, scene.dataset_id, to.key_id, role=role)


def set_rules(scene: Scene, *, by: Principal = OWNER, **rules: Any) -> RulesOut:
    """Replaces the rules of the scene's dataset; rules that are not given have no
    limit.
    """
    unlimited: dict[str, Any] = {
        "largest_job": None,
        "approval_above": None,
        "quotas": [],
        "frozen": False,
        "erase_rows_at": None,
    }
    return change_rules(
        scene.installation,
        by,
        scene.dataset_id,
        RulesIn.model_validate(unlimited | rules),
    )


def decided(scene: Scene, job_id: str, decision: str, *, by: Principal) -> ApprovalOut:
    """Decides about a waiting job."""
    body = DecisionIn.model_validate({"decision": decision, "reason": "a test"})
    return decide(scene.installation, by, job_id, body)
