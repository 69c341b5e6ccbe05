"""Proves what an account's chain was: Merkle roots over its entries, signed as
checkpoints, kept outside the database.

**Roots and proofs** (RFC 6962). Whenever an entry completes a subtree of 2⁸, 2¹⁶, …
leaves, the subtree's hash is stored in the same transaction. A root or a proof over any
number of entries then reads at most 255 rows of each height. Stored hashes are a
function of the entries, and append-only like them. The functions combine hashes of
complete subtrees, which the caller supplies: ``subtree(height, position)`` is the hash
over the ``2**height`` leaves from leaf ``position * 2**height`` on. Leaves are counted
from 0.

**Checkpoints** state the size and root of an account's log. The form is that of
transparency logs (C2SP ``tlog-checkpoint`` in a C2SP ``signed-note``), so that tools
for transparency logs read it: a line that names the log, the number of entries, the
root in base64, the time; an empty line; and a line with the Ed25519 signature over
everything before the empty line, its end included. The signers' public keys stand in
the database, where a forged head cannot reach them.

**Heads** are the newest checkpoints, in files outside the database. A database that was
restored from an older backup has fewer entries than a head states, or other entries, so
the restore is noticed. A head is written after the commit of the entries that it
covers. So an intact database is never behind a head, even if a process is killed.

::

    <account id>.<number of entries>.checkpoint    a head; the one with the most entries counts
    <account id>.checkpoint                        a head that another version wrote, or that an operator brought
    <account id>.<number of entries>.lost          a head that was set aside

No file is written twice, so processes and machines write heads without a lock, and none
replaces a newer head.
"""

import base64
import hashlib
import logging
import re
from collections import defaultdict
from collections.abc import (
    Callable,
    Collection,
    Iterable,
    Iterator,
    Mapping,
    Sequence,
)
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

from cryptography.exceptions import InvalidSignature, UnsupportedAlgorithm
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric.ed25519 import (
    Ed25519PrivateKey,
    Ed25519PublicKey,
)
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.kdf.hkdf import HKDF
from sqlalchemy import select
from sqlalchemy.orm import Session

from app.core import files, stamps
from app.core.errors import HeadNotSigned, InstallationError, LedgerRewound
from app.core.files import Store, StoredFile
from app.db.database import transaction_time
from app.ledger.tables import BlockRow, EntryRow, SignerRow
from grovekeeper_common import durable_files

Subtree = Callable[[int, int], bytes]

EMPTY_ROOT = hashlib.sha256(b"").digest()
STEP = 8
"""Subtrees are stored at heights that are multiples of this."""
KEY_NAME = "grovekeeper"
_ED25519 = b"\x01"
_TEXT = re.compile(
    r"(?P<origin>[^\n]+)\n(?P<size>[1-9][0-9]{0,17})\n(?P<root>[A-Za-z0-9+/]{43}=)\n(?P<at>[^\n]+)\n"
    r"(?:erasures (?P<erasures>[0-9]{1,18})\n)?\n— [^\n]+\n"
)
_SUFFIX = ".checkpoint"
_PROBE = "writable"
_READ_AT_ONCE = 8

_log = logging.getLogger(__name__)


def leaf(entry_hash: str) -> bytes:
    """The leaf hash of an entry's hash, with the prefix that separates leaves from
    nodes.
    """
    return hashlib.sha256(b"\x00" + bytes.fromhex(entry_hash)).digest()


def node(left: bytes, right: bytes) -> bytes:
    """The hash of the parent of two neighbours."""
    return hashlib.sha256(b"\x01" + left + right).digest()


def fold(hashes: Sequence[bytes]) -> bytes:
    """The root over neighbours of one height; their number is a power of two."""
    level = list(hashes)
    assert level, "a complete subtree has leaves"
    assert len(level).bit_count() == 1, (
        "the number of leaves of a complete subtree is a power of two"
    )
    while len(level) > 1:
        level = [
            node(level[index], level[index + 1]) for index in range(0, len(level), 2)
        ]
    return level[0]


def root_of(size: int, subtree: Subtree) -> bytes:
    """The root over the first ``size`` leaves."""
    return _range(0, size, subtree) if size else EMPTY_ROOT


