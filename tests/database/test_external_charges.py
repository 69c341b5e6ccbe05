"""Charges for external mechanisms through the services, on both databases."""

import json
from collections.abc import Callable
from datetime import timedelta
from fractions import Fraction
from typing import Any

import pytest

from app.access.grants import Principal
from app.access.idempotency import Answer, IdempotentRequest
from app.core import stamps
from app.core.errors import (
    BudgetExceeded,
    DatasetDeleted,
    IdempotencyKeyReused,
    NotFound,
    RoleMissing,
)
from app.datasets import catalog
from app.ledger import reservations, statements, tables
from app.services.datasets.erase import delete_dataset
from app.services.datasets.membership import join_population
from app.services.guarantees import of_account
from app.services.keys import create_key, put_grant
from app.services.ledger import external
from app.services.ledger.external import charge_external, quote_external
from app.services.models import show_model
from app.services.pagination import PageRequest
from app.wire.keys import KeyIn
from app.wire.reservations import ExternalIn
from tests.support import job_kinds
from tests.support.crash_scene import ADMIN, OWNER, Scene
from tests.support.databases import on_one_database
from tests.support.two_datasets import Pair

pytestmark = pytest.mark.contract

LAPLACE = {
    "type": "discrete-laplace/1", "adjacency": "add_remove", "l1_sensitivity": "120", "inverse_scale": "1/240",
    "coordinates": 1,
}  # fmt: skip
"""ε = ½."""


def _external_body(**changes: Any) -> ExternalIn:
    return ExternalIn.model_validate(
        {"description": "the mean age", "per": "row", "event": LAPLACE} | changes
    )


def _declared(epsilon: str, **changes: Any) -> ExternalIn:
    return _external_body(
        event=None, declared={"adjacency": "add_remove", "epsilon": epsilon}, **changes
    )


def _charge(
    scene: Scene,
    charge_body: ExternalIn,
    *,
    key: str = "k",
    by: Principal = OWNER,
    name: str = "",
) -> Answer:
    body = charge_body.model_dump_json().encode()[-32:].ljust(32, b".")
    request = IdempotentRequest(by.key_id, "POST", key, body)
    return charge_external(
        scene.installation, by, name or scene.dataset_id, charge_body, request=request
    )


def _granted(scene: Scene, role: str) -> Principal:
    key = create_key(scene.installation, ADMIN, KeyIn(name="somebody", roles=[]))
    put_grant(scene.installation, OWNER, scene.dataset_id, key.id, role=role)
    return Principal(key.id)


def test_it_is_charged_at_once_and_says_who_attests_it(scene: Scene) -> None:
    attester = _granted(scene, "attester")
    answer = _charge(scene, _external_body(scope={"shard": [1]}), by=attester)
    body = json.loads(answer.body)
    assert (answer.status, answer.location) == (
        201,
        f"/ledger/{scene.dataset_id}/reservations/{body['reservation_id']}",
    )
    assert (body["state"], body["attested_by"], body["scope"]) == (
        "charged",
        attester.key_id,
        {"shard": [1]},
    )
    assert body["price"] == {
        "accountant": "pure",
        "unit": "epsilon",
        "amount": "0.5",
        "delta": None,
    }
    reserve, charge = scene.entries()[1:]
    assert [entry.kind for entry in (reserve, charge)] == ["reserve", "charge"]
    for entry in (reserve, charge):
        assert (entry.amount, entry.scope, entry.event) == (
            5 * 10**8,
            {"shard": [1]},
            LAPLACE,
        )
        assert (entry.job_id, entry.actor) == (body["reservation_id"], attester.key_id)
        assert entry.details == {
            "attested_by": attester.key_id,
            "description": "the mean age",
            "per": "row",
        }
    assert scene.verified().tightest.load == 5 * 10**8


@pytest.mark.parametrize("role", ["analyst", "predictor", "auditor"])
def test_only_who_was_granted_it_attests(scene: Scene, role: str) -> None:
    caller = _granted(scene, role)
    before = scene.export()
    for ask in (
        _charge,
        lambda scene, body, by: quote_external(scene.installation, by, "census", body),
    ):
        with pytest.raises(RoleMissing):
            ask(scene, _external_body(), by=caller)
        with pytest.raises(NotFound):
            ask(scene, _external_body(), by=Principal("key_stranger"))
    assert scene.export() == before


def test_an_attester_is_an_analyst_too(scene: Scene) -> None:
    attester = _granted(scene, "attester")
    quoted = quote_external(scene.installation, attester, "census", _external_body())
    assert (
        quoted.price.amount,
        quoted.fits,
        quoted.remaining,
        quoted.largest_that_fits,
    ) == ("0.5", True, "3", "3")
    assert quoted.odds == {"add_remove": "0.6225", "replace_one": "0.7311"}
    assert (
        "release of a whole number with discrete Laplace noise of scale 240; one row moves it by"
        in quoted.receipt
    )
    assert len(scene.entries()) == 1, "a quote costs nothing"


def test_it_fills_the_account_to_the_last_nano_and_not_beyond(scene: Scene) -> None:
    _charge(scene, _declared("2.000000000000000001", scope={"shard": [0, 1]}))
    scene.submit(key="job", epsilon="0.9", scope={"shard": [1]})
    with pytest.raises(BudgetExceeded) as refused:
        _charge(scene, _declared("0.1"), key="more")
    assert (refused.value.tightest_cell, refused.value.remaining) == (
        {"shard": 1},
        "0.099999999",
    )
    assert not quote_external(
        scene.installation, OWNER, "census", _declared("0.1")
    ).fits
    _charge(scene, _declared("0.099999999"), key="more")
    assert [entry.kind for entry in scene.entries()[1:]] == [
        "reserve",
        "charge",
        "reserve",
        "reserve",
        "charge",
    ]


