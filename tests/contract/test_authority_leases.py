"""Cached authority: a process answers by it only under its lease, and a revocation is answered when no process does.

The processes are installations on one database. The second one predicts; a test renews its lease, or does not, as
if the process were stopped.
"""

import math
from collections.abc import Callable, Iterator
from datetime import timedelta

import pytest
from sqlalchemy import func, select

from app.access import cached_authority
from app.access.cached_authority import elapsed_s
from app.access.tables import LeaseRow
from app.core import clock, limits
from app.core.errors import GrovekeeperError, Unauthenticated
from app.core.periodic import Periodic
from app.registry.tables import ModelRow
from app.services import aliases, leases, models
from app.services.authenticate import authenticate_and_keep, cached
from app.services.grants import put_grant, remove_grant
from app.services.installation import Installation
from app.services.keys import create_key, revoke_key, rotate_key
from app.services.predict import address_of
from app.wire.keys import KeyIn, RotationIn
from tests.support.crash_scene import ADMIN, OWNER, Scene, open_installation

_LEASE_S = 0.4


class Predictor:
    """A process that predicts with the model of a scene, and the key with which it does."""

    def __init__(self, scene: Scene, installation: Installation) -> None:
        self.scene, self.installation = scene, installation
        made = create_key(scene.installation, ADMIN, KeyIn(name="predictor", roles=[]))
        self.key_id, self.header = made.id, f"Bearer {made.key}"
        put_grant(scene.installation, ADMIN, scene.dataset_id, made.id, role="predictor")
        aliases.put_alias(scene.installation, OWNER, scene.dataset_id, "live", model="md_1")

    @property
    def address(self) -> str:
        return f"{self.scene.dataset_id}@live"

    def reads(self) -> str:
        """The id of the model with which the key predicts, read as a request reads it and kept."""
        principal = authenticate_and_keep(self.installation, self.header)
        return address_of(self.installation, principal, self.address).model_id

    def knows(self) -> str | None:
        """The model of a prediction that reads no database, if the process would answer one."""
        principal = cached(self.installation, self.header)
        known = None if principal is None else self.installation.authority.get((principal.key_id, self.address))
        return None if known is None else str(known.model_id)

    def begin(self) -> None:
        """Uses the cache until the process has a lease."""
        for _ in range(limits.MIN_LEASED_USES):
            assert self.knows() is None
        leases.renew(self.installation)
        assert self.reads() == self.knows() == "md_1"


@pytest.fixture
def predictor(scene: Scene, database_url: str, monkeypatch: pytest.MonkeyPatch) -> Iterator[Predictor]:
    monkeypatch.setattr(limits, "AUTHORITY_LEASE_S", _LEASE_S)
    with scene.installation.database.write() as session:
        for name in ("md_1", "md_2"):
            session.add(
                ModelRow(
                    id=name, name=None, dataset_id=scene.dataset_id, dataset_name="d", job_id="jb",
                    algorithm="mrf", digest=name * 16, size_bytes=1,
                    created_at=scene.installation.database.now(session),
                )
            )  # fmt: skip
    second = open_installation(database_url, scene.installation.home)
    predictor = Predictor(scene, second)
    predictor.begin()
    yield predictor
    second.close()


def _revoke(it: Predictor) -> None:
    revoke_key(it.scene.installation, ADMIN, it.key_id)


def _rotate(it: Predictor) -> None:
    rotate_key(it.scene.installation, ADMIN, it.key_id, RotationIn())


def _remove_grant(it: Predictor) -> None:
    remove_grant(it.scene.installation, ADMIN, it.scene.dataset_id, it.key_id)


def _lower_grant(it: Predictor) -> None:
    put_grant(it.scene.installation, ADMIN, it.scene.dataset_id, it.key_id, role="auditor")


def _move_alias(it: Predictor) -> None:
    aliases.put_alias(it.scene.installation, OWNER, it.scene.dataset_id, "live", model="md_2")


def _remove_alias(it: Predictor) -> None:
    aliases.remove_alias(it.scene.installation, OWNER, it.scene.dataset_id, "live")


def _delete_model(it: Predictor) -> None:
    models.delete_model(it.scene.installation, OWNER, "md_2")


_CHANGES = [_revoke, _rotate, _remove_grant, _lower_grant, _move_alias, _remove_alias, _delete_model]


