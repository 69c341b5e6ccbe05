"""Tests the times that requests state."""

from datetime import UTC, datetime

import pytest

from app.core import stamps


@pytest.mark.parametrize(
    "text",
    [
        "2027-01-31T12:00:00Z",
        "2027-01-31T12:00:00.000000+00:00",
        "2027-01-31T14:00:00.0+02:00",
    ],
)
def test_a_time_with_a_zone_is_read(text: str) -> None:
    assert stamps.from_rfc_3339(text) == datetime(2027, 1, 31, 12, tzinfo=UTC)


def test_of_nanoseconds_whole_microseconds_count() -> None:
    expected = datetime(2027, 1, 31, 12, 0, 0, 123456, tzinfo=UTC)
    for text in (
        "2027-01-31T12:00:00.123456789Z",
        "2027-01-31T12:00:00.1234569+00:00",
        "2027-01-31T12:00:00.123456Z",
    ):
        assert stamps.from_rfc_3339(text) == expected


@pytest.mark.parametrize(
    "text",
    [
        "", "2027-01-31", "2027-01-31T12:00:00", "2027-01-31 12:00:00Z", "2027-02-30T12:00:00Z", "2027-01-31T24:00:00Z",
        "2027-01-31T12:00:60Z", "2027-01-31T12:00:00.0000000001Z", "20270131T120000Z", "2027-01-31T12:00:00+0200",
        "٢027-01-31T12:00:00Z", "2027-01-31T12:00:00Z\n", "0001-01-01T00:00:00+01:00", "9999-12-31T23:59:59-01:00",
        "2027-01-31T12:00:00+99:00",
    ],
)  # fmt: skip
def test_another_text_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match=r"."):
        stamps.from_rfc_3339(text)
