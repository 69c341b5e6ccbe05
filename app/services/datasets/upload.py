"""Serves ``POST /datasets/{id}/rows``: sanitises a file of rows and stores it as an
upload.
"""

import hmac
import shlex
from collections.abc import Iterable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext, suppress
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, BinaryIO
from urllib.parse import quote

from sqlalchemy.orm import Session

from app.access import grants
from app.access.idempotency import Answer, IdempotentRequest, once, stored
from app.core import limits, stamps
from app.core.errors import (
    CellsUnread,
    InvalidRequest,
    RowsInvalid,
    TooLarge,
    Unavailable,
    UnreadColumn,
    UploadEmpty,
    UploadRepeated,
)
from app.core.files import Directory
from app.core.sealed_files import DataKey
from app.datasets import admission, catalog, row_files
from app.datasets.upload_bodies import RFC_4180, BodyForm, Dialect
from app.ledger import kept_states, tables
from app.services.authorization import authorized_dataset, write_as
from app.services.installation import Installation
from app.wire.uploads import ColumnReport, DroppedRows, UploadOut
from grovekeeper_forests import limits as forest_limits

if TYPE_CHECKING:
    from app.datasets.ingest import IngestReport
    from app.datasets.row_layout import StoredUpload

_BODY_DIGEST = b"grovekeeper/upload-digest/1"
_BODY_FINGERPRINT = b"grovekeeper/upload-body/1"
_CELLS_KEY = b"grovekeeper/upload-cells/1"
_SENT_BEFORE = (
    "The rows of this body are those of upload {epoch}, which the same key sent before. They are stored twice, so each "
    "person in them counts twice, unless a unit column limits the rows of a person."
)
_SIMILAR = (
    "{count} values of the unit column differ from another value of this upload by leading zeros, case, the spelling "
    "of a number (17 and 17.0) or a spreadsheet's signs of a text (=\"17\" and '17) alone. Each is a unit of "
    "its own: a person who is spelt in two ways counts as two. If "
    "they are spellings of the same people, erase this upload and send it with one spelling."
)
_NOT_COMPARED = (
    "Values of the unit column were not compared for leading zeros, case and spellings of numbers: the upload has more "
    f"than {limits.MAX_COMPARED_UNIT_ROWS} rows."
)
_CROWDED = (
    "One value of the unit column has {count} rows beyond the bound, the first in row {row}; they were dropped. If the "
    "value stands for a missing id, they are other people's rows: erase this upload and send it with such cells empty. "
    "If the column names no people, declare another one."
)
_MARKS_STORED = (
    "{count} cells of {name} are no declared value, and some of them look like marks for missing values. If they are, "
    "erase this upload and send the file with --missing {quoted} (query parameter missing={encoded})."
)
_MANY_ROWS = 10
_PERCENT = 100
_LEAST_PERCENT = 0.1
_REPORT = b"grovekeeper/upload-report/1"
_FITS = Answer(204, b"")
"""The answer to a check."""


@dataclass(frozen=True)
class UploadTerms:
    """How the body of an upload is read.

    Attributes:
        dialect: how the file is written.
        again: the caller insists that the rows of an earlier upload are stored once
            more.
        accept_unknown: the caller accepts columns in which many cells are not as
            declared, and marks such as ``NA`` in the unit column, each of which is then
            one unit.
        accept_empty: the caller insists that a body without rows is stored.
        check: the body is only judged, as an upload would be, and nothing is stored.
        replaces: of a check, the upload that is erased before; its rows count as no
            earlier ones.
    """

    form: BodyForm
    dialect: Dialect = RFC_4180
    again: bool = False
    accept_unknown: bool = False
    accept_empty: bool = False
    check: bool = False
    replaces: str | None = None

    def __post_init__(self) -> None:
        if self.form.is_columnar and self.dialect.is_of_text:
            stated = next(
                name
                for name in ("separator", "decimal", "encoding")
                if getattr(self.dialect, name) != getattr(RFC_4180, name)
            )
            raise InvalidRequest.at(
                f"/{stated}",
                "for-csv-only",
                accepted=["missing, for a file of Parquet or Arrow"],
            )


