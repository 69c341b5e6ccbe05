"""Defines the errors of datasets, models and jobs whose state does not permit a call."""

from collections.abc import Sequence
from dataclasses import dataclass

from app.core.errors.root import GrovekeeperError


class NoRowsYet(GrovekeeperError):
    """The dataset has no upload yet. Uploads are public events, so this error reveals nothing private."""

    def __str__(self) -> str:
        return "this dataset has no rows yet"


class NoRowsOfUnit(GrovekeeperError):
    """No row of the unit that an owner wants to erase is stored. Shown to owners only."""

    def __str__(self) -> str:
        return "no row of that unit is stored, so nothing was erased; compare the value, character by character"


@dataclass(eq=False)
class NameTaken(GrovekeeperError):
    """A dataset or a population has this name, or an erased dataset of other owners had it."""

    kind: str = "dataset"

    def __str__(self) -> str:
        return f"another {self.kind} has this name"


class LastOwner(GrovekeeperError):
    """The change would leave a dataset without an owner whose key works."""

    def __str__(self) -> str:
        return "no other key that works is an owner of this dataset; make another key an owner first"


class DatasetDeleted(GrovekeeperError):
    """The dataset was deleted: its rows were erased, and its ledger remains."""

    def __str__(self) -> str:
        return "the rows of this dataset were erased; its ledger remains"


@dataclass(eq=False)
class Frozen(GrovekeeperError):
    """An owner froze the dataset: nothing is admitted, and queued jobs wait."""

    dataset: str
    dataset_name: str

    def __str__(self) -> str:
        return f"the dataset {self.dataset_name} is frozen"


@dataclass(eq=False)
class ModelHasAlias(GrovekeeperError):
    """Aliases name the model, so that callers who use them would lose it."""

    aliases: Sequence[str]

    def __str__(self) -> str:
        return f"move or remove these aliases of the model first: {', '.join(self.aliases)}"


class JobFinished(GrovekeeperError):
    """A finished job cannot be cancelled."""

    def __str__(self) -> str:
        return "the job has finished already"


class NotWaiting(GrovekeeperError):
    """The job does not wait for a decision: it was decided, cancelled, or has expired."""

    def __str__(self) -> str:
        return "the job does not wait for a decision"


@dataclass(eq=False)
class SameSubmitter(GrovekeeperError):
    """Another person than the caller decides."""

    who: str = "an owner other than the submitter decides about this job"

    def __str__(self) -> str:
        return self.who


class LeaseLost(GrovekeeperError):
    """Another worker holds the job's lease, so this worker must not write."""

    def __str__(self) -> str:
        return "the lease on this job was lost"
