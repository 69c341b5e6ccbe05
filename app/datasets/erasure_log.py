"""Records erasures outside the database and the home, so that a restore applies them
again to an older backup.

::

    <heads>/erasures/<dataset id>.dataset             the dataset was deleted
    <heads>/erasures/<dataset id>.<epoch id>.upload   one upload was erased
    <heads>/erasures/<dataset id>.<record id>.unit    one unit was erased from the first uploads

A record is a signed note: a line that states its purpose, its own name, and facts as
JSON. A file that nobody signed, or that has the content of another record, is no
record. A record of a unit has its row id, which is a keyed digest, encrypted with the
dataset's data key. So it says nothing to anybody who does not have a wrapped data key,
the storage key and the folder together, and nothing at all once the data key is
destroyed. A record is durable before an erasure is answered.
"""

import json
import re
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass

from app.core import files
from app.core.sealed_files import DataKey
from grovekeeper_common import durable_files
from grovekeeper_common.json_types import JsonObject
from grovekeeper_forests.kept import kept_property

FOLDER = "erasures"
UNIT = ".unit"
"""The end of the name of a record of a unit, which cannot be written again from the
control chain.
"""
_DATASET = ".dataset"
_UPLOAD = ".upload"
_FIRST_LINE = "grovekeeper/erasure/1"
_NOTE = re.compile(rf"{_FIRST_LINE}\n(?P<name>[^\n]+)\n(?P<facts>[^\n]+)\n\n— [^\n]+\n")
_PURPOSE = b"grovekeeper/erased-unit/1"
_READ_AT_ONCE = 8


@dataclass(frozen=True)
class ErasedUnit:
    """One erasure of a unit.

    Attributes:
        row_id: PRIVATE; the row id of the unit.
        last_upload: ordinal of the newest upload at the time; later rows of the unit
            were not erased.
    """

    row_id: bytes
    last_upload: int


def dataset_record(dataset_id: str) -> str:
    """The name of the record of a deleted dataset."""
    return f"{dataset_id}{_DATASET}"


def upload_record(dataset_id: str, epoch_id: str) -> str:
    """The name of the record of an erased upload."""
    return f"{dataset_id}.{epoch_id}{_UPLOAD}"


def unit_record(dataset_id: str, record_id: str) -> str:
    """The name of the record of an erased unit."""
    return f"{dataset_id}.{record_id}{UNIT}"


class ErasureLog:
    """The erasures of an installation, read once; several machines may share it.

    Args:
        store: of the heads.
    """

    def __init__(
        self,
        store: files.Store,
        *,
        sign: Callable[[str], str],
        is_signed: Callable[[str], bool],
    ) -> None:
        self._store = store
        self._sign = sign
        self._is_signed = is_signed

    def write(
        self,
        name: str,
        facts: JsonObject | None = None,
        *,
        existing: durable_files.Existing = "keep",
    ) -> None:
        """Writes a record durably. Safe to repeat."""
        # The name is signed, too: a copy under another name would erase other rows.
        text = json.dumps(facts or {}, sort_keys=True)
        note = self._sign(f"{_FIRST_LINE}\n{name}\n{text}\n")
        with self._store.new(f"{FOLDER}/{name}", existing=existing) as file:
            file.write(note.encode())

    def write_unit(self, name: str, unit: ErasedUnit, *, key: DataKey) -> None:
        """Writes the record of an erased unit durably. ``key`` is the data key of the
        dataset.
        """
        sealed = key.seal(unit.row_id, purpose=_PURPOSE)
        self.write(name, {"last_upload": unit.last_upload, "row_id": sealed.hex()})

    def is_deleted(self, dataset_id: str) -> bool:
        """Whether a dataset was deleted."""
        return dataset_record(dataset_id) in self.records

    def is_erased(self, dataset_id: str, epoch_id: str) -> bool:
        """Whether an upload of a dataset was erased."""
        return upload_record(dataset_id, epoch_id) in self.records

    def units(self, dataset_id: str, *, key: DataKey) -> Iterator[ErasedUnit]:
        """The erased units of a dataset.

        Raises:
            SealBroken: a record is of another data key.
        """
        for name, facts in sorted(self.records.items()):
            if name.startswith(f"{dataset_id}.") and name.endswith(UNIT):
                row_id = key.open(bytes.fromhex(facts["row_id"]), purpose=_PURPOSE)
                yield ErasedUnit(row_id, facts["last_upload"])

    @kept_property
    def records(self) -> dict[str, JsonObject]:
        """The facts of every signed record, by its name."""
        records = {}
        for name, content in self._files.items():
            facts = self._facts(name, content)
            if facts is not None:
                records[name] = facts
        return records

    @kept_property
    def unsigned(self) -> dict[str, bytes]:
        """The contents of all files that are no records, by their names. Earlier
        versions signed no record.
        """
        return {
            name: content
            for name, content in self._files.items()
            if name not in self.records
        }

    @kept_property
    def _files(self) -> dict[str, bytes]:
        names = [
            file.basename
            for file in self._store.files(FOLDER)
            if not file.name.endswith(durable_files.UNFINISHED)
        ]
        # an object store takes a round trip for each file
        with ThreadPoolExecutor(_READ_AT_ONCE) as pool:
            return dict(zip(names, pool.map(self._content, names), strict=True))

    def _content(self, name: str) -> bytes:
        return files.StoredFile(self._store, f"{FOLDER}/{name}").read_bytes()

    def _facts(self, name: str, content: bytes) -> JsonObject | None:
        note = files.note_text(content)
        match = _NOTE.fullmatch(note)
        if match is None or match["name"] != name or not self._is_signed(note):
            return None
        facts: JsonObject = json.loads(match["facts"])
        return facts
