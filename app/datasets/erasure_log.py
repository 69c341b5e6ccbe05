"""Records erasures outside the database and the home, so that a restore applies them again to an older backup.

::

    <heads>/erasures/<dataset id>.dataset             the dataset was deleted; an empty file
    <heads>/erasures/<dataset id>.<epoch id>.upload   one upload was erased; an empty file
    <heads>/erasures/<dataset id>.<random>.unit       one unit was erased from the first uploads; JSON

A record of a unit has its row id, which is a keyed digest, encrypted with the dataset's data key. So it says nothing to
anybody who does not have a wrapped data key, the storage key and the folder together, and nothing at all once the data
key is destroyed. A record is durable before an erasure is answered.
"""

import json
import secrets
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass

from app.core.data_keys import DataKey
from app.core.stores import Store, StoredFile

_FOLDER = "erasures"
_DATASET, _UPLOAD, _UNIT = ".dataset", ".upload", ".unit"
_PURPOSE = b"grovekeeper/erased-unit/1"


@dataclass(frozen=True)
class ErasedUnit:
    """One erasure of a unit.

    Attributes:
        row_id: PRIVATE; the row id of the unit.
        last_upload: ordinal of the newest upload at the time; later rows of the unit were not erased.
    """

    row_id: bytes
    last_upload: int


class ErasureLog:
    """The erasures of an installation; several machines may share it.

    Args:
        store: of the heads.
    """

    def __init__(self, store: Store) -> None:
        self._store = store

    def record_dataset(self, dataset_id: str) -> None:
        """Records durably that a dataset was deleted, and forgets what was erased of it before. Safe to repeat."""
        self._write(f"{dataset_id}{_DATASET}", b"")
        for kind in (_UPLOAD, _UNIT):
            for name in self._named(dataset_id, kind):
                self._store.delete(f"{_FOLDER}/{name}")

    def record_upload(self, dataset_id: str, epoch_id: str) -> None:
        """Records durably that an upload was erased. Safe to repeat."""
        self._write(f"{dataset_id}.{epoch_id}{_UPLOAD}", b"")

    def record_unit(self, dataset_id: str, unit: ErasedUnit, *, key: DataKey) -> None:
        """Records durably that a unit was erased. ``key`` is the data key of the dataset."""
        value = {"last_upload": unit.last_upload, "row_id": key.seal(unit.row_id, purpose=_PURPOSE).hex()}
        self._write(f"{dataset_id}.{secrets.token_hex(8)}{_UNIT}", json.dumps(value).encode("ascii"))

    def is_deleted(self, dataset_id: str) -> bool:
        """Whether a dataset was deleted."""
        return f"{dataset_id}{_DATASET}" in self._named(dataset_id, _DATASET)

    def uploads(self, dataset_id: str) -> set[str]:
        """Ids of the erased uploads of a dataset."""
        names = self._named(dataset_id, _UPLOAD)
        return {name.removeprefix(f"{dataset_id}.").removesuffix(_UPLOAD) for name in names}

    def units(self, dataset_id: str, *, key: DataKey) -> Iterator[ErasedUnit]:
        """The erased units of a dataset.

        Raises:
            SealBroken: a record is damaged, or of another data key.
        """
        for name in self._named(dataset_id, _UNIT):
            with suppress(FileNotFoundError):  # the dataset is being deleted
                value = json.loads(StoredFile(self._store, f"{_FOLDER}/{name}").read_bytes())
                yield ErasedUnit(key.open(bytes.fromhex(value["row_id"]), purpose=_PURPOSE), value["last_upload"])

    def _write(self, name: str, content: bytes) -> None:
        with self._store.new(f"{_FOLDER}/{name}", existing="keep") as file:
            file.write(content)

    def _named(self, dataset_id: str, ending: str) -> list[str]:
        """Names of the records of one kind about a dataset."""
        names = (file.basename for file in self._store.files(_FOLDER))
        return sorted(name for name in names if name.startswith(f"{dataset_id}.") and name.endswith(ending))
