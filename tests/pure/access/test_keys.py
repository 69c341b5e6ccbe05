"""Tests the forms of keys and of references."""

import pytest

from app.access.keys import NotAKey, split
from app.core import stamps

SECRET = "A" * 41 + "_-"


@pytest.mark.parametrize(
    "key", [f"abcd.{SECRET}", f"{'a' * 32}.{SECRET}", f"key_9z.{SECRET * 5}"]
)
def test_a_key_is_an_id_and_a_secret(key: str) -> None:
    assert split(key) == tuple(key.split("."))


@pytest.mark.parametrize(
    "key",
    [
        "", ".", "abcd", f"abc.{SECRET}", f"{'a' * 33}.{SECRET}", f"ABCD.{SECRET}", f"ab-d.{SECRET}",
        f"abcd.{SECRET[1:]}",
        f"abcd.{SECRET}\n", f"abcd.{SECRET} ", f"abcd.{SECRET}=", f"abcd.{SECRET}.x", f"äbcd.{SECRET}",
        f"abcd.{'é' * 43}",
        f"abcd.{'A' * 513}", f"abcd\x00.{SECRET}", f"٣bcd.{SECRET}",
    ],
)  # fmt: skip
def test_a_text_of_another_form_is_refused(key: str) -> None:
    with pytest.raises(NotAKey):
        split(key)


def test_ids_and_names_are_references_and_other_texts_are_not() -> None:
    assert all(
        stamps.is_reference(stamps.new(prefix))
        for prefix in (
            stamps.DATASET,
            stamps.JOB,
            stamps.KEY,
            stamps.MODEL,
            stamps.EPOCH,
        )
    )
    assert all(map(stamps.is_reference, ("a", "A.b_c-9", "x" * 64)))
    assert not any(
        map(
            stamps.is_reference,
            ("", "x" * 65, "a b", "a\x00", "a\n", "é", "٣", "a/b", "%41"),
        )
    )
