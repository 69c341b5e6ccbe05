"""Every answer that says how much one job may reserve names the limit that decides, and
all of them say the same.
"""

from typing import Any

import pytest

from app.core import limits
from app.db.database import transaction_time
from app.ledger.tables import RulesRow
from app.services.attention import budgets
from app.services.datasets.erase import delete_dataset
from app.services.datasets.show import list_datasets, show_dataset
from app.services.ledger.balances import list_balances, show_balance
from app.services.ledger.external import quote_external
from app.services.pagination import PageRequest
from app.wire.reservations import ExternalIn
from app.wire.training import PlanIn
from tests.support import people
from tests.support.asking import show_plan
from tests.support.crash_scene import ADMIN, OWNER, Scene
from tests.support.ruled import SECOND, grant, set_rules

pytestmark = pytest.mark.contract

PAGE = PageRequest()
OF_OWNER = [OWNER.key_id]
RULES: list[tuple[dict[str, Any], str, str]] = [
    ({}, "cap", "3"),
    ({"largest_job": "0.5"}, "largest_job", "0.5"),
    ({"quotas": [{"keys": OF_OWNER, "cap": "0.4"}]}, "quota", "0.4"),
    (
        {"largest_job": "0.5", "quotas": [{"keys": OF_OWNER, "cap": "0.4"}]},
        "quota",
        "0.4",
    ),
    (
        {"largest_job": "0.4", "quotas": [{"keys": OF_OWNER, "cap": "0.5"}]},
        "largest_job",
        "0.4",
    ),
    ({"quotas": [{"keys": [SECOND.key_id], "cap": "0.4"}]}, "cap", "3"),
    ({"largest_job": "3"}, "cap", "3"),
    ({"largest_job": "5"}, "cap", "3"),
    ({"approval_above": "0.1"}, "cap", "3"),
    ({"frozen": True, "largest_job": "0.5"}, "frozen", "0"),
]


def _external(scene: Scene, epsilon: str) -> str:
    declared = {"adjacency": "add_remove", "epsilon": epsilon}
    body = ExternalIn.model_validate(
        {"description": "a mean", "per": "row", "declared": declared}
    )
    return quote_external(scene.installation, OWNER, scene.dataset_id, body).limited_by


@pytest.mark.parametrize(("rules", "limited_by", "available"), RULES)
def test_every_answer_names_the_limit_that_leaves_least(
    scene: Scene, rules: dict[str, Any], limited_by: str, available: str
) -> None:
    caller = scene.installation, OWNER
    grant(scene, "analyst")
    set_rules(scene, **rules)
    (listed,) = list_datasets(*caller, PAGE).datasets
    (balance,) = list_balances(*caller, PAGE).datasets
    accounts = [show_dataset(*caller, "census").account, listed.account, balance]
    accounts.append(show_balance(*caller, scene.dataset_id, scope={}))
    assert {
        (account.limited_by, account.available, account.remaining)
        for account in accounts
    } == {(limited_by, available, "3")}
    assert (listed.role, listed.largest_that_fits) == ("owner", available)
    plan = show_plan(
        *caller,
        PlanIn.model_validate(
            {"dataset": scene.dataset_id, "algorithm": "rdt-ta", "epsilon": "0.1"}
        ),
    )
    assert (plan.limited_by, plan.largest_that_fits) == (limited_by, available)
    assert _external(scene, "0.1") == (
        "approval_above" if "approval_above" in rules else limited_by
    )


def test_what_a_key_spent_leaves_less_of_its_quota_and_the_cap_decides_again_when_it_leaves_less(
    scene: Scene,
) -> None:
    set_rules(scene, quotas=[{"keys": OF_OWNER, "cap": "1"}])
    scene.submit(key="a", epsilon="1")
    (account,) = list_balances(scene.installation, OWNER, PAGE).datasets
    assert (account.remaining, account.available, account.limited_by) == (
        "2",
        "0",
        "quota",
    )
    scene.lower_cap("1", key="b")
    (account,) = list_balances(scene.installation, OWNER, PAGE).datasets
    assert (account.remaining, account.available, account.limited_by) == (
        "0",
        "0",
        "cap",
    )


def test_what_a_key_spent_on_one_dataset_counts_in_no_quota_of_another(
    scene: Scene,
) -> None:
    """One query reads what was spent on all of them, also where it cannot name every
    key of every quota.
    """
    other = Scene(scene.installation, people.declared(scene.installation)["id"])
    set_rules(scene, quotas=[{"keys": OF_OWNER, "cap": "1"}])
    set_rules(other, quotas=[{"keys": OF_OWNER, "cap": "0.7"}])
    scene.submit(key="a", epsilon="0.25")

    def left() -> dict[str, str]:
        return {
            it.account: it.available
            for it in list_balances(scene.installation, OWNER, PAGE).datasets
        }

    assert left() == {scene.dataset_id: "0.75", other.dataset_id: "0.7"}
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(limits, "MAX_QUOTA_KEYS", 0)
        assert left() == {scene.dataset_id: "0.75", other.dataset_id: "0.7"}


def test_a_dataset_whose_date_of_erasure_has_come_admits_nothing(scene: Scene) -> None:
    database = scene.installation.database
    set_rules(scene, frozen=True)
    with database.write() as session:
        session.get_one(RulesRow, scene.dataset_id).erase_rows_at = transaction_time(
            session
        )
    (account,) = list_balances(scene.installation, OWNER, PAGE).datasets
    assert (account.available, account.limited_by) == ("0", "erasure_due")


@pytest.mark.parametrize(
    ("role", "may_submit"),
    [("predictor", False), ("auditor", False), ("analyst", True)],
)
def test_a_key_whose_role_admits_no_job_is_told_so_whatever_fits(
    scene: Scene, role: str, *, may_submit: bool
) -> None:
    grant(scene, role)
    shown = show_dataset(scene.installation, SECOND, scene.dataset_id)
    (standing,) = budgets(SECOND, [shown])
    assert (shown.role, standing.may_submit, shown.largest_that_fits) == (
        role,
        may_submit,
        "3",
    )
    of_admin = show_dataset(scene.installation, ADMIN, scene.dataset_id)
    assert of_admin.role is None
    assert budgets(ADMIN, [of_admin])[0].may_submit


def test_a_dataset_states_what_a_key_has_to_know_first(scene: Scene) -> None:
    def states() -> set[str]:
        by = scene.installation, OWNER
        shown = show_dataset(*by, scene.dataset_id)
        (listed,) = list_datasets(*by, PAGE).datasets
        return {shown.state, listed.state, shown.account.limited_by}

    assert states() == {"active", "cap"}
    scene.charge_external(key="all", epsilon="3")
    assert states() == {"nothing-fits", "cap"}
    delete_dataset(scene.installation, OWNER, scene.dataset_id)
    # the cap leaves no less than the erasure
    assert states() == {"erased", "cap"}


def test_a_frozen_dataset_says_so_and_a_new_one_that_it_has_no_rows(
    scene: Scene,
) -> None:
    people.declared(scene.installation)
    set_rules(scene, frozen=True)
    listed = list_datasets(scene.installation, OWNER, PAGE).datasets
    assert {item.state for item in listed} == {"frozen", "no-rows"}
