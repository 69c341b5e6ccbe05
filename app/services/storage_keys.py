"""Confirms that an installation has the storage keys of its database, makes the first one, and changes to another."""

from app.core import files
from app.core.sealed_files import StorageKeys
from app.core.settings import Settings
from app.datasets import catalog
from app.db.database import Database
from app.ledger import control
from app.ledger.tables import EntryKind
from app.services.installation import Installation, read_storage_keys, storage_key_file


def confirm_storage_keys(installation: Installation) -> None:
    """Checks that this process can read every data key in the database. Makes a key at the first start.

    A key is made in the home if no setting names one and the database has no data key. If several processes make one at
    once, they share the key of the first. Where machines share a store, no key is made: each would make another one.

    Raises:
        InstallationError: a storage key is missing or cannot be read.
        Unavailable: the database does not answer.
    """
    with installation.database.read() as session:
        wrapped = catalog.wrapped_keys(session)
    settings, file = installation.settings, storage_key_file(installation.settings)
    if settings.storage_key is None and settings.store is None and not wrapped and not file.exists():
        files.write(file, StorageKeys.new_text().encode(), existing="keep")
    installation.storage_keys.require(wrapped)


def rewrap_data_keys(settings: Settings, database: Database) -> tuple[str, int]:
    """Wraps every data key with the newest storage key, in one transaction, so that older keys can be removed.

    Processes may serve meanwhile, if they were started with the newest key. A repeated call changes nothing.

    Returns:
        The id of the newest key, and the number of datasets whose keys were wrapped.

    Raises:
        InstallationError: a storage key is missing; nothing was changed.
    """
    keys = read_storage_keys(settings)
    with database.write() as session:
        n_wrapped = catalog.wrap_keys_anew(session, keys)
        if n_wrapped:
            actor, kind = control.OPERATOR, EntryKind.STORAGE_KEY_CHANGED
            control.record(session, kind, actor=actor, storage_key=keys.newest_id)
    database.forget_deleted()
    return keys.newest_id, n_wrapped
