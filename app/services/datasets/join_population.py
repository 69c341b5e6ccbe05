"""Serves ``PUT /datasets/{id}/population``: makes a dataset a member of a population."""

from app.access.grants import MANAGE_DATASET, Principal
from app.datasets import catalog
from app.services import populations
from app.services.authorization import authorized_dataset, write_as
from app.services.datasets.show_datasets import dataset_out
from app.services.installation import Installation
from app.services.jobs import notices
from app.wire.datasets import DatasetOut


def join_population(installation: Installation, principal: Principal, reference: str, *, population: str) -> DatasetOut:
    """Makes a dataset a member of a population, for good, on the owner's public statement.

    Raises:
        NotFound: no such dataset or population, or it is not visible to this key.
        RoleMissing: only the dataset's owner may state the membership.
        DatasetDeleted: the dataset's rows are erased.
        PopulationMismatch: the dataset's loss cannot be added to the members', or it is a member of another population.
    """
    with write_as(installation, principal) as (session, principal):
        dataset = authorized_dataset(session, principal, reference, MANAGE_DATASET)
        locked = catalog.locked(session, dataset.id).living()
        at = installation.database.now(session)
        locked.row.population = populations.join(session, principal, dataset.id, population=population, at=at)
        session.flush()
        notices.budgets_changed(session, [dataset.id], at=at)
        return dataset_out(session, locked)
