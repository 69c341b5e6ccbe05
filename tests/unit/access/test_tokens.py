"""Tests which tokens of an identity provider are believed."""

import json
import time
from datetime import UTC, datetime

import pytest

from app.access import tokens
from app.access.grants import Role
from app.access.tokens import Token, TokenRules
from app.core import limits, stamps
from app.core.errors import Unauthenticated
from tests.support.identity_provider import ATTACKS, AUDIENCE, ISSUER, KEY_SET, ROLES, token

KEYS = tokens.parse_key_set(json.dumps(KEY_SET).encode())
RULES = TokenRules(ISSUER, AUDIENCE, "roles", {value: Role(role) for value, role in ROLES.items()})


def _verified(text: str) -> Token:
    return tokens.verify(text, RULES, find_key=KEYS.get, at=stamps.now())


@pytest.mark.parametrize("algorithm", ["RS256", "ES256", "EdDSA"])
def test_a_token_of_the_provider_is_believed(algorithm: str) -> None:
    issued = int(time.time())
    believed = _verified(token(algorithm, sub="ann", roles=["stewards", "readers"], iat=issued, exp=issued + 300))
    assert believed == Token(
        ISSUER,
        "ann",
        frozenset({Role.OWNER}),
        datetime.fromtimestamp(issued, UTC),
        datetime.fromtimestamp(issued + 300, UTC),
    )


@pytest.mark.parametrize("attack", ATTACKS)
def test_no_other_token_is_believed_and_the_error_says_nothing(attack: str) -> None:
    with pytest.raises(Unauthenticated) as refused:
        _verified(ATTACKS[attack]())
    assert str(refused.value) == str(Unauthenticated())
    assert refused.value.__cause__ is None


@pytest.mark.parametrize(
    ("claim", "roles"),
    [
        (None, set()), ([], set()), ("", set()), (["readers"], set()), ("operators", {Role.ADMIN}),
        (["Operators", "admin", "owner"], set()), (["stewards", "operators"], {Role.OWNER, Role.ADMIN}),
    ],
)  # fmt: skip
def test_only_mapped_values_give_roles(claim: object, roles: set[Role]) -> None:
    assert _verified(token(roles=claim)).roles == roles


def test_the_limits_of_a_token_are_reached_and_not_passed() -> None:
    now = int(time.time())
    _verified(token(exp=now + limits.MAX_TOKEN_LIFETIME_S, iat=now))
    _verified(token(iat=now + limits.TOKEN_LEEWAY_S, nbf=now + limits.TOKEN_LEEWAY_S, exp=now + 300))
    _verified(token(aud=[AUDIENCE], nbf=None))
    _verified(token(sub="a" * limits.MAX_SUBJECT_CHARS))


def test_a_key_has_not_the_form_of_a_token() -> None:
    assert not tokens.has_form(f"key_a.{'s' * 43}")
    assert tokens.has_form(token())
