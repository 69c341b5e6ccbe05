"""Opens the admission books of datasets, on this machine or in the store that machines share."""

from collections.abc import Iterator
from contextlib import contextmanager

from app.core.sealed_files import DataKey
from app.core.stores import Directory
from app.datasets import admission, catalog, stored_books
from app.datasets.admission import AdmissionBook, BookRules
from app.services.installation import Installation


@contextmanager
def opened_book(installation: Installation, dataset: catalog.Dataset, key: DataKey) -> Iterator[AdmissionBook]:
    """Opens the book of a dataset whose privacy unit is a column. Other uploads and erasures wait until the block ends.

    Raises:
        Unavailable: another upload to the dataset took too long, or too many uploads wait already.
        FileNotFoundError: the dataset was erased during the upload.
    """
    rules = BookRules(dataset.max_rows, key)
    if isinstance(installation.files, Directory):
        with admission.opened(installation.home, dataset.id, rules) as book:
            yield book
        return
    lock = installation.database.named_lock(f"grovekeeper/book/{dataset.id}", wait_s=admission.WAIT_S)
    with admission.waiting_seat(), lock, stored_books.opened(installation.files, dataset.id, rules) as book:
        yield book
