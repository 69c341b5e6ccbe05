"""What a client accepts is read by names and weights."""

import pytest

from app.api.accepted import accepts


@pytest.mark.parametrize(
    ("field", "is_accepted"),
    [
        ("gzip", True),
        ("br;q=1.0, GZIP ; q=0.5", True),
        ("gzip;q=0.001", True),
        ("", False),
        ("identity", False),
        ("xgzip", False),
        ("gzip;q=0", False),
        ("br, gzip; Q=0.000 , identity", False),
    ],
)
def test_a_value_is_accepted_by_its_name_and_its_weight(
    field: str, is_accepted: bool
) -> None:
    assert accepts(field, "gzip") is is_accepted
