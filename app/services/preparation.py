"""Loads the newest model, and the code that plans jobs, before a request needs them."""

from importlib import import_module

from app.datasets import catalog
from app.registry import models
from app.services.installation import Installation

_PLANS_JOBS = (
    "app.privacy.composition.joint_loads",
    "app.services.spending.training",
    "app.services.spending.training",
)


def prepare(installation: Installation) -> None:
    """Prepares the first plan and the first prediction of this process, which would otherwise wait for imports.

    The algorithms with numpy take 0.1 s of CPU and 16 MB, compiled code more. An installation without datasets plans
    and predicts nothing, and loads neither.
    """
    with installation.database.read() as session:
        if catalog.is_empty(session):
            return
        newest = models.page(session, dataset_ids=None, before=None, limit=1)
    for name in _PLANS_JOBS:
        import_module(name)
    for row in newest:
        from app.forests import predict as forests

        artifact = installation.cache.get(row.digest)
        forests.prepare(artifact.forest, artifact.schema)
