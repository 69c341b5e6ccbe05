"""Serves ``POST /train``: writes the reservations, job and answer of a training request in one transaction."""

from app.access.idempotency import Answer, IdempotentRequest
from app.access.roles import TRAIN, Principal
from app.services.installation import Installation
from app.services.spending.accept import Job, Need
from app.services.spending.submit import JobSteps, submit_job
from app.services.training.plan_training import PlannedTraining, authorized_datasets, datasets_of, plan_training
from app.wire.training import TrainIn


def submit_training(
    installation: Installation, principal: Principal, body: TrainIn, *, request: IdempotentRequest
) -> Answer:
    """Accepts a job or refuses it: a refused request stores neither job nor reservation.

    Raises:
        NotFound: no such dataset or profile, or it is not visible to this key.
        RoleMissing: the key may not train on a dataset of the request.
        InvalidRequest: algorithm, parameters or scopes break a rule, or the two datasets are incompatible.
        NotSupported: a documented choice that is not implemented yet.
        DatasetDeleted: a dataset was erased.
        AccountantMismatch: the algorithm has no bound in an account's unit.
        AdjacencyMismatch: the algorithm protects labels only, and an account protects more.
        DatasetPrivate: the algorithm has no privacy guarantee, and the dataset is private.
        NoRowsYet: a dataset has no upload.
        BudgetExceeded: an account refuses.
    """

    return submit_job(
        installation,
        principal,
        JobSteps(
            authorize=lambda session, principal: authorized_datasets(session, principal, body),
            quote=lambda session, datasets: plan_training(session, principal, datasets, body),
            job=lambda planned: _job(planned, body),
            datasets=datasets_of(body),
        ),
        request=request,
    )


def _job(planned: PlannedTraining, body: TrainIn) -> Job:
    # Beside the plan: a forest without splits carries no profile, but its size may come from a profile.
    profile = {} if planned.profile is None else {"profile": planned.profile.id}
    return Job(
        kind="train",
        dataset=planned.parts[0].dataset,
        parts=planned.parts,
        work={"plan": planned.plan.to_json(), **profile},
        name=body.name,
        purpose=body.purpose,
        algorithm=planned.plan.algorithm,
        n_trees=planned.plan.n_trees,
        needs=[] if planned.profile is None else [Need(planned.profile.dataset, TRAIN, "profile")],
    )
