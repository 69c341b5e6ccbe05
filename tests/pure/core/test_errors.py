"""The sentences of errors that the caller has to act on."""

from app.core.errors import PopulationMismatch, RoleMissing


def test_a_member_of_another_population_is_told_so() -> None:
    assert str(PopulationMismatch(["population"])).startswith(
        "the dataset belongs to another population"
    )
    assert str(PopulationMismatch(["delta", "privacy_unit"])).endswith(
        "differ in: delta, privacy unit"
    )


def test_a_missing_role_names_those_that_include_it() -> None:
    words = "this needs the role analyst, or a role that includes it; "
    assert str(RoleMissing(["analyst"])).startswith(words)
    words = "this needs the role admin; an admin can give it"
    assert str(RoleMissing(["admin"], is_global=True)) == words
