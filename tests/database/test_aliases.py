"""Aliases of models on both databases: who moves them, what they address, and what
stays of their moves.
"""

from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from datetime import timedelta
from functools import partial
from typing import Any

import pytest

from app.access.grants import Principal
from app.core.errors import (
    ChangedMeanwhile,
    InvalidRequest,
    ModelHasAlias,
    NotFound,
    RoleMissing,
    TooLarge,
)
from app.core.preconditions import condition_of
from app.db.database import transaction_time
from app.ledger import control
from app.registry.models import ModelFilter
from app.registry.tables import ReleaseRow
from app.services import models
from app.services.datasets.erase import delete_dataset
from app.services.installation import Installation
from app.services.keys import put_grant, remove_grant
from app.services.ledger import audit
from app.services.pagination import PageRequest
from app.services.predict import addressed_model
from grovekeeper_verifier import control_export
from tests.support import people
from tests.support.crash_scene import ADMIN, OWNER, STRANGER, Scene
from tests.support.databases import on_one_database
from tests.support.locks import assert_locks_in_order
from tests.support.ruled import SECOND, grant
from tests.support.set_limits import SetLimit

pytestmark = [pytest.mark.contract, pytest.mark.in_turn("database_url")]

_EVERY = PageRequest(500)


def _trained(installation: Installation, dataset: dict[str, Any], *names: str) -> None:
    """Models of a dataset, without artifacts."""
    with installation.database.write() as session:
        for number, name in enumerate(names):
            session.add(
                ReleaseRow(
                    kind="train",
                    id=name, name=None, dataset_id=dataset["id"], dataset_name=dataset["name"], job_id=f"jb_{name}",
                    algorithm="mrf", digest=f"digest of {name}", size_bytes=1,
                    created_at=transaction_time(session) + timedelta(seconds=number),
                )
            )  # fmt: skip


def _put(
    installation: Installation,
    dataset: str,
    alias: str,
    model: str,
    by: Principal = OWNER,
) -> None:
    models.put_alias(installation, by, dataset, alias, model=model)


def _at(installation: Installation, address: str, by: Principal = OWNER) -> str:
    """Id of the model at an address."""
    with installation.database.read() as session:
        return addressed_model(session, by, address, {*ADMIN.acts_as(None)}).id


def test_an_alias_moves_by_one_call_and_keeps_its_moves(
    installation: Installation,
) -> None:
    bank = people.declared(installation)
    _trained(installation, bank, "md_1", "md_2")
    address = f"{bank['name']}@production"
    _put(installation, bank["name"], "staging", "md_1")
    _put(installation, bank["id"], "production", f"{bank['name']}@staging")
    assert _at(installation, address) == "md_1"
    _put(installation, bank["id"], "production", "md_2")
    _put(installation, bank["id"], "production", "md_2")
    assert (
        _at(installation, address),
        _at(installation, f"{bank['id']}@production"),
    ) == ("md_2", "md_2")
    listed = models.list_aliases(installation, OWNER, bank["id"], _EVERY).aliases
    assert [(item.alias, item.model_id) for item in listed] == [
        ("production", "md_2"),
        ("staging", "md_1"),
    ]
    models.remove_alias(installation, OWNER, bank["id"], "production")
    with pytest.raises(NotFound):
        _at(installation, address)
    history = models.show_alias(
        installation, OWNER, bank["id"], "production", PageRequest(2)
    )
    assert history.model_id is None
    assert [(move.model_id, move.moved_by) for move in history.moves] == [
        (None, OWNER.key_id),
        ("md_2", OWNER.key_id),
    ]
    rest = models.show_alias(
        installation, OWNER, bank["id"], "production", PageRequest(2, history.next)
    )
    assert ([move.model_id for move in rest.moves], rest.next) == (["md_1"], None)
    acts = [
        act
        for act in audit.list_acts(installation, ADMIN, _EVERY).acts
        if act.kind.startswith("alias")
    ]
    assert [(act.kind, act.details) for act in acts[-2:]] == [
        (
            "alias-moved",
            {"dataset": bank["id"], "alias": "production", "model": "md_2"},
        ),
        ("alias-removed", {"dataset": bank["id"], "alias": "production"}),
    ]
    assert (
        control_export.verify(list(audit.export_acts(installation, ADMIN))).kinds[
            "alias-moved"
        ]
        == 3
    )


def test_a_model_with_an_alias_is_not_deleted(installation: Installation) -> None:
    bank = people.declared(installation)
    _trained(installation, bank, "md_1")
    address = f"{bank['name']}@production"
    _put(installation, bank["id"], "production", "md_1")
    for deleted in ("md_1", address):
        with pytest.raises(ModelHasAlias) as refused:
            models.delete_model(installation, OWNER, deleted)
        assert refused.value.aliases == [address]
    models.remove_alias(installation, OWNER, bank["id"], "production")
    models.delete_model(installation, OWNER, "md_1")
    with pytest.raises(NotFound):
        _put(installation, bank["id"], "production", "md_1")