@dataclass(frozen=True)
class SpooledBody:
    """The body of a request, received completely, in a spool; ``sha256`` is of the
    bytes as they arrived.
    """

    file: BinaryIO
    terms: UploadTerms
    sha256: bytes


def stored_uploads(
    installation: Installation, dataset: str, epochs: Iterable[str], *, key: DataKey
) -> "dict[str, StoredUpload]":
    """PRIVATE: see :func:`app.datasets.row_layout.stored_uploads`."""
    # pyarrow takes 0.2 s of CPU and 40 MB to import
    from app.datasets import row_layout

    return row_layout.stored_uploads(installation.files, dataset, epochs, key=key)


def upload_rows(
    installation: Installation,
    principal: grants.Principal,
    reference: str,
    body: SpooledBody,
    *,
    request: IdempotentRequest | None,
) -> Answer:
    """Sanitises and stores an upload, and adds it to the dataset; or only checks whether
    it would.

    The file of rows is complete and durable before the epoch is committed, and removed
    if the commit fails. The answer's status does not depend on rows of other uploads.
    Where the privacy unit is a column, uploads to one dataset run one after another,
    because their order decides which rows are admitted.

    Raises:
        UploadEmpty: the body has no row, and the caller does not insist; nothing was
            stored. Judged by the body alone: if it depended on the rows that are left
            after the bound of units, the public list of uploads would say something
            about the rows of other uploads.
        CellsUnread: many cells are not as declared, or the unit column has marks for
            missing values, and the caller does not accept that; nothing was stored.
        UploadRepeated: the same key sent the same rows before, in the same packing or
            another, and the caller does not insist; nothing was stored, and no place of
            a unit was taken.
        TooLarge: the file exceeds a public limit; nothing was stored.
        Unavailable: another upload to the dataset takes too long, or too many uploads
            are waiting; nothing was stored.
        BalanceMismatch: the dataset differs from what the first entry of its account
            states; nothing was stored.
    """
    keys = installation.storage_keys
    with installation.database.read() as session:
        # a revoked key gets no stored answer
        principal = grants.confirm(session, principal)
        dataset = authorized_dataset(
            session, principal, reference, grants.MANAGE_DATASET
        )
        account = tables.account(session, dataset.id)
        # the bound of a unit, the cells of a row
        kept_states.require_declared(session, account, dataset.facts)
        key = dataset.data_key(keys)
        # with a keyed digest of the body: nobody tests guesses of rows against the
        # database
        if request is not None:
            digest_of_bodies = key.derived(_BODY_DIGEST)
            keyed = hmac.digest(digest_of_bodies, request.body_sha256, "sha256")
            request = replace(request, body_sha256=keyed)
            earlier = stored(session, request)
            if earlier is not None:
                return _opened(earlier, key)
    with unless_erased(installation, dataset.id):
        if dataset.unit_column is None:
            upload = _Upload(installation, principal, dataset, key, book=None)
            return _opened(upload.run(body, request), key)
        with opened_book(installation, dataset, key) as book:
            upload = _Upload(installation, principal, dataset, key, book)
            return _opened(upload.run(body, request), key)


