"""Lists the guarantee that each reference code claims, and selects the codes to compare
an algorithm with.
"""

from collections.abc import Sequence
from pathlib import Path

from grovekeeper_forests.privacy.accountants import pure

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
    "dp-gd-linear": APPROXIMATE,
    "dp-gd-rff": APPROXIMATE,
    "rpf-prototype": PROTOTYPE,
    "nbrt-prototype": PROTOTYPE,
    "majority": NONE,
    "sklearn-rf100-nonprivate": NONE,
}
"""Claims, not proofs: some claims of pure ε are false; README.md says which."""


def of_claim(*claims: str) -> tuple[str, ...]:
    """The methods that make one of the claims."""
    return tuple(method for method, claim in CLAIMS.items() if claim in claims)


def opponents(slug: str, accountant: str) -> dict[str, Sequence[str]]:
    """Groups of methods to compare an algorithm with, by title: pure ε if the account
    is pure, all, its prototype.

    An account without δ promises more than a method with δ, so a fair comparison is
    with methods of pure ε.
    """
    groups = {"every private code": of_claim(*PRIVATE)}
    if accountant == pure.NAME:
        groups = {"codes that claim pure ε": of_claim(PURE)} | groups
    prototype = f"{slug}-prototype"
    return groups | (
        {"its float-noise prototype": (prototype,)} if prototype in CLAIMS else {}
    )
