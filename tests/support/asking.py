"""Requests for releases, as the routes make them of bodies."""

from collections.abc import Sequence

from app.access.grants import Principal
from app.access.idempotency import Answer, IdempotentRequest
from app.services.installation import Installation
from app.services.releases.evaluations import EvaluationRequest
from app.services.releases.profiles import ProfileRequest
from app.services.releases.requests import quote, submit
from app.services.releases.training import TrainingRequest
from app.wire.evaluations import EvaluationIn, EvaluationQuoteOut, SelectionIn
from app.wire.profiles import ProfileIn, ProfileQuoteOut
from app.wire.training import PlanIn, PlanOut, TrainIn


def show_plan(installation: Installation, caller: Principal, body: PlanIn) -> PlanOut:
    return quote(installation, caller, TrainingRequest(body=body))


def submit_training(
    installation: Installation,
    caller: Principal,
    body: TrainIn,
    *,
    request: IdempotentRequest,
) -> Answer:
    return submit(installation, caller, TrainingRequest(body=body), request=request)


def show_profile_quote(
    installation: Installation, caller: Principal, dataset: str, body: ProfileIn
) -> ProfileQuoteOut:
    return quote(installation, caller, ProfileRequest(dataset=dataset, body=body))


def submit_profile(
    installation: Installation,
    caller: Principal,
    dataset: str,
    body: ProfileIn,
    *,
    request: IdempotentRequest,
) -> Answer:
    return submit(
        installation,
        caller,
        ProfileRequest(dataset=dataset, body=body),
        request=request,
    )


def show_evaluation_quote(
    installation: Installation,
    caller: Principal,
    models: Sequence[str],
    body: EvaluationIn | SelectionIn,
) -> EvaluationQuoteOut:
    return quote(installation, caller, EvaluationRequest(models=models, body=body))


def submit_evaluation(
    installation: Installation,
    caller: Principal,
    models: Sequence[str],
    body: EvaluationIn | SelectionIn,
    *,
    request: IdempotentRequest,
) -> Answer:
    return submit(
        installation,
        caller,
        EvaluationRequest(models=models, body=body),
        request=request,
    )
