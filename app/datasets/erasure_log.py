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
from pathlib import Path

from app.core import durable
from app.core.data_keys import DataKey

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
        folder: of the heads; made by the first use.
    """

    def __init__(self, folder: Path) -> None:
        self._folder = folder / _FOLDER

    def record_dataset(self, dataset_id: str) -> None:
        """Records durably that a dataset was deleted, and forgets what was erased of it before. Safe to repeat."""
        durable.make_folder(self._folder)
        durable.write(self._folder / f"{dataset_id}{_DATASET}", b"")
        for kind in (_UPLOAD, _UNIT):
            for file in self._folder.glob(f"{dataset_id}.*{kind}"):
                file.unlink(missing_ok=True)

    def record_upload(self, dataset_id: str, epoch_id: str) -> None:
        """Records durably that an upload was erased. Safe to repeat."""
        durable.make_folder(self._folder)
        durable.write(self._folder / f"{dataset_id}.{epoch_id}{_UPLOAD}", b"")

    def record_unit(self, dataset_id: str, unit: ErasedUnit, *, key: DataKey) -> None:
        """Records durably that a unit was erased. ``key`` is the data key of the dataset."""
        value = {"last_upload": unit.last_upload, "row_id": key.seal(unit.row_id, purpose=_PURPOSE).hex()}
        durable.make_folder(self._folder)
        name = f"{dataset_id}.{secrets.token_hex(8)}{_UNIT}"
        durable.write(self._folder / name, json.dumps(value).encode("ascii"))

    def is_deleted(self, dataset_id: str) -> bool:
        """Whether a dataset was deleted."""
        return (self._folder / f"{dataset_id}{_DATASET}").exists()

    def uploads(self, dataset_id: str) -> set[str]:
        """Ids of the erased uploads of a dataset."""
        names = (file.name for file in self._folder.glob(f"{dataset_id}.*{_UPLOAD}"))
        return {name.removeprefix(f"{dataset_id}.").removesuffix(_UPLOAD) for name in names}

    def units(self, dataset_id: str, *, key: DataKey) -> Iterator[ErasedUnit]:
        """The erased units of a dataset.

        Raises:
            SealBroken: a record is damaged, or of another data key.
        """
        for file in sorted(self._folder.glob(f"{dataset_id}.*{_UNIT}")):
            with suppress(FileNotFoundError):  # the dataset is being deleted
                value = json.loads(file.read_bytes())
                yield ErasedUnit(key.open(bytes.fromhex(value["row_id"]), purpose=_PURPOSE), value["last_upload"])
