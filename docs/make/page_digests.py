"""Digests of the sources of the pages that the documentation shows, stored beside the
pictures.

A page's sources are its template, the templates that it names, and the style sheet,
without white space. A test compares the digests, because nobody notices by hand that a
picture shows an earlier page.
"""

import hashlib
import json
import re
from collections.abc import Iterable
from pathlib import Path

from docs.make.guide_pictures import FOLDER

_PAGES = Path(__file__).parents[2] / "app" / "api" / "pages"
_NAMED = re.compile(r'{%-? *(?:extends|from|include|import) *"([^"]+)"')
DIGESTS = FOLDER / "dashboard.json"
TEMPLATES = {
    "accounts": "accounts", "acts": "acts", "acts-verified": "acts_verified", "administration": "admin",
    "aliases": "model", "approvals": "approvals", "ask-profile": "ask_profile", "ask-statistics": "ask_statistics",
    "choose": "choose", "comparison": "comparison",
    "dataset": "dataset", "dataset-access": "dataset_access", "dataset-rules": "dataset_rules",
    "dataset-uploads": "dataset_uploads",
    "datasets": "datasets", "declare": "declare", "entry": "entry", "erase-dataset": "erase_dataset",
    "erase-upload": "erase_upload", "evaluate": "evaluate", "evaluation": "evaluation",
    "first-steps": "home", "home": "home", "job": "job", "jobs": "jobs",
    "keys": "keys", "ledger": "ledger", "model": "model", "models": "models", "no-right": "problem",
    "phone-approvals": "approvals", "phone-dataset": "dataset", "phone-quote": "train", "population-ledger": "ledger",
    "populations": "populations", "prediction": "model", "profile": "released_statistics",
    "quote": "train", "refused": "train", "report": "report",
    "sign-in": "sign_in", "spent": "spent", "statistics": "released_statistics", "upload": "upload",
}  # fmt: skip
"""The template of the page in each picture ``dashboard-NAME.png``."""


def digest(picture: str) -> str:
    """SHA-256 of the sources of the page in a picture."""
    templates = _with_named(f"{TEMPLATES[picture]}.html", {})
    sources = [
        *templates.values(),
        (_PAGES / "assets" / "style.css").read_text(encoding="utf-8"),
    ]
    return hashlib.sha256("".join("".join(sources).split()).encode("utf-8")).hexdigest()


def record(pictures: Iterable[str]) -> None:
    """Stores the digests of pictures that were taken now, or that still show their
    pages.
    """
    stored = json.loads(DIGESTS.read_text(encoding="utf-8")) if DIGESTS.exists() else {}
    stored |= {picture: digest(picture) for picture in pictures}
    DIGESTS.write_text(
        json.dumps(stored, indent=1, sort_keys=True) + "\n", encoding="utf-8"
    )


def _with_named(name: str, known: dict[str, str]) -> dict[str, str]:
    """Texts of a template and of all templates that it names, by name."""
    if name not in known:
        known[name] = (_PAGES / "templates" / name).read_text(encoding="utf-8")
        for other in _NAMED.findall(known[name]):
            _with_named(other, known)
    return known
