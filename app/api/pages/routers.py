"""Lists the routes of all pages. The first route that fits a path answers it."""

from app.api.pages import (
    admin,
    approvals,
    dataset_details,
    datasets,
    declarations,
    jobs,
    ledger,
    models,
    populations,
    quotes,
    reports,
    shared,
    uploads,
)

PAGES = tuple(
    module.router
    for module in (
        declarations, datasets, dataset_details, quotes, uploads, jobs, models, ledger, reports, populations, approvals,
        admin, shared,
    )
)  # fmt: skip