class _Upload:
    """One upload, from its file to the committed epoch."""

    def __init__(
        self,
        installation: Installation,
        caller: grants.Principal,
        dataset: catalog.Dataset,
        key: DataKey,
        book: admission.AdmissionBook | None,
    ) -> None:
        self._installation = installation
        self._caller = caller
        self._dataset = dataset
        self._key = key
        self._book = book
        self._epoch_id = stamps.new(stamps.EPOCH)
        self._before: list[str] = []
        self._earlier: dict[str, StoredUpload] = {}
        self._is_added = False

    def run(self, body: SpooledBody, request: IdempotentRequest | None) -> Answer:
        """Stores the rows, then commits the epoch; if the epoch is not committed,
        removes the rows.
        """
        if self._book is not None:
            self._begin(self._book)
        self._read_earlier()
        # the same request, sent twice at once, has ended meanwhile
        if request is not None and self._equal(body):
            with self._installation.database.read() as session:
                earlier = stored(session, request)
            if earlier is not None:
                return earlier
        if not body.terms.check:
            self._refuse_repeated(body)  # before the work
        report = self._read(body)
        try:
            self._require_fit(body, report)
            if body.terms.check:
                self._discard_unless_committed()
                return _sealed(_FITS, self._key)
            if self._book is not None:
                self._book.store()
            self._read_earlier()
            with self._acting() as session:
                reply = once(
                    session, request, lambda: self._add_epoch(session, body, report)
                )
                if self._book is not None and self._is_added:
                    self._book.commit()
        except BaseException:
            self._discard_unless_committed()
            raise
        if not self._is_added:
            row_files.erase_epoch(
                self._installation.files, self._dataset.id, self._epoch_id
            )
        elif self._book is not None:
            self._book.forget_older()
        return reply

    def _read(self, body: SpooledBody) -> "IngestReport":
        """Stores the rows; a refusal names all that would be refused, too, if the rest
        could be read.
        """
        try:
            return self._ingest(body)
        except RowsInvalid as error:
            refusal = error
        unread = []
        if not body.terms.accept_unknown:
            unread = unread_columns(refusal.mapped)
        raise RowsInvalid([*refusal.columns, *unread])

    def _require_fit(self, body: SpooledBody, report: "IngestReport") -> None:
        """Refuses a body for what is in it; at last for rows that were sent before,
        perhaps in another packing, so that whoever checks what is to replace these rows
        learns of all else.
        """
        if not (report.n_read or body.terms.accept_empty):
            raise UploadEmpty
        unread = unread_columns(report.mapped)
        if unread and not body.terms.accept_unknown:
            raise CellsUnread(unread)
        self._refuse_repeated(body, report)

    @contextmanager
    def _acting(self) -> Iterator[Session]:
        """A write transaction in which the caller still owns the dataset."""
        with write_as(self._installation, self._caller) as (session, principal):
            authorized_dataset(
                session, principal, self._dataset.id, grants.MANAGE_DATASET
            )
            yield session

    def _begin(self, book: admission.AdmissionBook) -> None:
        """Opens the upload in the book under the dataset's lock, since the upload
        before may not have committed yet.
        """
        with self._acting() as session:
            catalog.locked(session, self._dataset.id).living()
            epochs = catalog.epochs(session, self._dataset.id)
            self._before = [epoch.id for epoch in epochs]
            freed = {epoch.id for epoch in epochs if epoch.places_freed_at is not None}
        book.begin(self._epoch_id, committed=self._before, freed=freed)

    def _ingest(self, body: SpooledBody) -> "IngestReport":
        from app.datasets import fingerprints, ingest, row_reading

        dataset = self._dataset
        rules = row_reading.RowRules(
            dataset.schema,
            dataset.partitions,
            admission.digest_key(self._key),
            dataset.unit_column,
            dataset.unit_form,
            body.terms.dialect,
        )
        store = self._installation.files
        destination = row_files.sealed_rows(
            store, dataset.id, self._epoch_id, key=self._key
        )
        prints = fingerprints.Fingerprints(
            row_files.sealed_prints(store, dataset.id, self._epoch_id, key=self._key),
            fingerprints.installation_key(store),
            cells_key=hmac.digest(
                self._key.derived(_CELLS_KEY), self._caller.key_id.encode(), "sha256"
            ),
            body=self._fingerprint(body),
        )
        form = body.terms.form
        seat: AbstractContextManager[None] = nullcontext()
        if form.is_columnar:
            seat = admission.decoder_seat(self._installation.home)
        with seat:
            return ingest.ingest_rows(
                body.file,
                destination,
                rules=rules,
                book=self._book,
                prints=prints,
                form=form,
            )

    def _fingerprint(self, body: SpooledBody) -> bytes:
        """Recognises a body that the same key sends again, and says nothing without the
        dataset's data key.
        """
        sent = self._caller.key_id.encode() + b"\0" + body.sha256
        return hmac.digest(self._key.derived(_BODY_FINGERPRINT), sent, "sha256")

    def _read_earlier(self) -> None:
        """Reads facts of the committed uploads before the transaction, which other
        requests wait for.
        """
        with self._installation.database.read() as session:
            epochs = catalog.upload_ids(session, self._dataset.id)
        self._read_facts(epochs)

    def _read_facts(self, epochs: Sequence[str]) -> None:
        unread = [epoch for epoch in epochs if epoch not in self._earlier]
        self._earlier |= stored_uploads(
            self._installation, self._dataset.id, unread, key=self._key
        )

    def _refuse_repeated(
        self, body: SpooledBody, report: "IngestReport | None" = None
    ) -> None:
        """Refuses the rows of one of the earlier uploads, unless the caller insists."""
        equal = self._equal(body, report)
        if equal and not body.terms.again:
            raise UploadRepeated(equal[0])

    def _equal(
        self, body: SpooledBody, report: "IngestReport | None" = None
    ) -> list[str]:
        """The earlier uploads of the same key with an equal body or, once the body has
        been read, equal rows.
        """
        fingerprint = self._fingerprint(body)
        equal = []
        for epoch, upload in self._earlier.items():
            has_equal_body = upload.body == fingerprint
            has_equal_cells = report is not None and upload.cells == report.cells
            is_replaced = epoch == body.terms.replaces
            if (has_equal_body or has_equal_cells) and not is_replaced:
                equal.append(epoch)
        return equal

    def _add_epoch(
        self, session: Session, body: SpooledBody, report: "IngestReport"
    ) -> Answer:
        self._require_addable(session, body, report)
        dataset_id = self._dataset.id
        catalog.add_epoch(session, dataset_id, epoch_id=self._epoch_id)
        self._is_added = True
        owned = grants.granted_as(session, self._caller, grants.Role.OWNER)
        is_owner = dataset_id in owned
        report_out = _report_out(
            self._epoch_id,
            report,
            shows_rows=is_owner,
            warnings=self._warnings(body, report, shows_rows=is_owner),
        )
        return _sealed(Answer.of(201, report_out), self._key)

    def _require_addable(
        self, session: Session, body: SpooledBody, report: "IngestReport"
    ) -> None:
        """Checks under the dataset's lock what may have changed while the rows were
        read, and the limits of all uploads together.
        """
        dataset_id = self._dataset.id
        declared = catalog.locked(session, dataset_id).living()
        if not declared.is_declared_as(self._dataset):
            raise Unavailable("the declaration changed while the rows were read")
        epochs = catalog.upload_ids(session, dataset_id)
        # The book excludes other uploads by a lock of the file system, which some file
        # systems do not have.
        if self._book is not None and epochs != self._before:
            raise Unavailable("another upload to this dataset ended meanwhile")
        if (
            self._dataset.partitions.epoch_partition is not None
            and len(epochs) >= limits.MAX_UPLOAD_CELLS
        ):
            raise TooLarge(
                "the number of uploads to a dataset with a partition by upload",
                limits.MAX_UPLOAD_CELLS,
            )
        self._read_facts(epochs)
        self._refuse_repeated(body, report)
        if (
            report.n_rows + sum(upload.n_rows for upload in self._earlier.values())
            > forest_limits.MAX_ROWS_PER_DATASET
        ):
            # over all uploads, since a job reads all uploads
            raise TooLarge(
                "the number of rows of the dataset", forest_limits.MAX_ROWS_PER_DATASET
            )

    def _warnings(
        self, body: SpooledBody, report: "IngestReport", *, shows_rows: bool
    ) -> list[str]:
        """What the answer warns of; PRIVATE with ``shows_rows``."""
        sent_before = [
            _SENT_BEFORE.format(epoch=epoch) for epoch in self._equal(body, report)[:1]
        ]
        if not shows_rows:
            return sent_before
        return [
            *sent_before,
            *_similar_units(report),
            *_crowded_unit(report, self._dataset.max_rows),
            *_suspicious_columns(report),
        ]

    def _discard_unless_committed(self) -> None:
        """Erases the file of an epoch whose commit failed. After a lost connection it
        first reads the database.
        """
        database = self._installation.database
        dataset_id = self._dataset.id
        # otherwise the sweeper decides
        with suppress(Unavailable, OSError), database.read() as session:
            if self._epoch_id not in catalog.upload_ids(session, dataset_id):
                row_files.erase_epoch(
                    self._installation.files, dataset_id, self._epoch_id
                )


