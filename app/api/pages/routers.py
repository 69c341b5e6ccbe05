"""Lists the routes of all pages. The first route that fits a path answers it, and ``shared`` answers unknown paths."""

from app.api.pages import (
    acts,
    admin,
    approvals,
    dataset_details,
    datasets,
    declarations,
    erasures,
    evaluations,
    jobs,
    ledger,
    models,
    populations,
    quotes,
    reports,
    revocations,
    selections,
    shared,
    uploads,
)

_OF_DATASETS = (declarations, datasets, dataset_details, quotes, uploads, erasures, revocations)
_OF_JOBS = (jobs, models, evaluations, selections)
_OF_ACCOUNTS = (ledger, reports, populations, approvals, admin, acts)

PAGES = tuple(module.router for module in (*_OF_DATASETS, *_OF_JOBS, *_OF_ACCOUNTS, shared))
