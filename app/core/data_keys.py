"""Defines the data key of a dataset, and the storage keys that wrap data keys in the database.

A data key is 32 random bytes. Every use has a key of its own, derived with HKDF-SHA256 (RFC 5869), so that no two uses
share a nonce. A storage key never leaves its process; the database has data keys only as :meth:`StorageKeys.wrap`
returns them::

    version (1 byte) | id of the storage key (8) | nonce (12) | AES-256-GCM of the data key and its tag (48)
"""

import base64
import hashlib
import secrets
from collections.abc import Collection
from dataclasses import dataclass, field

from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.ciphers.aead import AESGCM
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.kdf.hkdf import HKDF

from app.core.errors import InstallationError

KEY_BYTES = 32
KEY_ID_BYTES = 8
_NONCE_BYTES = 12
_WRAP_VERSION = b"\x01"
_WRAP_DOMAIN = b"grovekeeper/data-key/1\0"
_STORAGE_KEY_ID = b"grovekeeper/storage-key-id/1\0"


class SealBroken(Exception):
    """Encrypted bytes are damaged, incomplete, of another place, or encrypted with another key. Says nothing else."""

    def __str__(self) -> str:
        return "encrypted bytes are damaged or belong elsewhere"


@dataclass(frozen=True)
class DataKey:
    """The key of everything that is stored about the rows of one dataset.

    Attributes:
        secret: 32 random bytes.
    """

    secret: bytes = field(repr=False)

    def __post_init__(self) -> None:
        assert len(self.secret) == KEY_BYTES, "a data key has 32 bytes"

    @classmethod
    def random(cls) -> "DataKey":
        """A key from the operating system's generator."""
        return cls(secrets.token_bytes(KEY_BYTES))

    def derived(self, purpose: bytes, *, salt: bytes | None = None, n_bytes: int = KEY_BYTES) -> bytes:
        """The secret of one use of the key.

        Args:
            purpose: a constant that names the use and its version.
            salt: random bytes that separate keys of the same use, such as the id of a file.
            n_bytes: length of the secret.
        """
        return HKDF(algorithm=SHA256(), length=n_bytes, salt=salt, info=purpose).derive(self.secret)

    def seal(self, text: bytes, *, purpose: bytes) -> bytes:
        """Encrypts a short text with the key of a purpose."""
        nonce = secrets.token_bytes(_NONCE_BYTES)
        return nonce + AESGCM(self.derived(purpose)).encrypt(nonce, text, None)

    def open(self, sealed: bytes, *, purpose: bytes) -> bytes:
        """Inverse of :meth:`seal`.

        Raises:
            SealBroken: the text is of another key or purpose, or damaged.
        """
        return _decrypted(self.derived(purpose), sealed, None)


class StorageKeys:
    """The keys of an installation that wrap data keys: the newest, and older keys during a rotation.

    Args:
        keys: the newest first.
    """

    def __init__(self, keys: Collection[bytes]) -> None:
        self._keys = {_storage_key_id(key): key for key in keys}
        self._newest = next(iter(self._keys))

    @classmethod
    def from_text(cls, text: str) -> "StorageKeys":
        """Reads keys in base64, separated by spaces or lines, the newest first.

        Raises:
            InstallationError: no key, or a text that is no key. The message does not show the text.
        """
        try:
            keys = [base64.b64decode(word, validate=True) for word in text.split()]
        except ValueError:
            keys = []
        if not keys or any(len(key) != KEY_BYTES for key in keys):
            raise InstallationError("a storage key is 32 random bytes in base64; see the operator's guide")
        return cls(keys)

    @staticmethod
    def new_text() -> str:
        """The text of one random key, as :meth:`from_text` reads it."""
        return base64.b64encode(secrets.token_bytes(KEY_BYTES)).decode("ascii") + "\n"

    @property
    def newest_id(self) -> str:
        """The public id of the newest key, hexadecimal."""
        return self._newest.hex()

    def wrap(self, key: DataKey, *, dataset_id: str) -> bytes:
        """Encrypts a data key with the newest storage key, for one dataset."""
        nonce = secrets.token_bytes(_NONCE_BYTES)
        sealed = AESGCM(self._keys[self._newest]).encrypt(nonce, key.secret, _wrap_context(self._newest, dataset_id))
        return _WRAP_VERSION + self._newest + nonce + sealed

    def unwrap(self, wrapped: bytes, *, dataset_id: str) -> DataKey:
        """Inverse of :meth:`wrap`.

        Raises:
            InstallationError: no storage key of this process wrapped the data key, or it belongs to another dataset.
        """
        key_id, sealed = _parts(wrapped)
        storage_key = self._keys.get(key_id)
        if storage_key is None:
            raise _unknown(key_id)
        try:
            return DataKey(_decrypted(storage_key, sealed, _wrap_context(key_id, dataset_id)))
        except SealBroken:
            raise InstallationError("the data key of a dataset is damaged; restore the database") from None

    def is_newest(self, wrapped: bytes) -> bool:
        """Whether the newest storage key wrapped a data key."""
        return _parts(wrapped)[0] == self._newest

    def require(self, wrapped: Collection[bytes]) -> None:
        """Checks that this process has the storage key of every data key.

        Raises:
            InstallationError: a storage key is missing.
        """
        for one in wrapped:
            key_id, _ = _parts(one)
            if key_id not in self._keys:
                raise _unknown(key_id)


def _parts(wrapped: bytes) -> tuple[bytes, bytes]:
    """The id of the storage key, and the nonce with the encrypted data key."""
    start = len(_WRAP_VERSION)
    return wrapped[start : start + KEY_ID_BYTES], wrapped[start + KEY_ID_BYTES :]


def _wrap_context(key_id: bytes, dataset_id: str) -> bytes:
    return _WRAP_DOMAIN + _WRAP_VERSION + key_id + dataset_id.encode("ascii")


def _decrypted(key: bytes, sealed: bytes, context: bytes | None) -> bytes:
    try:
        return AESGCM(key).decrypt(sealed[:_NONCE_BYTES], sealed[_NONCE_BYTES:], context)
    except (InvalidTag, ValueError):
        raise SealBroken from None


def _storage_key_id(key: bytes) -> bytes:
    return hashlib.sha256(_STORAGE_KEY_ID + key).digest()[:KEY_ID_BYTES]


def _unknown(key_id: bytes) -> InstallationError:
    return InstallationError(
        f"data keys in the database are wrapped with the storage key {key_id.hex()}, which this process does not have. "
        "Put the key back; without it the stored rows cannot be read"
    )
