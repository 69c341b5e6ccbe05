"""Defines the errors that callers distinguish: one class per fact, with the details as attributes.

One module per kind of error; this package re-exports every class, so callers import from here.

::

    GrovekeeperError
    │   request_errors
    ├── MalformedRequest               the body or a header cannot be parsed
    ├── IdempotencyKeyMissing          a request that spends budget has no idempotency key
    ├── Unauthenticated                no valid key
    ├── RoleMissing                    a valid key without the role that the call needs
    ├── NotFound                       no such resource, or none that the key may see
    ├── MethodNotAllowed               the path exists, the method does not
    ├── IdempotencyInFlight            the first request with this key has not ended
    ├── IdempotencyKeyReused           the key was used with another body
    ├── TooLarge                       a body or a list is over a public limit
    ├── BodyTooSlow                    a body does not arrive in time
    ├── UnsupportedMediaType           the body's type or encoding is not accepted
    ├── InvalidRequest                 a field breaks a rule
    ├── RowsInvalid                    the upload does not match the declaration
    ├── CellsUnread                    many cells of the upload are not as declared
    ├── UploadRepeated                 an equal body was uploaded to the dataset before
    ├── NotSupported                   the request is legal, but not supported yet
    ├── TooManyRequests                too many requests in flight, or too many unfinished jobs of the key
    │   account_errors
    ├── BudgetExceeded                 the account cannot pay for the request
    ├── QuotaExceeded                  the rules of a dataset admit less
    │   └── NeedsApproval              the charge needs an approval, and cannot wait
    ├── AccountantMismatch             the account's unit cannot express the charge
    ├── AdjacencyMismatch              the account's adjacency is not the algorithm's
    ├── AccountDiffers                 a declaration cannot continue the account of the erased dataset of its name
    ├── PopulationMismatch             the dataset cannot become a member of the population
    ├── ReservationSettled             the reservation was charged, void or expired already
    │   resource_errors
    ├── NoRowsYet                      the dataset has no upload yet
    ├── NoRowsOfUnit                   no row of the unit is stored
    ├── NameTaken                      a dataset or a population has or had this name
    ├── LastOwner                      the change would leave a dataset without an owner
    ├── DatasetDeleted                 the dataset was deleted
    ├── Frozen                         an owner froze the dataset
    ├── ModelHasAlias                  an alias names the model, so it cannot be deleted
    ├── JobFinished                    the job has ended, so it cannot be cancelled
    ├── NotWaiting                     the job does not wait for a decision
    ├── SameSubmitter                  the submitter of a job may not decide about it
    ├── LeaseLost                      another worker holds the job's lease (never leaves the worker)
    │   installation_errors
    ├── Unavailable                    the service cannot answer at the moment
    │   └── BalanceMismatch            an account differs from its entries
    └── InstallationError              the operator has to act; printed by the command line
        └── LedgerRewound              the database contradicts a head that was written outside it
            └── HeadNotSigned          a head outside the database has no signature of a signer that the database names

No message and no attribute carries a private value, an exact private count or a rejected input value.
"""

from app.core.errors.account_errors import (
    AccountantMismatch,
    AccountDiffers,
    AdjacencyMismatch,
    BudgetExceeded,
    NeedsApproval,
    PopulationMismatch,
    QuotaExceeded,
    ReservationSettled,
)
from app.core.errors.installation_errors import (
    BalanceMismatch,
    HeadNotSigned,
    InstallationError,
    LedgerRewound,
    Unavailable,
)
from app.core.errors.request_errors import (
    BodyTooSlow,
    CellsUnread,
    ColumnProblem,
    FieldProblem,
    IdempotencyInFlight,
    IdempotencyKeyMissing,
    IdempotencyKeyReused,
    InvalidRequest,
    MalformedRequest,
    MethodNotAllowed,
    NotFound,
    NotSupported,
    RoleMissing,
    RowsInvalid,
    TooLarge,
    TooManyRequests,
    Unauthenticated,
    UnreadColumn,
    UnsupportedMediaType,
    UploadRepeated,
)
from app.core.errors.resource_errors import (
    DatasetDeleted,
    Frozen,
    JobFinished,
    LastOwner,
    LeaseLost,
    ModelHasAlias,
    NameTaken,
    NoRowsOfUnit,
    NoRowsYet,
    NotWaiting,
    SameSubmitter,
)
from app.core.errors.root import (
    GrovekeeperError,
)

__all__ = [
    "AccountDiffers",
    "AccountantMismatch",
    "AdjacencyMismatch",
    "BalanceMismatch",
    "BodyTooSlow",
    "BudgetExceeded",
    "CellsUnread",
    "ColumnProblem",
    "DatasetDeleted",
    "FieldProblem",
    "Frozen",
    "GrovekeeperError",
    "HeadNotSigned",
    "IdempotencyInFlight",
    "IdempotencyKeyMissing",
    "IdempotencyKeyReused",
    "InstallationError",
    "InvalidRequest",
    "JobFinished",
    "LastOwner",
    "LeaseLost",
    "LedgerRewound",
    "MalformedRequest",
    "MethodNotAllowed",
    "ModelHasAlias",
    "NameTaken",
    "NeedsApproval",
    "NoRowsOfUnit",
    "NoRowsYet",
    "NotFound",
    "NotSupported",
    "NotWaiting",
    "PopulationMismatch",
    "QuotaExceeded",
    "ReservationSettled",
    "RoleMissing",
    "RowsInvalid",
    "SameSubmitter",
    "TooLarge",
    "TooManyRequests",
    "Unauthenticated",
    "Unavailable",
    "UnreadColumn",
    "UnsupportedMediaType",
    "UploadRepeated",
]