def inclusion(index: int, size: int, subtree: Subtree) -> list[bytes]:
    """The audit path of RFC 6962, 2.1.1: from leaf ``index`` to the root over ``size``
    leaves.
    """
    assert 0 <= index < size, "the leaf is in the tree"
    return _path(index, 0, size, subtree)


def consistency(first: int, second: int, subtree: Subtree) -> list[bytes]:
    """The proof of RFC 6962, 2.1.2, that the tree of ``second`` leaves begins with the
    tree of ``first`` leaves.
    """
    assert 0 < first <= second, "the earlier tree is not larger"
    return _subproof(first, 0, second, subtree, is_whole=True)


def _split(low: int, high: int) -> int:
    """Where RFC 6962 splits a range: after the largest power of two that is smaller
    than its length.
    """
    return low + (1 << ((high - low - 1).bit_length() - 1))


def _range(low: int, high: int, subtree: Subtree) -> bytes:
    length = high - low
    if length.bit_count() == 1:
        height = length.bit_length() - 1
        return subtree(height, low >> height)
    middle = _split(low, high)
    return node(_range(low, middle, subtree), _range(middle, high, subtree))


def _path(index: int, low: int, high: int, subtree: Subtree) -> list[bytes]:
    if high - low == 1:
        return []
    middle = _split(low, high)
    if index < middle:
        return [*_path(index, low, middle, subtree), _range(middle, high, subtree)]
    return [*_path(index, middle, high, subtree), _range(low, middle, subtree)]


def _subproof(
    first: int, low: int, high: int, subtree: Subtree, *, is_whole: bool
) -> list[bytes]:
    """``is_whole``: the range up to ``high`` is the earlier tree, whose root the reader
    has.
    """
    if first == high:
        return [] if is_whole else [_range(low, high, subtree)]
    middle = _split(low, high)
    if first <= middle:
        return [
            *_subproof(first, low, middle, subtree, is_whole=is_whole),
            _range(middle, high, subtree),
        ]
    return [
        *_subproof(first, middle, high, subtree, is_whole=False),
        _range(low, middle, subtree),
    ]


@dataclass(frozen=True)
class Log:
    """The Merkle tree of one account, read within one transaction."""

    session: Session
    account_id: str

    def root(self, size: int) -> bytes:
        """The root over the first ``size`` entries, with the last leaves from the
        entries.

        Somebody who may change entries and not the stored hashes could rewrite all
        entries below a stored hash. The chain fixes the entries before the last one, so
        it is enough to read its block.
        """
        return root_of(
            size, lambda height, position: self._read(height, position, size)
        )

    def inclusion(self, sequence: int, size: int) -> list[bytes]:
        """The inclusion proof of the entry with a sequence in the first ``size``
        entries.
        """
        return inclusion(sequence - 1, size, self.subtree)

    def consistency(self, first: int, second: int) -> list[bytes]:
        """The proof that the log of ``first`` entries is a prefix of the log of
        ``second`` entries.
        """
        return consistency(first, second, self.subtree)

    def subtree(self, height: int, position: int) -> bytes:
        """The hash of a complete subtree, folded from the next lower stored height."""
        stored = height - height % STEP
        return self._fold(stored, height, position)

    def _read(self, height: int, position: int, size: int) -> bytes:
        """The hash of a subtree. Above the last of ``size`` leaves, no stored hash is
        believed.
        """
        if (position + 1) << height < size:
            return self.subtree(height, position)
        if height <= STEP:
            return self._fold(0, height, position)
        return node(
            self.subtree(height - 1, 2 * position),
            self._read(height - 1, 2 * position + 1, size),
        )

    def _fold(self, stored: int, height: int, position: int) -> bytes:
        """The subtree of ``height`` at ``position``, from the hashes of height
        ``stored`` below it.
        """
        width = 1 << (height - stored)
        low, high = position * width, (position + 1) * width
        if stored:
            hashes = self._blocks(stored, low, high)
        else:
            hashes = self._leaves(low, high)
        assert len(hashes) == width, "a complete subtree has all its parts"
        return fold(hashes)

    def _blocks(self, height: int, low: int, high: int) -> list[bytes]:
        query = (
            select(BlockRow.hash)
            .where(BlockRow.account_id == self.account_id, BlockRow.height == height)
            .where(BlockRow.position >= low, BlockRow.position < high)
            .order_by(BlockRow.position)
        )
        return list(map(bytes.fromhex, self.session.execute(query).scalars()))

    def _leaves(self, low: int, high: int) -> list[bytes]:
        query = (
            select(EntryRow.hash)
            .where(
                EntryRow.account_id == self.account_id,
                EntryRow.sequence > low,
                EntryRow.sequence <= high,
            )
            .order_by(EntryRow.sequence)
        )
        return list(map(leaf, self.session.execute(query).scalars()))

    def complete(self, sequence: int) -> None:
        """Stores the subtrees that the newest entry, which is flushed, completes."""
        height = STEP
        while sequence % (1 << height) == 0:
            position = (sequence >> height) - 1
            digest = self._fold(height - STEP, height, position)
            self.session.add(
                BlockRow(
                    account_id=self.account_id,
                    height=height,
                    position=position,
                    hash=digest.hex(),
                )
            )
            self.session.flush()
            height += STEP


