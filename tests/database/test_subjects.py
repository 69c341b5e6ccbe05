"""Subjects of an identity provider: principals like keys, on both databases."""

import math
import re
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path

import pytest

from app.access import tokens
from app.access.grants import Principal, Role
from app.access.keys import CachedAuthority
from app.core.errors import NotFound, Unauthenticated, Unavailable
from app.core.settings import Settings
from app.jobs.states import EndReason, JobState
from app.ledger import control, tables
from app.ledger.tables import Entry
from app.services.authorization import (
    IdentityProvider,
    authenticate,
    authenticate_and_keep,
    cached,
    confirm,
    write_as,
)
from app.services.execution.charge import charge_claimed
from app.services.jobs import show_jobs
from app.services.keys import list_keys, put_grant, revoke_key, rotate_key
from app.services.pagination import PageRequest
from app.wire.keys import RotationIn
from tests.support.clocks import StoppedClock
from tests.support.crash_scene import ADMIN, Scene
from tests.support.identity_provider import ISSUER, KeySetFile, token
from tests.support.job_kinds import claimed, must_not_run, run_here
from tests.support.set_limits import SetLimit

pytestmark = [pytest.mark.contract, pytest.mark.in_turn("database_url")]


@pytest.fixture
def provider(tmp_path: Path) -> IdentityProvider:
    settings = KeySetFile(tmp_path / "keys.json").settings
    named = IdentityProvider.of(
        Settings(home=tmp_path, database_url="sqlite://", **settings)
    )
    assert named is not None
    return named


def _sent(scene: Scene, provider: IdentityProvider, **claims: object) -> Principal:
    """The caller who sends a token."""
    return authenticate(
        scene.installation, f"Bearer {token(**claims)}", provider=provider
    )


def _acts(scene: Scene) -> list[Entry]:
    with scene.installation.database.read() as session:
        return tables.entries(session, control.CHAIN, after=0, limit=1_000)


def _analyst(scene: Scene, provider: IdentityProvider) -> Principal:
    caller = _sent(scene, provider)
    put_grant(
        scene.installation, ADMIN, scene.dataset_id, caller.key_id, role="analyst"
    )
    return caller


def test_the_first_token_of_a_subject_makes_a_principal_and_later_tokens_write_nothing(
    scene: Scene, provider: IdentityProvider
) -> None:
    n_before = len(_acts(scene))
    first = _sent(scene, provider, roles=["stewards"])
    acts = _acts(scene)[n_before:]
    assert first.roles == {Role.OWNER}
    assert [
        (act.kind, act.actor, act.details) for act in acts if act.kind != "open"
    ] == [("subject-admitted", first.key_id, {"key": first.key_id, "roles": ["owner"]})]
    again = _sent(
        scene, provider, roles=["stewards", "readers"], exp=int(time.time()) + 600
    )
    assert (again.key_id, again.roles) == (first.key_id, first.roles)
    assert _acts(scene)[n_before:] == acts
    without_ids = re.sub("_[a-z2-7]{16}", "", str(_acts(scene)))
    assert "ann" not in without_ids, "the chain, which nobody can erase, has no name"


def test_the_id_of_a_subject_follows_from_issuer_and_subject_and_is_no_id_of_a_key() -> (
    None
):
    named = [
        (ISSUER, "ann"),
        (ISSUER, "Ann"),
        (f"{ISSUER}a", "nn"),
        (f"{ISSUER}/ann", ""),
        (ISSUER, '","'),
    ]
    ids = [tokens.subject_id(issuer, subject) for issuer, subject in named]
    assert ids[0] == "sub_q5htw3hdv5x2a5uhlqkgkj2oatwn5lm2"
    assert len(set(ids)) == len(named)
    assert all(len(each) > 32 for each in ids), (
        "an id of a key has at most 32 characters"
    )


def test_the_roles_are_those_of_the_newest_token(
    scene: Scene, provider: IdentityProvider
) -> None:
    now = int(time.time())
    assert _sent(scene, provider, roles=["operators"], iat=now - 60).roles == {
        Role.ADMIN
    }
    assert _sent(scene, provider, roles=[], iat=now).roles == set()
    older = _sent(scene, provider, roles=["operators"], iat=now - 60)
    assert older.roles == set(), "an older token does not bring the role back"
    assert [
        act.details["roles"]
        for act in _acts(scene)
        if act.kind == "subject-roles" and act.details
    ] == [[]]


def test_a_revoked_subject_is_refused_with_every_token(
    scene: Scene, provider: IdentityProvider
) -> None:
    caller = _sent(scene, provider, roles=["operators"])
    revoke_key(scene.installation, ADMIN, caller.key_id)
    n_before = len(_acts(scene))
    with pytest.raises(Unauthenticated), write_as(scene.installation, caller):
        raise AssertionError("a request that began before has no effect")
    for roles in (["operators"], ["stewards"], []):
        with pytest.raises(Unauthenticated):
            _sent(scene, provider, roles=roles, iat=int(time.time()) + 5)
    assert len(_acts(scene)) == n_before
    listed = {
        key.id: key
        for key in list_keys(scene.installation, ADMIN, PageRequest(500, None)).keys
    }
    assert listed[caller.key_id].revoked_at is not None
    assert (listed[caller.key_id].name, listed[caller.key_id].issuer) == ("ann", ISSUER)


