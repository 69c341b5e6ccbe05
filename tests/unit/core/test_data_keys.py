import pytest

from app.core.errors import InstallationError
from app.core.sealed_files import DataKey, SealBroken, StorageKeys

KEY = DataKey(bytes(range(32)))


def test_a_wrapped_key_is_opened_for_its_dataset_alone() -> None:
    keys = StorageKeys.from_text(StorageKeys.new_text())
    wrapped = keys.wrap(KEY, dataset_id="ds_a")
    assert keys.unwrap(wrapped, dataset_id="ds_a") == KEY
    assert KEY.secret not in wrapped
    with pytest.raises(InstallationError, match="damaged"):
        keys.unwrap(wrapped, dataset_id="ds_b")


@pytest.mark.parametrize("place", [9, 20, 30, 68])
def test_a_damaged_wrapped_key_is_refused(place: int) -> None:
    keys = StorageKeys.from_text(StorageKeys.new_text())
    wrapped = bytearray(keys.wrap(KEY, dataset_id="ds_a"))
    wrapped[place] ^= 1
    with pytest.raises(InstallationError, match="damaged"):
        keys.unwrap(bytes(wrapped), dataset_id="ds_a")


def test_older_keys_open_and_the_first_key_wraps() -> None:
    old, new = StorageKeys.new_text(), StorageKeys.new_text()
    before, both, after = (StorageKeys.from_text(text) for text in (old, new + old, new))
    wrapped = before.wrap(KEY, dataset_id="ds_a")
    assert both.unwrap(wrapped, dataset_id="ds_a") == KEY
    assert not both.is_newest(wrapped)
    again = both.wrap(KEY, dataset_id="ds_a")
    assert both.is_newest(again)
    assert after.unwrap(again, dataset_id="ds_a") == KEY
    with pytest.raises(InstallationError, match=f"storage key {before.newest_id}, which this process does not have"):
        after.unwrap(wrapped, dataset_id="ds_a")
    with pytest.raises(InstallationError, match=before.newest_id):
        after.require([again, wrapped])
    both.require([again, wrapped])


@pytest.mark.parametrize("text", ["", " \n", "secret-text", "c2hvcnQ=", f"{'A' * 43}= c2hvcnQ="])
def test_a_text_that_is_no_key_is_refused_and_not_shown(text: str) -> None:
    with pytest.raises(InstallationError, match="32 random bytes in base64") as refusal:
        StorageKeys.from_text(text)
    assert not text.strip() or text.strip() not in str(refusal.value)


def test_every_use_has_another_secret() -> None:
    secrets = [
        KEY.derived(b"a"),
        KEY.derived(b"b"),
        KEY.derived(b"a", salt=b"1"),
        KEY.derived(b"a", salt=b"2"),
        KEY.secret,
    ]
    assert len(set(secrets)) == len(secrets)


def test_a_sealed_text_belongs_to_its_key_and_purpose() -> None:
    sealed = KEY.seal(b"text", purpose=b"p")
    assert KEY.open(sealed, purpose=b"p") == b"text"
    changes = [(DataKey(bytes(32)), b"p", sealed), (KEY, b"q", sealed), (KEY, b"p", sealed[:-1]), (KEY, b"p", b"")]
    for key, purpose, text in changes:
        with pytest.raises(SealBroken):
            key.open(text, purpose=purpose)


def test_keys_are_not_in_the_repr() -> None:
    text = StorageKeys.new_text()
    assert repr(KEY) == "DataKey()"
    assert text.strip() not in repr(StorageKeys.from_text(text))
