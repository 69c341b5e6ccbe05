"""Cached authority: no process answers by authority that was taken away before the
answer, whatever process took it.

The processes are installations on one database. The second process predicts, and hears
of nothing, as if it were stopped.
"""

import math
from collections.abc import Callable, Iterator
from dataclasses import replace
from datetime import timedelta

import pytest

from app.access import keys
from app.access.keys import CachedAuthority
from app.core import stamps
from app.core.errors import NotFound
from app.db.database import transaction_time
from app.registry.tables import ReleaseRow
from app.services import models
from app.services.authorization import authenticate_and_keep, cached
from app.services.installation import Installation
from app.services.keys import (
    create_key,
    put_grant,
    remove_grant,
    revoke_key,
    rotate_key,
)
from app.services.predict import address_of
from app.wire.keys import KeyIn, RotationIn
from grovekeeper_forests.errors import GrovekeeperError
from tests.support.clocks import StoppedClock
from tests.support.crash_scene import (
    ADMIN,
    OWNER,
    STRANGER,
    Scene,
    open_installation,
)
from tests.support.databases import on_one_database
from tests.support.set_limits import SetLimit

pytestmark = pytest.mark.contract

_WAIT_S = 1.0


class Predictor:
    """A process that predicts with the model of a scene, and the key with which it
    does.
    """

    def __init__(self, scene: Scene, installation: Installation) -> None:
        self.scene, self.clock = scene, StoppedClock()
        self.installation = replace(installation, authority=CachedAuthority(self.clock))
        made = create_key(scene.installation, ADMIN, KeyIn(name="predictor", roles=[]))
        self.key_id, self.header = made.id, f"Bearer {made.key}"
        put_grant(
            scene.installation, ADMIN, scene.dataset_id, made.id, role="predictor"
        )
        models.put_alias(
            scene.installation, OWNER, scene.dataset_id, "live", model="md_1"
        )

    @property
    def address(self) -> str:
        return f"{self.scene.dataset_id}@live"

    def reads(self) -> str:
        """The id of the model with which the key predicts, read as a request reads it
        and kept.
        """
        principal = authenticate_and_keep(self.installation, self.header)
        return address_of(self.installation, principal, self.address).model_id

    def knows(self) -> str | None:
        """The model of a prediction that reads no database, if the process would answer
        one.
        """
        principal = cached(self.installation, self.header)
        known = (
            None
            if principal is None
            else self.installation.authority.get((principal.key_id, self.address))
        )
        return None if known is None else str(known.model_id)


@pytest.fixture
def predictor(
    scene: Scene, database_url: str, set_limit: SetLimit
) -> Iterator[Predictor]:
    with scene.installation.database.write() as session:
        for name in ("md_1", "md_2"):
            session.add(
                ReleaseRow(
                    kind="train",
                    id=name, name=None, dataset_id=scene.dataset_id, dataset_name="d", job_id=f"jb_{name}",
                    algorithm="mrf", digest=name * 16, size_bytes=1,
                    created_at=transaction_time(session),
                )
            )  # fmt: skip
    second = open_installation(database_url, scene.installation.home)
    predictor = Predictor(scene, second)
    set_limit("REVOCATION_S", _WAIT_S)
    yield predictor
    second.close()


def _revoke(it: Predictor) -> None:
    revoke_key(it.scene.installation, ADMIN, it.key_id)


def _rotate(it: Predictor) -> None:
    rotate_key(it.scene.installation, ADMIN, it.key_id, RotationIn())


def _remove_grant(it: Predictor) -> None:
    remove_grant(it.scene.installation, ADMIN, it.scene.dataset_id, it.key_id)


def _lower_grant(it: Predictor) -> None:
    put_grant(
        it.scene.installation, ADMIN, it.scene.dataset_id, it.key_id, role="auditor"
    )


def _move_alias(it: Predictor) -> None:
    models.put_alias(
        it.scene.installation, OWNER, it.scene.dataset_id, "live", model="md_2"
    )


def _remove_alias(it: Predictor) -> None:
    models.remove_alias(it.scene.installation, OWNER, it.scene.dataset_id, "live")


