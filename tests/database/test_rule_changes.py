"""Changes of rules on both databases: one owner tightens, a second owner or an admin
loosens, and all is recorded.
"""

from datetime import timedelta
from typing import Any
from unittest.mock import patch

import pytest

from app.access.grants import Principal
from app.core import limits, stamps
from app.core.errors import DatasetDeleted, Frozen, NotFound, QuotaExceeded, RoleMissing
from app.datasets import catalog
from app.services.dataset_rules import show_rules
from app.services.datasets.erase import delete_dataset
from app.services.keys import remove_grant, revoke_key
from app.services.ledger import audit
from app.services.pagination import PageRequest
from app.wire.acts import ActOut
from app.wire.rules import RulesOut
from grovekeeper_verifier import control_export
from tests.support.clocks import database_tells
from tests.support.crash_scene import ADMIN, OWNER, Scene
from tests.support.ruled import SECOND, grant, set_rules

pytestmark = [pytest.mark.contract, pytest.mark.in_turn("database_url")]


def _acts(scene: Scene) -> list[ActOut]:
    acts = audit.list_acts(scene.installation, ADMIN, PageRequest(limit=500)).acts
    return [act for act in acts if act.kind.startswith("rules")]


def _shown(scene: Scene) -> RulesOut:
    return show_rules(scene.installation, OWNER, scene.dataset_id)


def test_one_owner_tightens_and_a_second_owner_loosens(scene: Scene) -> None:
    grant(scene, "owner")
    assert set_rules(scene, largest_job="0.5").largest_job == "0.5"
    proposed = set_rules(scene, largest_job="0.7")
    assert proposed.largest_job == "0.5", "one owner alone loosens nothing"
    assert proposed.proposal is not None
    assert (proposed.proposal.by, proposed.proposal.rules.largest_job) == (
        OWNER.key_id,
        "0.7",
    )
    assert set_rules(scene, largest_job="0.7") == proposed, "not even by asking again"
    with pytest.raises(QuotaExceeded):
        scene.submit(key="k", epsilon="0.6")
    loosened = set_rules(scene, by=SECOND, largest_job="0.7")
    assert (loosened.largest_job, loosened.changed_by, loosened.proposal) == (
        "0.7",
        SECOND.key_id,
        None,
    )
    scene.submit(key="k", epsilon="0.6")
    assert [
        (act.kind, act.actor, act.details["rules"]["largest_job"])
        for act in _acts(scene)
    ] == [
        ("rules-changed", OWNER.key_id, "0.5"),
        ("rules-proposed", OWNER.key_id, "0.7"),
        ("rules-changed", SECOND.key_id, "0.7"),
    ]
    assert _acts(scene)[-1].details["proposed_by"] == OWNER.key_id
    lines = list(audit.export_acts(scene.installation, ADMIN))
    assert control_export.verify(lines).kinds["rules-changed"] == 2


def test_an_admin_loosens_alone(scene: Scene) -> None:
    set_rules(scene, frozen=True)
    assert set_rules(scene, by=ADMIN).frozen is False


def test_a_second_owner_confirms_exactly_what_was_proposed(scene: Scene) -> None:
    grant(scene, "owner")
    set_rules(scene, largest_job="0.5", frozen=True)
    set_rules(scene, largest_job="0.5")
    for rules in (
        {"largest_job": "0.6"},
        {},
        {"largest_job": "0.5", "approval_above": "1"},
    ):
        other = set_rules(scene, by=SECOND, **rules)
        assert (other.frozen, other.largest_job) == (True, "0.5")
        assert other.proposal is not None
        assert other.proposal.by == SECOND.key_id
        set_rules(scene, largest_job="0.5")
    assert set_rules(scene, by=SECOND, largest_job="0.5").frozen is False


def test_a_tightening_or_the_present_rules_drop_a_proposal(scene: Scene) -> None:
    grant(scene, "owner")
    for rules in ({"largest_job": "0.5"}, {"largest_job": "0.4"}):
        set_rules(scene, largest_job="0.5")
        set_rules(scene, largest_job="0.9")
        assert set_rules(scene, **rules).proposal is None
        assert (
            set_rules(scene, by=SECOND, largest_job="0.9").largest_job
            == rules["largest_job"]
        )
        set_rules(scene, by=ADMIN, largest_job="0.5")


