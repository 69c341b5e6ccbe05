"""Loads the newest model before a prediction needs it."""

from app.forests import predict as forests
from app.registry import models
from app.services.installation import Installation


def prepare(installation: Installation) -> None:
    """Prepares the first prediction of this process, which would otherwise wait for the model and for compiled code."""
    with installation.database.read() as session:
        newest = models.page(session, dataset_ids=None, before=None, limit=1)
    for row in newest:
        artifact = installation.cache.get(row.digest)
        forests.prepare(artifact.forest, artifact.schema)