def unread_columns(mapped: Sequence[UnreadColumn]) -> list[UnreadColumn]:
    """What the service refuses, unless the owner accepts it, of all cells that an upload
    maps.

    Columns in which many cells are not as declared: an owner has most likely sent
    another file. And a unit column with any mark for a missing value: all rows with the
    mark would be one person's. Both are judged by the body alone, stored or dropped
    rows.
    """
    refused = []
    for cells in mapped:
        may_be_many = cells.problem in ("unknown", "clamped")
        is_many = may_be_many and cells.percent > limits.MAX_UNREAD_PERCENT
        if is_many or cells.problem == "missing-mark":
            percent = max(round(cells.percent, 1), _LEAST_PERCENT)
            refused.append(replace(cells, percent=percent))
    return refused


def _sealed(answer: Answer, key: DataKey) -> Answer:
    """The answer as it is stored for repetitions: its counts are exact facts about
    rows, and end with the data key.
    """
    return replace(answer, body=key.seal(answer.body, purpose=_REPORT))


def _opened(answer: Answer, key: DataKey) -> Answer:
    return replace(answer, body=key.open(answer.body, purpose=_REPORT))


def _report_out(
    epoch_id: str, report: "IngestReport", *, shows_rows: bool, warnings: list[str]
) -> UploadOut:
    return UploadOut(
        epoch=epoch_id,
        rows=report.n_rows if shows_rows else None,
        columns=[
            ColumnReport(
                name=column.name,
                clamped=column.clamped,
                missing=column.missing,
                unknown=column.unknown,
            )
            for column in report.columns
        ],
        dropped=DroppedRows(**vars(report.dropped))
        if shows_rows and report.dropped is not None
        else None,
        warnings=warnings,
    )


