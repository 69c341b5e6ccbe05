"""Claims of the authors of each reference code, and the codes that an algorithm is compared with."""

from collections.abc import Sequence
from pathlib import Path

from app.privacy.accountants import pure

TABLES = [Path(__file__).with_name(name) for name in ("peers.csv", "prototype.csv")]

PURE, APPROXIMATE, PROTOTYPE, NONE = "pure", "approximate", "prototype", "none"
PRIVATE = (PURE, APPROXIMATE)

CLAIMS = {
    "diffprivlib-lr": PURE,
    "diffprivlib-nb": PURE,
    "diffprivlib-rf": PURE,
    "diffprivlib-tree": PURE,
    "diprime": PURE,
    "dp-xgboost": PURE,
    "privatree": PURE,
    "dp-ebm": APPROXIMATE,
    "fedgbdt": APPROXIMATE,
    "fedgbdt-cyclic": APPROXIMATE,
    "s-bdt-cyclic": APPROXIMATE,
    "s-bdt-newton": APPROXIMATE,
    "rpf-prototype": PROTOTYPE,
    "nbrt-prototype": PROTOTYPE,
    "majority": NONE,
    "sklearn-rf100-nonprivate": NONE,
}
"""Claims, not proofs: some of the pure ones fail; see the README beside."""


def of_claim(*claims: str) -> tuple[str, ...]:
    """Methods with one of the claims."""
    return tuple(method for method, claim in CLAIMS.items() if claim in claims)


def opponents(slug: str, accountant: str) -> dict[str, Sequence[str]]:
    """Groups of methods to compare an algorithm with, by title: those of its own regime, then all, then its prototype.

    An account without δ promises more than a method that needs one, so beating its own regime is the fair aim.
    """
    groups = {"every private code": of_claim(*PRIVATE)}
    if accountant == pure.NAME:
        groups = {"codes that claim pure ε": of_claim(PURE)} | groups
    prototype = f"{slug}-prototype"
    return groups | ({"its float-noise prototype": (prototype,)} if prototype in CLAIMS else {})
