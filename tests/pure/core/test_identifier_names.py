"""Names of columns that look like identifiers; no cell is looked at."""

import pytest

from grovekeeper_common.identifier_names import looks_like_identifier, warnings_of


@pytest.mark.parametrize(
    "name",
    [
        "id", "ID", "patient_id", "patientId", "PatientID", "Patient ID", "user.uuid", "ssn", "SSN", "MRN",
        "hospital mrn",
        "email", "passport_no", "Customer Number", "social security number", "case-nr", "PID", "phone number", "IBAN",
    ],
)  # fmt: skip
def test_identifiers(name: str) -> None:
    assert looks_like_identifier(name)


@pytest.mark.parametrize(
    "name",
    [
        "age", "humid", "paid", "covid", "idle", "number_of_children", "case", "person", "id_type", "zip_code",
        "Zürich",
        "n_patients", "42", "", "insurance", "patient_age", "liquid", "key", "phone_type", "email_opt_in",
    ],
)  # fmt: skip
def test_other_names(name: str) -> None:
    assert not looks_like_identifier(name)


def test_the_sentence_lists_a_few_names_and_what_to_do() -> None:
    names = ["age", *(f"x{number}_id" for number in range(7))]
    (sentence,) = warnings_of(names, unit=None)
    assert "x0_id, x1_id, x2_id, x3_id, x4_id and 2 more" in sentence
    assert "--unit" in sentence
    (sentence,) = warnings_of(names, unit="person")
    assert "--unit" not in sentence
    assert not warnings_of(["age"], unit=None)
