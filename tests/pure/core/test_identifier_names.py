"""Names of columns that look like identifiers; no cell is looked at."""

import pytest

from grovekeeper_common.identifier_names import looks_like_identifier, warnings_of


@pytest.mark.parametrize(
    "name",
    [
        "id", "ID", "patient_id", "patientId", "PatientID", "Patient ID", "user.uuid", "ssn", "SSN", "MRN",
        "hospital mrn",
        "email", "passport_no", "Customer Number", "social security number", "case-nr", "PID", "phone number", "IBAN",
        "patientid", "userid", "PATIENTID", "email_address", "e_mail", "E-Mail", "phone", "home_phone", "passport",
        "id_number", "nhs_number", "full_name", "last name", "tax_id", "record_id", "participantID",
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
        "region_id", "site_id", "race_id", "drug_id", "product_id", "has_email", "has_phone", "is_user_id",
        "has_passport", "name", "street_name", "e_number",
    ],
)  # fmt: skip
def test_other_names(name: str) -> None:
    assert not looks_like_identifier(name)


def test_the_sentence_lists_a_few_names_and_what_to_do() -> None:
    names = ["age", *(f"user{number}_id" for number in range(7))]
    (sentence,) = warnings_of(names, unit=None)
    assert "user0_id, user1_id, user2_id, user3_id, user4_id and 2 more" in sentence
    assert "--unit" in sentence
    assert "in a new declaration" not in sentence
    (sentence,) = warnings_of(names, unit=None, is_declared=True)
    assert "privacy unit in a new declaration (" in sentence
    (sentence,) = warnings_of(names, unit="person")
    assert "--unit" not in sentence
    assert "If it names single people" in sentence, "it may be no identifier"
    assert not warnings_of(["age"], unit=None)