@dataclass(frozen=True)
class Checkpoint:
    """The head of an account's log at one time.

    Attributes:
        account_id: of the log.
        size: number of entries.
        root: Merkle root over these entries.
        at: RFC 3339 time of signing.
        erasures: only in heads of the control chain that are kept beside the database:
            how many records of erasures stand beside the head.
    """

    account_id: str
    size: int
    root: bytes
    at: str
    erasures: int | None = None

    def text(self) -> str:
        """The lines that are signed."""
        lines = [
            origin(self.account_id),
            str(self.size),
            base64.b64encode(self.root).decode("ascii"),
            self.at,
        ]
        if self.erasures is not None:
            lines.append(f"erasures {self.erasures}")
        return "".join(f"{line}\n" for line in lines)


def origin(account_id: str) -> str:
    """The name of an account's log in notes and proofs."""
    return f"grovekeeper/ledger/{account_id}"


class Signer:
    """An Ed25519 key pair that signs checkpoints."""

    def __init__(self, key: Ed25519PrivateKey) -> None:
        self._key = key
        public = key.public_key()
        raw = public.public_bytes(
            serialization.Encoding.Raw, serialization.PublicFormat.Raw
        )
        self._key_hash = hashlib.sha256(
            KEY_NAME.encode() + b"\n" + _ED25519 + raw
        ).digest()[:4]
        self.public_pem = public.public_bytes(
            serialization.Encoding.PEM, serialization.PublicFormat.SubjectPublicKeyInfo
        ).decode("ascii")
        encoded = base64.b64encode(_ED25519 + raw).decode("ascii")
        self.verifier_key = f"{KEY_NAME}+{self._key_hash.hex()}+{encoded}"

    @classmethod
    def open(cls, file: Path, *, make: bool) -> "Signer":
        """Reads a key, PKCS #8 in PEM.

        Args:
            file: the key file.
            make: whether to make a key, readable by its owner only, if the file does
                not exist. If several processes make a key at once, one process makes it
                and the others read it.

        Raises:
            InstallationError: the file does not exist or holds no Ed25519 key.
        """
        if make and not file.exists():
            _make_key(file)
        try:
            key = serialization.load_pem_private_key(file.read_bytes(), password=None)
        except OSError:
            raise InstallationError(f"the signing key {file} cannot be read") from None
        except (ValueError, TypeError, UnsupportedAlgorithm):
            raise InstallationError(
                f"{file} holds no private key in PEM without a password"
            ) from None
        if not isinstance(key, Ed25519PrivateKey):
            raise InstallationError(f"the key in {file} is not an Ed25519 key")
        return cls(key)

    def derived(self, purpose: bytes) -> bytes:
        """A secret of 32 bytes for one purpose, the same on every machine that has this
        key.
        """
        private = self._key.private_bytes_raw()
        return HKDF(algorithm=SHA256(), length=32, salt=None, info=purpose).derive(
            private
        )

    def sign(self, checkpoint: Checkpoint) -> str:
        """The signed note of a checkpoint."""
        return self.sign_text(checkpoint.text())

    def sign_text(self, text: str) -> str:
        """The signed note of lines whose first line states their purpose, unlike that
        of any other note.
        """
        signature = base64.b64encode(
            self._key_hash + self._key.sign(text.encode("utf-8"))
        ).decode("ascii")
        return f"{text}\n— {KEY_NAME} {signature}\n"


