"""Names that other people's terminals print."""

import pytest
from pydantic import ValidationError

from app.wire.keys import KeyIn
from app.wire.training import TrainIn

JOB = {"dataset": "census", "algorithm": "mrf", "epsilon": "1"}


@pytest.mark.parametrize("character", ["\x1b", "\x7f", "\x9b", "\u2028", "\u202a", "\u202e", "\u2066", "\u2069"])
def test_a_terminal_obeys_no_name(character: str) -> None:
    """U+009B begins a control sequence as ESC [ does."""
    with pytest.raises(ValidationError, match="name"):
        KeyIn.model_validate({"name": f"a{character}31m", "roles": []})
    with pytest.raises(ValidationError, match="name"):
        TrainIn.model_validate(JOB | {"name": f"a{character}31m"})


def test_names_are_of_any_language() -> None:
    assert TrainIn.model_validate(JOB | {"name": "forêt 森 №1"}).name == "forêt 森 №1"
