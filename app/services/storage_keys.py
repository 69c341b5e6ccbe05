"""Confirms that an installation has the storage keys of its database, and makes the first one."""

from app.core import durable
from app.core.data_keys import StorageKeys
from app.datasets import catalog
from app.services.installation import Installation


def confirm_storage_keys(installation: Installation) -> None:
    """Checks that this process can read every data key in the database. Makes a key at the first start.

    A key is made in the home if no setting names one and the database has no data key. If several processes make one at
    once, they share the key of the first.

    Raises:
        InstallationError: a storage key is missing or cannot be read.
        Unavailable: the database does not answer.
    """
    with installation.database.read() as session:
        wrapped = catalog.wrapped_keys(session)
    if installation.settings.storage_key is None and not wrapped and not installation.storage_key_file.exists():
        durable.write(installation.storage_key_file, StorageKeys.new_text().encode(), existing="keep")
    installation.storage_keys.require(wrapped)