def _delete_model(it: Predictor) -> None:
    models.delete_model(it.scene.installation, OWNER, "md_2")


_CHANGES = [
    _revoke,
    _rotate,
    _remove_grant,
    _lower_grant,
    _move_alias,
    _remove_alias,
    _delete_model,
]


@pytest.mark.parametrize("change", _CHANGES)
def test_a_change_is_answered_when_no_process_knows_what_was_before(
    predictor: Predictor,
    change: Callable[[Predictor], None],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    waits = list[float]()

    def wait(waited_s: float) -> None:
        waits.append(waited_s)
        predictor.clock.now_s += waited_s

    assert predictor.reads() == predictor.knows() == "md_1"
    monkeypatch.setattr(keys.time, "sleep", wait)
    change(predictor)
    assert predictor.knows() is None
    if change is not _delete_model:
        # a repetition waits, too, because the first request may still be waiting
        change(predictor)
        assert waits.pop() == _WAIT_S
    assert waits == [_WAIT_S]


def test_a_value_is_as_old_as_the_beginning_of_its_reading(
    predictor: Predictor,
) -> None:
    cache = predictor.installation.authority

    def read_for_long() -> tuple[str, float]:
        # the process was stopped, or its machine slept, after the database had answered
        predictor.clock.now_s += _WAIT_S
        return "as it was before", 60.0

    assert cache.read("name", read_for_long) == "as it was before"
    assert cache.get("name") is None


def test_a_log_of_an_installation_names_nobody_whose_key_is_known() -> None:
    known = CachedAuthority()
    known.read("a name", lambda: (OWNER, 60.0))
    assert OWNER.key_id not in repr(known)


@pytest.mark.parametrize(("after_s", "is_known"), [(0.9, True), (0.999, False)])
def test_an_entry_ends_before_a_revocation_is_answered(
    predictor: Predictor, after_s: float, is_known: bool
) -> None:
    """By a clock that also counts while the machine sleeps, and earlier than the wait
    by more than clocks differ.
    """
    predictor.reads()
    predictor.clock.now_s += after_s * _WAIT_S
    assert (predictor.knows() is not None) is is_known


def test_a_known_key_ends_by_the_clock_of_the_database(
    predictor: Predictor, set_limit: SetLimit
) -> None:
    set_limit("REVOCATION_S", math.inf)
    installation, clock = predictor.installation, predictor.clock
    with installation.database.read() as session:
        ends_at = transaction_time(session) + timedelta(hours=1)
    body = KeyIn.model_validate(
        {"name": "short", "roles": [], "expires_at": stamps.to_text(ends_at)}
    )
    header = f"Bearer {create_key(predictor.scene.installation, ADMIN, body).key}"
    authenticate_and_keep(installation, header)
    for passed_s, is_known in ((3_599, True), (1, False)):
        clock.now_s += passed_s
        assert (cached(installation, header) is not None) is is_known


def test_who_may_not_predict_is_never_known(predictor: Predictor) -> None:
    _remove_grant(predictor)
    with pytest.raises(GrovekeeperError):
        predictor.reads()
    assert predictor.knows() is None


@on_one_database
def test_a_credential_is_known_by_all_of_its_text(predictor: Predictor) -> None:
    predictor.reads()
    scheme, _, credential = predictor.header.partition(" ")
    for place, sign in enumerate(credential):
        other = "y" if sign == "x" else "x"
        changed = f"{credential[:place]}{other}{credential[place + 1 :]}"
        for text in (changed, credential[:place]):
            assert cached(predictor.installation, f"{scheme} {text}") is None
    assert cached(predictor.installation, predictor.header) is not None


@on_one_database
def test_a_known_model_is_that_of_one_caller_and_one_address(
    predictor: Predictor,
) -> None:
    predictor.reads()
    here = predictor.installation
    known = cached(here, predictor.header)
    assert known is not None
    for caller, address in (
        (replace(known, key_id=STRANGER.key_id), predictor.address),
        (known, f"{predictor.scene.dataset_id}@other"),
    ):
        with pytest.raises(NotFound):
            address_of(here, caller, address)