def _similar_units(report: "IngestReport") -> Iterator[str]:
    if report.n_similar_units is None:
        yield _NOT_COMPARED
    elif report.n_similar_units:
        yield _SIMILAR.format(count=report.n_similar_units)


def _suspicious_columns(report: "IngestReport") -> Iterator[str]:
    """Warns of marks for missing values that were stored as OTHER where a feature
    takes empty cells.
    """
    for cells in report.mapped:
        if cells.problem == "unknown" and cells.option is not None:
            marks = cells.option.removeprefix("missing=")
            yield _MARKS_STORED.format(
                name=cells.name,
                count=cells.count,
                quoted=shlex.quote(marks),
                encoded=quote(marks, safe=""),
            )


def _crowded_unit(report: "IngestReport", max_rows: int) -> Iterator[str]:
    """Warns of a value that many people share: marks of a missing id are more than any
    list of them names.
    """
    count, row = report.most_over or (0, 0)
    if count > _MANY_ROWS * max_rows and _PERCENT * count >= report.n_read:
        yield _CROWDED.format(count=count, row=row)


@contextmanager
def unless_erased(installation: Installation, dataset_id: str) -> Iterator[None]:
    """Explains a missing file of a dataset, if the dataset was erased during the block.

    Raises:
        DatasetDeleted: the dataset was erased.
        FileNotFoundError: it was not, and a file of it is missing.
    """
    try:
        yield
    except FileNotFoundError:
        with installation.database.read() as session:
            catalog.find(session, dataset_id).living()
        raise


@contextmanager
def opened_book(
    installation: Installation, dataset: catalog.Dataset, key: DataKey
) -> Iterator[admission.AdmissionBook]:
    """Opens the book of a dataset whose privacy unit is a column. Other uploads and
    erasures wait until the block ends.

    Raises:
        FileNotFoundError: the dataset was erased during the upload.
    """
    max_rows = dataset.max_rows
    store = installation.files
    if isinstance(store, Directory):
        with admission.opened_home_book(
            installation.home, dataset.id, max_rows=max_rows, key=key
        ) as book:
            yield book
        return
    lock = installation.database.named_lock(
        f"grovekeeper/book/{dataset.id}", wait_s=admission.WAIT_S
    )
    stored_book = admission.opened_stored_book(
        store, dataset.id, max_rows=max_rows, key=key
    )
    with admission.waiting_seat(), lock, stored_book as book:
        yield book