def test_a_request_has_no_effect_once_its_token_has_expired(
    scene: Scene, provider: IdentityProvider
) -> None:
    caller = _analyst(scene, provider)
    job_id = scene.submit_job(key="k")
    assert show_jobs.look_at(scene.installation, [(caller, job_id)])
    assert caller.token_expires_at is not None
    ended = replace(caller, token_expires_at=caller.token_expires_at.replace(year=2020))
    assert show_jobs.look_at(scene.installation, [(ended, job_id)]) == {}, (
        "an event stream ends"
    )
    with pytest.raises(Unauthenticated):
        confirm(scene.installation, ended)
    with pytest.raises(Unauthenticated), write_as(scene.installation, ended):
        raise AssertionError("a transaction has no effect")


def test_a_known_token_ends_when_it_says(
    scene: Scene, provider: IdentityProvider, set_limit: SetLimit
) -> None:
    """A prediction by a caller whom this process knows reads no token again."""
    set_limit("REVOCATION_S", math.inf)
    header = f"Bearer {token(exp=int(time.time()) + 600)}"
    clock = StoppedClock()
    installation = replace(scene.installation, authority=CachedAuthority(clock))
    authenticate_and_keep(installation, header, provider=provider)
    for passed_s, is_known in ((590, True), (10, False)):
        clock.now_s += passed_s
        assert (cached(installation, header) is not None) is is_known


def test_a_grant_counts_for_a_subject_and_its_job_outlives_its_token(
    scene: Scene, provider: IdentityProvider
) -> None:
    with pytest.raises(NotFound):
        scene.submit(key="k", by=_sent(scene, provider))
    first = scene.submit(key="k", by=_analyst(scene, provider))
    again = scene.submit(key="k", by=_sent(scene, provider, exp=int(time.time()) + 600))
    assert (again, [entry.kind for entry in scene.entries()].count("reserve")) == (
        first,
        1,
    ), "one job, one price"
    charge_claimed(scene.installation, claimed(scene.installation))


def test_a_job_is_void_if_its_subject_was_revoked_before_the_charge(
    scene: Scene, provider: IdentityProvider
) -> None:
    caller = _analyst(scene, provider)
    job_id = scene.submit_job(key="k", by=caller)
    revoke_key(scene.installation, ADMIN, caller.key_id)
    run_here(scene.installation, claimed(scene.installation), must_not_run)
    assert scene.end(job_id) == (
        JobState.FAILED,
        EndReason.REVOKED,
        ["reserve", "void"],
    )


def test_a_subject_has_no_secret_to_rotate(
    scene: Scene, provider: IdentityProvider
) -> None:
    caller = _sent(scene, provider)
    with pytest.raises(NotFound):
        rotate_key(scene.installation, ADMIN, caller.key_id, RotationIn())
    with pytest.raises(Unauthenticated):
        authenticate(
            scene.installation, f"Bearer {caller.key_id}.{'s' * 43}", provider=provider
        )


def test_first_tokens_at_once_admit_a_subject_once(
    scene: Scene, provider: IdentityProvider
) -> None:
    # while one caller reads the keys, others are told to repeat their request
    provider.signing_keys.find("es256")
    with ThreadPoolExecutor(6) as pool:
        callers = list(
            pool.map(lambda _: _sent(scene, provider, roles=["stewards"]), range(6))
        )
    assert len({caller.key_id for caller in callers}) == 1
    assert [act.kind for act in _acts(scene)].count("subject-admitted") == 1


def test_a_subject_with_an_equal_digest_is_refused(
    scene: Scene, provider: IdentityProvider, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tokens, "subject_id", lambda *_: "sub_equal")
    _sent(scene, provider)
    with pytest.raises(Unauthenticated):
        _sent(scene, provider, sub="bob")


def test_without_the_keys_of_the_provider_tokens_are_unavailable_and_keys_work(
    scene: Scene, tmp_path: Path
) -> None:
    settings = KeySetFile(tmp_path / "keys.json").settings | {
        "oidc_jwks": tmp_path / "missing.json"
    }
    provider = IdentityProvider.of(
        Settings(home=tmp_path, database_url="sqlite://", **settings)
    )
    with pytest.raises(Unavailable):
        authenticate(scene.installation, f"Bearer {token()}", provider=provider)
    key = f"Bearer {ADMIN.key_id}.{'s' * 43}"
    assert authenticate(scene.installation, key, provider=provider) == ADMIN


def test_without_a_provider_no_token_is_accepted(scene: Scene) -> None:
    with pytest.raises(Unauthenticated):
        authenticate(scene.installation, f"Bearer {token()}")