def read_checkpoint(account_id: str, note: str) -> Checkpoint | None:
    """The checkpoint in a note, whose signature is not checked; ``None`` if the note is
    not of this account's log.
    """
    match = _TEXT.fullmatch(note)
    if match is None or match["origin"] != origin(account_id):
        return None
    erasures = None if match["erasures"] is None else int(match["erasures"])
    return Checkpoint(
        account_id,
        int(match["size"]),
        base64.b64decode(match["root"]),
        match["at"],
        erasures,
    )


def is_signed(note: str, verifier_keys: Collection[str]) -> bool:
    """Whether a note has a valid signature of one of the keys over everything before
    the signature.
    """
    text, _, line = note.rpartition("\n— ")
    try:
        signature = base64.b64decode(
            line.rpartition(" ")[2].rstrip("\n"), validate=True
        )
    except ValueError:
        return False
    return any(_verifies(key, signature, text.encode("utf-8")) for key in verifier_keys)


def _verifies(verifier_key: str, signature: bytes, text: bytes) -> bool:
    _, key_hash, encoded = verifier_key.split("+", 2)
    key = Ed25519PublicKey.from_public_bytes(
        base64.b64decode(encoded).removeprefix(_ED25519)
    )
    try:
        key.verify(signature[4:], text)
    except InvalidSignature:
        return False
    return signature[:4].hex() == key_hash


def _make_key(file: Path) -> None:
    pem = Ed25519PrivateKey.generate().private_bytes(
        serialization.Encoding.PEM,
        serialization.PrivateFormat.PKCS8,
        serialization.NoEncryption(),
    )
    durable_files.write(
        file, pem, existing="keep"
    )  # the first of several processes wins


def pinned_keys(session: Session) -> list[str]:
    """The verifier keys of all signers, the present signer last; empty before the first
    start.
    """
    return list(
        session.scalars(select(SignerRow.verifier_key).order_by(SignerRow.ordinal))
    )


def pin_key(session: Session, verifier_key: str, *, after: Sequence[str]) -> None:
    """Makes a key the present signer's. ``after``: the pinned keys, as the caller read
    them.
    """
    session.add(
        SignerRow(
            ordinal=len(after) + 1,
            verifier_key=verifier_key,
            pinned_at=transaction_time(session),
        )
    )
    session.flush()