@pytest.mark.parametrize("change", _CHANGES)
def test_a_change_is_answered_when_the_lease_of_a_stopped_process_has_ended(
    predictor: Predictor, change: Callable[[Predictor], None]
) -> None:
    assert predictor.knows() == "md_1"
    change(predictor)
    assert predictor.knows() is None
    began_s = elapsed_s()
    change_again = _rotate if change is not _rotate and change is not _revoke else _remove_grant
    change_again(predictor)
    assert elapsed_s() - began_s < _LEASE_S, "the lease that had ended was removed"


def test_a_change_is_answered_when_a_running_process_has_seen_it(predictor: Predictor) -> None:
    """Long before the end of the lease; a repetition waits, too, because the first request may still be waiting."""
    predictor.installation.authority.hold(until_s=elapsed_s() + 60)
    renewal = Periodic("lease", lambda _: (predictor.knows(), leases.renew(predictor.installation)), interval_s=0.02)
    renewal.start()
    try:
        _revoke(predictor)
        assert predictor.knows() is None
        _revoke(predictor)
    finally:
        renewal.stop()
    with pytest.raises(Unauthenticated):
        predictor.reads()


@pytest.mark.parametrize("moment", ["before the announcement", "before the comparison", "after the comparison"])
def test_a_change_during_a_renewal_is_seen_or_waited_for(
    predictor: Predictor, moment: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nobody waits in this test, so whatever the renewed lease allows must have been read after the change."""
    settled = list[str]()
    monkeypatch.setattr(leases, "settle", lambda _: settled.append(moment))
    announce, last_act = leases._announce, leases.control.last_act

    def change_and_announce(installation: Installation) -> None:
        if not settled and moment == "before the announcement":
            _revoke(predictor)
        announce(installation)
        if not settled and moment == "before the comparison":
            _revoke(predictor)

    monkeypatch.setattr(leases, "_announce", change_and_announce)
    if moment == "after the comparison":

        def compare_and_change(session: object) -> int:
            compared = last_act(session)  # type: ignore[arg-type]
            monkeypatch.setattr(leases.control, "last_act", last_act)
            return compared

        monkeypatch.setattr(leases.control, "last_act", compare_and_change)
    leases.renew(predictor.installation)
    if moment != "after the comparison":
        assert settled == [moment]
        assert predictor.knows() is None
        return
    _revoke(predictor)
    with predictor.scene.installation.database.read() as session:
        seen = session.execute(select(LeaseRow.last_act)).scalar_one()
        assert seen < last_act(session), "whoever revokes finds the lease and waits"


def test_what_was_read_before_a_change_is_not_kept_after_it(predictor: Predictor) -> None:
    cache = predictor.installation.authority

    def read_while_it_changes() -> tuple[str, float]:
        leases.settle(predictor.installation)
        return "as it was before", 60.0

    assert cache.read("name", read_while_it_changes) == "as it was before"
    assert cache.get("name") is None


def test_a_known_key_ends_by_the_clock_of_the_database(predictor: Predictor, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits, "AUTHORITY_AGE_S", math.inf)
    installation, began_s = predictor.installation, elapsed_s()
    with installation.database.read() as session:
        ends_at = installation.database.now(session) + timedelta(hours=1)
    body = KeyIn.model_validate({"name": "short", "roles": [], "expires_at": clock.to_text(ends_at)})
    header = f"Bearer {create_key(predictor.scene.installation, ADMIN, body).key}"
    authenticate_and_keep(installation, header)
    read_s = elapsed_s()
    installation.authority.hold(until_s=math.inf)
    for now_s, is_known in ((began_s + 3_599, True), (read_s + 3_600, False)):
        monkeypatch.setattr(cached_authority, "elapsed_s", lambda now_s=now_s: now_s)
        assert (cached(installation, header) is not None) is is_known


def test_a_process_that_does_not_predict_has_no_lease(predictor: Predictor) -> None:
    _leases = select(func.count()).select_from(LeaseRow)
    predictor.installation.authority.take_uses()
    leases.renew(predictor.installation)
    leases.renew(predictor.installation)
    assert predictor.knows() is None
    with predictor.installation.database.read() as session:
        assert session.execute(_leases).scalar_one() == 0


def test_who_may_not_predict_is_never_known(predictor: Predictor) -> None:
    _remove_grant(predictor)
    with pytest.raises(GrovekeeperError):
        predictor.reads()
    leases.renew(predictor.installation)
    assert predictor.knows() is None
