"""Legal names: safe in other users' terminals and in the addresses that clients build."""

import pytest
from pydantic import ValidationError

from app.wire.keys import KeyIn
from app.wire.ledger import CapIn
from app.wire.populations import JoinIn
from app.wire.training import TrainIn

JOB = {"dataset": "census", "algorithm": "mrf", "epsilon": "1"}


@pytest.mark.parametrize(
    "character",
    ["\x1b", "\x7f", "\x9b", "\u2028", "\u202a", "\u202e", "\u2066", "\u2069"],
)
def test_names_with_terminal_control_characters_are_refused(character: str) -> None:
    """U+009B begins a control sequence, as ESC [ does."""
    with pytest.raises(ValidationError, match="name"):
        KeyIn.model_validate({"name": f"a{character}31m", "roles": []})
    with pytest.raises(ValidationError, match="name"):
        TrainIn.model_validate(JOB | {"name": f"a{character}31m"})


def test_names_are_of_any_language() -> None:
    assert TrainIn.model_validate(JOB | {"name": "forêt 森 №1"}).name == "forêt 森 №1"


@pytest.mark.parametrize(
    "reason", ["", " ", "\u00a0", "\u200b", "\u2060", "\ufeff", " \ufeff \u200d"]
)
def test_a_reason_has_a_visible_character(reason: str) -> None:
    with pytest.raises(ValidationError, match="reason"):
        CapIn.model_validate({"cap": "1", "reason": reason})
    assert (
        CapIn.model_validate({"cap": "1", "reason": f"{reason}a"}).reason
        == f"{reason}a"
    )


@pytest.mark.parametrize("name", [".", "..", "...", "", "a/b", "a b", "n" * 65])
def test_a_dataset_has_no_name_that_an_address_cannot_hold(name: str) -> None:
    """Clients remove ``.`` and ``..`` from an address before they send the request."""
    with pytest.raises(ValidationError, match="population"):
        JoinIn.model_validate({"population": name})


@pytest.mark.parametrize("name", ["a", ".a", "..a.", "-", "n" * 64])
def test_a_dataset_may_have_any_other_name_of_letters_digits_dots_and_dashes(
    name: str,
) -> None:
    assert JoinIn.model_validate({"population": name}).population == name