def test_an_alias_names_models_of_its_dataset_alone(installation: Installation) -> None:
    bank, shop = people.declared(installation), people.declared(installation)
    _trained(installation, shop, "md_shop")
    with pytest.raises(InvalidRequest) as refused:
        _put(installation, bank["id"], "production", "md_shop")
    assert [(error.at, error.problem) for error in refused.value.errors] == [
        ("/model", "of-another-dataset")
    ]


def test_predictors_use_aliases_and_analysts_move_them(scene: Scene) -> None:
    _trained(scene.installation, {"id": scene.dataset_id, "name": "census"}, "md_1")
    _put(scene.installation, scene.dataset_id, "production", "md_1")
    grant(scene, "predictor")
    assert _at(scene.installation, f"{scene.dataset_id}@production", SECOND) == "md_1"
    assert models.list_aliases(
        scene.installation, SECOND, scene.dataset_id, _EVERY
    ).aliases
    for call in (
        lambda: _put(
            scene.installation, scene.dataset_id, "production", "md_1", SECOND
        ),
        lambda: models.remove_alias(
            scene.installation, SECOND, scene.dataset_id, "production"
        ),
        lambda: models.show_alias(
            scene.installation, SECOND, scene.dataset_id, "production", _EVERY
        ),
    ):
        with pytest.raises(RoleMissing):
            call()
    with pytest.raises(NotFound):
        _at(
            scene.installation, f"{scene.dataset_id}@production", Principal("key_other")
        )


def test_a_dataset_that_takes_the_name_of_an_erased_one_takes_no_address(
    installation: Installation,
) -> None:
    bank = people.declared(installation)
    _trained(installation, bank, "md_1")
    _put(installation, bank["id"], "production", "md_1")
    put_grant(installation, OWNER, bank["id"], STRANGER.key_id, role="owner")
    delete_dataset(installation, OWNER, bank["id"])
    second = people.declared(installation, principal=STRANGER, name=bank["name"])
    remove_grant(installation, OWNER, bank["id"], STRANGER.key_id)
    _trained(installation, second, "md_2")
    _put(installation, second["id"], "production", "md_2", STRANGER)
    address = f"{bank['name']}@production"
    assert [_at(installation, address, by) for by in (OWNER, STRANGER, ADMIN)] == [
        "md_1",
        "md_2",
        "md_1",
    ]
    assert _at(installation, f"{second['id']}@production", ADMIN) == "md_2"
    _put(installation, bank["id"], "staging", "md_1")


@on_one_database
@pytest.mark.parametrize(
    "address", ["@", "a@", "@b", "a@b@c", "a b@c", "a\x00@b", "é@b", "a@" + "b" * 65]
)
def test_a_text_that_is_no_address_is_no_model(
    installation: Installation, address: str
) -> None:
    with pytest.raises(NotFound):
        _at(installation, address, ADMIN)


@on_one_database
def test_the_number_of_aliases_is_limited(
    installation: Installation, set_limit: SetLimit
) -> None:
    set_limit("MAX_ALIASES", 1)
    bank = people.declared(installation)
    _trained(installation, bank, "md_1", "md_2")
    _put(installation, bank["id"], "a", "md_1")
    with pytest.raises(TooLarge):
        _put(installation, bank["id"], "b", "md_1")
    _put(installation, bank["id"], "a", "md_2")


def test_a_removed_alias_leaves_its_place(scene: Scene, set_limit: SetLimit) -> None:
    """One analyst would otherwise use up the aliases of a dataset for ever."""
    set_limit("MAX_ALIASES", 2)
    installation, dataset = scene.installation, scene.dataset_id
    _trained(installation, {"id": dataset, "name": "census"}, "md_1", "md_2")
    grant(scene, "analyst")
    for number in range(4):
        _put(installation, dataset, f"a{number}", "md_1", SECOND)
        models.remove_alias(installation, SECOND, dataset, f"a{number}")
    _put(installation, dataset, "production", "md_1")
    _put(installation, dataset, "a0", "md_1")
    with pytest.raises(TooLarge):
        _put(installation, dataset, "a1", "md_1")
    models.remove_alias(installation, OWNER, dataset, "production")
    _put(installation, dataset, "a1", "md_2")
    listed = models.list_aliases(installation, OWNER, dataset, _EVERY).aliases
    assert [(item.alias, item.model_id) for item in listed] == [
        ("a0", "md_1"),
        ("a1", "md_2"),
    ]
    with pytest.raises(TooLarge):
        _put(installation, dataset, "production", "md_1")


