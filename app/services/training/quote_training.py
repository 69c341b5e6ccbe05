"""Serves ``POST /plans``: quotes a training request without reading rows."""

from app.access.roles import Principal
from app.forests import catalogue
from app.privacy import guarantees
from app.services.installation import Installation
from app.services.spending.part_quotes import quote_parts
from app.services.training.expected_accuracy import expected_accuracy
from app.services.training.plan_training import authorized_datasets, plan_training
from app.wire.training import AccountPlanOut, PlanIn, PlanOut


def show_plan(installation: Installation, principal: Principal, body: PlanIn) -> PlanOut:
    """Quotes a request: its plan, its price on each account, and whether the accounts would admit it now.

    Raises:
        NotFound: no such dataset or profile, or it is not visible to this key.
        RoleMissing: the key may not train on a dataset of the request.
        InvalidRequest: algorithm, parameters or scopes break a rule, or the two datasets are incompatible.
        NotSupported: a documented choice that is not implemented yet.
        DatasetDeleted: a dataset was erased.
        AccountantMismatch: the algorithm has no bound in an account's unit.
        AdjacencyMismatch: the algorithm protects labels only, and an account protects more.
        DatasetPrivate: the algorithm has no privacy guarantee, and the dataset is private.
    """
    with installation.database.read() as session:
        datasets = [dataset.living() for dataset in authorized_datasets(session, principal, body)]
        planned = plan_training(session, principal, datasets, body)
        labelled, *unlabelled = quote_parts(session, principal, planned.parts)
    warnings = [*planned.plan.warnings, *labelled.warnings]
    for quote in unlabelled:
        warnings += [sentence for sentence in quote.warnings if sentence not in warnings]
        is_one_dataset = labelled.part.dataset.id == quote.part.dataset.id
        if not quote.part.dataset.is_public:
            warnings.append(guarantees.of_two_parts(is_one_dataset=is_one_dataset))
    return PlanOut(
        **labelled.fields,
        algorithm=planned.plan.algorithm,
        why=catalogue.AUTO.reason(planned.plan.algorithm) if body.algorithm == catalogue.AUTO.slug else None,
        parameters=dict(planned.plan.parameters),
        profile=planned.profile,
        warnings=warnings,
        expected_accuracy=expected_accuracy(planned),
        unlabelled=AccountPlanOut(**unlabelled[0].fields) if unlabelled else None,
    )
