"""Says in words why a job ended without an output, or why it is not started."""

from collections.abc import Mapping

REASONS: Mapping[str, str] = {
    "cancelled": "somebody cancelled the job; under earlier versions, or erased its dataset",
    "dataset-erased": "a dataset that it reads was erased",
    "rejected": "an owner of a dataset rejected the job, so its reservation is void",
    "expired": (
        "no worker took the job within 24 hours, or no owner approved it within 7 days, so its reservation expired"
    ),
    "not-started": "no worker started the job within 24 hours, so its reservation expired",
    "not-approved": "no owner approved the job within 7 days, so its reservation expired",
    "lost": "no worker finished it: its worker stopped, or could not reach the database for too long, after the charge",
    "revoked": "the key that submitted it was revoked, or lost its role, before the charge",
    "key-expired": "the key that submitted it came to its end before the charge; submit it again with a key that works",
    "model-deleted": "a model that it evaluates was deleted before the charge",
    "damaged": (
        "a stored file of rows is damaged, which was found before the charge; the operator restores it from a backup"
    ),
    "failed": "it broke while running; the cause may depend on rows and is not recorded",
}
"""Why a job ended without an output, for people, by the ``reason`` of the job."""

HOLDS: Mapping[str, str] = {
    "frozen": "a dataset that it reads is frozen, and it starts once an owner or an admin has ended the freeze",
    "erasure-due": "the date has come at which a dataset that it reads is erased, which cancels it",
    "no-room": "the disk of its worker has no room for its output or cannot be written, "
    "so it is not charged; workers try again",
    "rows-absent": (
        "a file of its rows is absent or cannot be read, so it is not charged; "
        "workers try again, and the operator brings the file back"
    ),
    "model-absent": (
        "the file of a model that it evaluates is absent or cannot be read, so it is not charged; "
        "workers try again, and the operator brings the file back"
    ),
    "cannot-load": (
        "its process cannot load the code of jobs, or use what the job needs, so it is not charged; "
        "workers try again, and their log says why"
    ),
}
"""Why a queued job is not started, for people, by the ``held_by`` of the job."""

MAX_COUNTED = 100


def place_in_words(jobs_before: int) -> str:
    """How many jobs workers take before a queued job."""
    if jobs_before == 0:
        return "workers take it next"
    if jobs_before > MAX_COUNTED:
        return f"more than {MAX_COUNTED} jobs wait before it"
    jobs, wait = ("job", "waits") if jobs_before == 1 else ("jobs", "wait")
    return f"{jobs_before} {jobs} {wait} before it"