class HeadFolder:
    """The heads of an installation; several machines may share them.

    Args:
        store: of heads alone.
        signers: verifier keys whose signatures are believed.
    """

    def __init__(self, store: Store, signers: Collection[str]) -> None:
        self._store = store
        self._signers = signers
        self._names: dict[str, dict[str, int]] = defaultdict(dict)
        """Names of known heads by account, with their number of entries."""

    def read_all(self) -> list[Checkpoint]:
        """The newest head of every account.

        Raises:
            InstallationError: a file in the folder is not a head (the file is damaged,
                or the folder belongs to another program), or no head can be written
                there, so that a restore would go unnoticed; or the store replaces files
                that it was asked to refuse, so that machines could replace each other's
                heads and keys.
            HeadNotSigned: a head has no valid signature of a signer.
            LedgerRewound: two heads state different histories of an account.
        """
        newest: dict[str, Checkpoint] = {}
        for name, head in self._read_files().items():
            self._names[head.account_id][name] = head.size
            other = newest.setdefault(head.account_id, head)
            if other.size == head.size and other.root != head.root:
                raise LedgerRewound(head.account_id)
            if other.size < head.size:
                newest[head.account_id] = head
        return [newest[account_id] for account_id in sorted(newest)]

    def _probe(self) -> None:
        """Writes an empty file, twice if it is new: the store has to refuse the second
        one, as it has to for heads.
        """
        for _ in range(2):
            try:
                with self._store.new(_PROBE, existing="refuse"):
                    pass  # the file stays empty
            except FileExistsError:
                return
        raise InstallationError(
            "the store replaces files; it has to support conditional writes (If-None-Match)"
        )

    def _read_files(self) -> dict[str, Checkpoint]:
        """The heads of all files by name; see :meth:`read_all`.

        A listing may miss what is written meanwhile, so there are two. Further ones look
        only for heads of accounts whose newest file was gone: beside busy writers a reader that
        waits for a listing without a change would never end.
        """
        heads = self._read_at_once(self._listed())
        heads |= self._read_at_once(self._listed() - heads.keys())
        while overtaken := _overtaken(heads):
            unread = self._listed() - heads.keys()
            newer = self._read_at_once(
                name for name in unread if _account_of(name) in overtaken
            )
            if not newer:
                break  # an operator removed the files
            heads |= newer
        return {name: head for name, head in heads.items() if head is not None}

    def _listed(self) -> set[str]:
        try:
            self._probe()
            return set(_names_in(self._store))
        except OSError as error:
            raise InstallationError(
                f"heads cannot be kept: {files.why(error)}"
            ) from None

    def _read_at_once(self, names: Iterable[str]) -> dict[str, Checkpoint | None]:
        names = sorted(names)
        try:
            with ThreadPoolExecutor(_READ_AT_ONCE) as pool:
                return dict(zip(names, pool.map(self._read, names), strict=True))
        except OSError as error:
            raise InstallationError(
                f"heads cannot be read: {files.why(error)}"
            ) from None

    def write(self, checkpoint: Checkpoint, note: str) -> None:
        """Writes a head durably, and then removes older heads of the account.

        Raises:
            OSError: the folder cannot be written, or an older head cannot be read; a
                repetition completes the call.
        """
        name = f"{checkpoint.account_id}.{checkpoint.size}{_SUFFIX}"
        with self._store.new(name, existing="keep") as file:
            file.write(note.encode("utf-8"))
        known = self._names[checkpoint.account_id]
        known[name] = checkpoint.size
        for older in [
            known_name for known_name, size in known.items() if size < checkpoint.size
        ]:
            try:
                self._read(older)
                self._store.delete(older)
            except InstallationError:  # the head stays as evidence
                _log.error(
                    "a head is damaged or forged; the next start refuses it",
                    extra={"account_id": checkpoint.account_id},
                )
            del known[older]

    def set_aside(self, head: Checkpoint) -> None:
        """Renames the files of an account whose entries were lost for good, as evidence
        that no comparison reads.

        Raises:
            OSError: the folder cannot be written.
        """
        for name, size in self._names.pop(head.account_id).items():
            content = StoredFile(self._store, name).read_bytes()
            with self._store.new(
                f"{head.account_id}.{size}.lost", existing="keep"
            ) as file:
                file.write(content)
            self._store.delete(name)

    def _read(self, name: str) -> Checkpoint | None:
        """A head; ``None`` if another process has just replaced it by a newer one.

        Raises:
            InstallationError: see :meth:`read_all`.
            HeadNotSigned: see :meth:`read_all`.
            OSError: the store does not answer.
        """
        account_id = _account_of(name)
        try:
            note = files.note_text(StoredFile(self._store, name).read_bytes())
        except FileNotFoundError:
            return None
        head = read_checkpoint(account_id, note)
        not_ours = InstallationError(
            f"{name} is not a head that this program wrote; see the operator's guide"
        )
        if head is None or not stamps.is_reference(account_id):
            raise not_ours
        if not is_signed(note, self._signers):
            raise HeadNotSigned(name)
        if name not in (f"{account_id}{_SUFFIX}", f"{account_id}.{head.size}{_SUFFIX}"):
            raise not_ours
        return head


def has_any(store: Store) -> bool:
    """Whether a store has a head.

    Raises:
        InstallationError: the store does not answer.
    """
    try:
        return any(_names_in(store))
    except OSError as error:
        raise InstallationError(f"heads cannot be read: {files.why(error)}") from None


def _account_of(name: str) -> str:
    return name.partition(".")[0]


def _size_in(name: str) -> int:
    """The number of entries in the name of a head; 0 if it has none."""
    number = name.partition(".")[2].partition(".")[0]
    return int(number) if number.isdecimal() else 0


def _overtaken(heads: Mapping[str, Checkpoint | None]) -> set[str]:
    """The accounts whose newest file was gone when it was read."""
    newest: dict[str, str] = {}
    for name in sorted(heads, key=_size_in):
        newest[_account_of(name)] = name
    return {account_id for account_id, name in newest.items() if heads[name] is None}


def _names_in(store: Store) -> Iterator[str]:
    return (
        file.name
        for file in store.files("")
        if file.name.endswith(_SUFFIX) and "/" not in file.name
    )