@on_one_database
def test_filters_leave_out_other_models(installation: Installation) -> None:
    bank, shop = people.declared(installation), people.declared(installation)
    _trained(installation, bank, "md_1", "md_2")
    _trained(installation, shop, "md_3")
    _put(installation, bank["id"], "production", "md_1")
    _put(installation, bank["id"], "production", "md_2")
    _put(installation, shop["id"], "production", "md_3")

    def listed(by: Principal = OWNER, **filters: str) -> list[str]:
        return sorted(
            item.id
            for item in models.list_models(
                installation, by, _EVERY, ModelFilter(**filters)
            ).models
        )

    assert listed() == ["md_1", "md_2", "md_3"]
    assert (
        listed(dataset=bank["id"]) == listed(dataset=bank["name"]) == ["md_1", "md_2"]
    )
    assert listed(alias="production") == ["md_2", "md_3"]
    assert listed(alias="production", dataset=bank["id"]) == ["md_2"]
    assert listed(algorithm="mrf") == ["md_1", "md_2", "md_3"]
    assert listed(algorithm="rdt-ta") == []
    for caller, unknown in ((STRANGER, bank["id"]), (OWNER, "nothing")):
        with pytest.raises(NotFound):
            listed(caller, dataset=unknown)
    shown = models.list_models(
        installation, OWNER, _EVERY, ModelFilter(dataset=bank["id"])
    ).models
    assert [item.aliases for item in shown] == [[f"{bank['name']}@production"], []]


def test_the_lock_order_of_a_move(postgresql_scene: Scene) -> None:
    installation, dataset = postgresql_scene.installation, postgresql_scene.dataset_id
    _trained(installation, {"id": dataset, "name": "census"}, "md_1")
    _put(installation, dataset, "staging", "md_1")  # an act opens the control chain
    assert_locks_in_order(
        installation.database.engine,
        lambda: _put(installation, dataset, "production", "md_1"),
        [
            ("keys", OWNER.key_id),
            ("datasets", dataset),
            ("releases", "md_1"),
            ("accounts", control.CHAIN),
        ],
    )


def test_of_moves_that_rest_on_the_same_move_one_is_made(
    installation: Installation,
) -> None:
    bank = people.declared(installation)
    names = [f"md_{number}" for number in range(6)]
    _trained(installation, bank, *names)
    move = partial(models.put_alias, installation, OWNER, bank["id"], "production")
    with pytest.raises(ChangedMeanwhile):
        move(model=names[0], condition=condition_of("*"))
    held = condition_of(f'"other", "{move(model=names[0]).etag}"')

    def changed(name: str) -> bool:
        with suppress(ChangedMeanwhile):
            move(model=name, condition=held)
            return True
        return False

    with ThreadPoolExecutor(5) as threads:
        assert sorted(threads.map(changed, names[1:])) == [False] * 4 + [True]
    last = models.show_alias(installation, OWNER, bank["id"], "production", _EVERY)
    assert last.model_id is not None
    assert move(model=last.model_id, condition=held).etag == last.etag, (
        "a repetition changes nothing"
    )
    remove = partial(models.remove_alias, installation, OWNER, bank["id"], "production")
    with pytest.raises(ChangedMeanwhile):
        remove(condition=held)
    for made_weak_by_a_proxy in ("W/", ""):
        remove(condition=condition_of(f'{made_weak_by_a_proxy}"{last.etag}"'))
    removed = models.show_alias(installation, OWNER, bank["id"], "production", _EVERY)
    assert removed.model_id is None
    with pytest.raises(ChangedMeanwhile):
        move(model=names[0], condition=condition_of("*"))
    assert (
        move(model=names[0], condition=condition_of(f'"{removed.etag}"')).model_id
        == names[0]
    )


def test_of_puts_that_only_make_an_alias_one_makes_it(
    installation: Installation,
) -> None:
    """A repetition is refused, too: each caller would believe to have made it."""
    bank = people.declared(installation)
    names = [f"md_{number}" for number in range(5)]
    _trained(installation, bank, *names)
    move = partial(
        models.put_alias,
        installation,
        OWNER,
        bank["id"],
        "production",
        condition=condition_of(None, "*"),
    )

    def is_made(name: str) -> bool:
        with suppress(ChangedMeanwhile):
            move(model=name)
            return True
        return False

    for _ in range(2):  # also an alias that was removed
        with ThreadPoolExecutor(5) as threads:
            made = list(threads.map(is_made, names))
        assert sorted(made) == [False] * 4 + [True]
        assert _at(installation, f"{bank['id']}@production") == names[made.index(True)]
        assert not is_made(names[made.index(True)])
        with pytest.raises(ChangedMeanwhile):
            models.remove_alias(
                installation,
                OWNER,
                bank["id"],
                "production",
                condition=condition_of(None, "*"),
            )
        models.remove_alias(installation, OWNER, bank["id"], "production")