def test_a_change_is_compared_with_the_rules_that_are_in_force_under_its_lock(
    postgresql_scene: Scene,
) -> None:
    set_rules(postgresql_scene, largest_job="0.5")
    locked, meanwhile = catalog.locked, list[str]()

    def behind_another(*arguments: Any) -> Any:
        if not meanwhile:
            meanwhile.append("0.2")
            set_rules(postgresql_scene, largest_job="0.2")
        return locked(*arguments)

    with patch.object(catalog, "locked", behind_another):
        shown = set_rules(postgresql_scene, largest_job="0.4")
    assert shown.largest_job == "0.2"
    assert shown.proposal is not None, "more than the rules in force admit"


@pytest.mark.parametrize("by", ["grant", "role", "key"])
def test_a_proposal_of_a_former_owner_is_confirmed_by_nobody(
    scene: Scene, by: str
) -> None:
    grant(scene, "owner")
    set_rules(scene, largest_job="0.5")
    set_rules(scene, by=SECOND, largest_job="0.9")
    if by == "grant":
        remove_grant(scene.installation, OWNER, scene.dataset_id, SECOND.key_id)
    elif by == "role":
        grant(scene, "analyst")
    else:
        revoke_key(scene.installation, ADMIN, SECOND.key_id)
    answer = set_rules(scene, largest_job="0.9")
    assert answer.largest_job == "0.5"
    assert answer.proposal is not None
    assert answer.proposal.by == OWNER.key_id


def test_a_proposal_expires(scene: Scene) -> None:
    grant(scene, "owner")
    set_rules(scene, largest_job="0.5")
    proposal = set_rules(scene, largest_job="0.9").proposal
    assert proposal is not None
    late = stamps.from_text(proposal.at) + timedelta(seconds=limits.MAX_PROPOSAL_S)
    with database_tells(late + timedelta(microseconds=1)):
        assert _shown(scene).proposal is None
        answer = set_rules(scene, by=SECOND, largest_job="0.9")
        assert answer.proposal is not None
        assert (answer.largest_job, answer.proposal.by) == ("0.5", SECOND.key_id)


def test_tightening_in_steps_under_a_freeze_loosens_nothing(scene: Scene) -> None:
    """While the dataset is frozen, no rule decides, but each still needs two owners to
    be loosened.
    """
    quota = {"keys": [OWNER.key_id], "cap": "0.5"}
    set_rules(scene, quotas=[quota])
    set_rules(scene, quotas=[quota], frozen=True)
    assert set_rules(scene, frozen=True).proposal is not None
    assert [shown.cap for shown in _shown(scene).quotas] == ["0.5"]
    with pytest.raises(Frozen):
        scene.submit(key="k")


def test_only_owners_of_a_living_dataset_change_rules(scene: Scene) -> None:
    with pytest.raises(NotFound):
        set_rules(scene, by=SECOND, largest_job="1")
    for role in ("attester", "analyst", "predictor", "auditor"):
        grant(scene, role)
        with pytest.raises(RoleMissing):
            set_rules(scene, by=SECOND, largest_job="1")
        with pytest.raises(RoleMissing):
            show_rules(scene.installation, Principal(SECOND.key_id), scene.dataset_id)
    delete_dataset(scene.installation, OWNER, scene.dataset_id)
    with pytest.raises(DatasetDeleted):
        set_rules(scene, largest_job="1")
    assert not _acts(scene)


def test_equal_rules_leave_no_act(scene: Scene) -> None:
    keys = [OWNER.key_id, SECOND.key_id]
    rules = {"largest_job": "0.50", "quotas": [{"keys": keys, "cap": "1"}]}
    same = {"largest_job": "0.5", "quotas": [{"keys": keys[::-1], "cap": "1"}]}
    assert set_rules(scene, **rules) == set_rules(scene, **same)
    assert len(_acts(scene)) == 1