def test_a_repeated_request_is_charged_once(scene: Scene) -> None:
    first = _charge(scene, _external_body())
    assert _charge(scene, _external_body()) == first
    assert _charge(scene, _external_body(), name="census") == first, (
        "by its name it is the same dataset"
    )
    with pytest.raises(IdempotencyKeyReused):
        _charge(scene, _declared("0.5"))
    assert len(scene.entries()) == 3


def test_the_list_shows_them_and_no_job(scene: Scene) -> None:
    scene.submit(key="job")
    made = {
        json.loads(_charge(scene, _external_body(), key=f"k{number}").body)[
            "reservation_id"
        ]
        for number in range(3)
    }
    shown, cursor = set[str](), None
    while True:
        page = external.list_reservations(
            scene.installation, OWNER, "census", PageRequest(2, cursor)
        )
        listed = {each.reservation_id for each in page.reservations}
        assert shown.isdisjoint(listed), "each once"
        shown |= listed
        cursor = page.next
        if cursor is None:
            break
    assert shown == made
    job = next(
        entry.job_id for entry in scene.entries() if entry.job_id not in {None, *made}
    )
    reservation_id = scene.job(str(job)).parts[0].reservation_id
    for reservation in (reservation_id, job, "rs_none"):
        with pytest.raises(NotFound):
            external.show_reservation(
                scene.installation, OWNER, "census", str(reservation)
            )


def test_a_charge_since_a_time_is_of_that_dataset_and_of_no_job(scene: Scene) -> None:
    other = Pair.beside(scene).second
    job_id = other.submit_job(key="j")
    _charge(scene, _external_body())
    at = stamps.from_text(scene.entries()[-1].at)
    with scene.installation.database.write() as session:
        reservations.charge_job(session, job_id, actor="worker")
        since = {
            (name, moment): reservations.is_charged_externally_since(
                session, each.dataset_id, moment
            )
            for name, each in (("first", scene), ("second", other))
            for moment in (at, at + timedelta(microseconds=1))
        }
    assert [where for where, is_charged in since.items() if is_charged] == [
        ("first", at)
    ]


def test_a_charge_is_found_in_its_own_dataset_alone(scene: Scene) -> None:
    other = Pair.beside(scene).second
    reservation_id = json.loads(_charge(scene, _external_body()).body)["reservation_id"]
    job_id = scene.submit_job(key="j")
    with scene.installation.database.read() as session:
        [of_job] = tables.reservations_of(session, [job_id])
        found = reservations.external_reservation(
            session, scene.dataset_id, reservation_id
        )
        assert (found.id, found.account_id) == (reservation_id, scene.dataset_id)
        for dataset_id, sought in (
            (other.dataset_id, reservation_id),
            (scene.dataset_id, of_job.id),
            (scene.dataset_id, "\0"),
        ):
            with pytest.raises(NotFound):
                reservations.external_reservation(session, dataset_id, sought)


def test_the_reservation_of_a_job_is_not_charged_as_an_external_mechanism(
    scene: Scene,
) -> None:
    part = reservations.NewReservation(scene.dataset_id, 1, {}, LAPLACE, "jb_1")
    with (
        scene.installation.database.write() as session,
        pytest.raises(ValueError, match="when a worker starts it"),
    ):
        reservations.charge_external(session, part, actor=OWNER.key_id)
    assert scene.kinds_of("jb_1") == []


def test_nothing_more_is_charged_to_an_erased_dataset(scene: Scene) -> None:
    delete_dataset(scene.installation, OWNER, scene.dataset_id)
    for ask in (
        _charge,
        lambda scene, body: quote_external(
            scene.installation, OWNER, scene.dataset_id, body
        ),
    ):
        with pytest.raises(DatasetDeleted):
            ask(scene, _external_body())


def test_prices_are_rounded_up_to_a_whole_step(scene: Scene) -> None:
    quoted = quote_external(
        scene.installation, OWNER, "census", _declared("0.1000000000000001")
    )
    assert Fraction(quoted.price.amount) == Fraction(100_000_001, 10**9)


@on_one_database
@pytest.mark.parametrize(
    "act",
    [
        lambda it: it.charge_external(key="e"),
        lambda it: it.lower_cap("2", key="c"),
        lambda it: join_population(
            it.installation, OWNER, it.dataset_id, population="town"
        ),
    ],
    ids=["charge", "cap", "join"],
)
def test_a_card_states_the_guarantee_of_its_account_after_each_act(
    scene: Scene, act: Callable[[Scene], object]
) -> None:
    model = job_kinds.model(scene, "m")
    before = show_model(scene.installation, OWNER, model).guarantee["text"]
    act(scene)
    card = show_model(scene.installation, OWNER, model)
    with scene.installation.database.read() as session:
        dataset = catalog.find(session, scene.dataset_id)
        limit = statements.printable(session, dataset.id)
        stated = of_account(session, dataset, limit)
    assert card.guarantee["text"] != before
    assert card.guarantee["text"].endswith(stated["text"])
    assert card.guarantee.items() >= (stated | {"text": card.guarantee["text"]}).items()
