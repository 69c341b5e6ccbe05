"""The sentences of errors that the caller has to act on."""

from app.core.errors import PopulationMismatch


def test_a_member_of_another_population_is_told_so() -> None:
    assert str(PopulationMismatch(["population"])).startswith(
        "the dataset belongs to another population"
    )
    assert str(PopulationMismatch(["delta", "privacy_unit"])).endswith(
        "differ in: delta, privacy unit"
    )
