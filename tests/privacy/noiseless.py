"""Grows forests without noise from coded rows, to compare the exact counts of two ways
to count.
"""

from fractions import Fraction

import numpy as np

from grovekeeper_forests.data.coded_rows import (
    CodedBlock,
    CodedColumns,
    CodedRows,
    CodeRequest,
    code_bits,
)
from grovekeeper_forests.data.sanitiser import SanitisedRows
from grovekeeper_forests.data.schema import Schema
from grovekeeper_forests.privacy.accountants import gdp
from grovekeeper_forests.privacy.calibration import Terms
from grovekeeper_forests.releases.forest.draw import code_request
from grovekeeper_forests.releases.forest.price import PlanRequest, plan
from tests.privacy.fixed_releases import FixedReleases
from tests.support.wide_codes import wide_codes


class Noiseless(FixedReleases):
    """Selects the largest utility and adds no noise, so that every released number is
    an exact count or sum.
    """

    def permute_and_flip(
        self, utilities: np.ndarray, *, inverse_scale: Fraction
    ) -> int:
        return int(utilities.argmax())

    select_exponential = permute_and_flip

    def discrete_laplace(
        self, shape: tuple[int, ...], *, inverse_scale: Fraction
    ) -> np.ndarray:
        return np.zeros(shape, dtype=np.int64)

    def rounded_gaussian(
        self, shape: tuple[int, ...], *, scale_bits: int
    ) -> np.ndarray:
        return np.zeros(shape, dtype=np.int64)


REQUESTS = {
    "rpf": PlanRequest(
        "rpf", {"n_estimators": 3, "max_depth": 4}, Terms(Fraction(1)), 600
    ),
    "rpf, one at a time": PlanRequest(
        "rpf",
        {"n_estimators": 2, "max_depth": 3, "at_once": 1, "pairs": "none"},
        Terms(Fraction(1)),
        600,
    ),
    "rpf, by node": PlanRequest(
        "rpf",
        {"n_estimators": 2, "max_depth": 3, "splits": "node"},
        Terms(Fraction(1)),
        600,
    ),
    "nbrt": PlanRequest(
        "nbrt",
        {"n_estimators": 9, "max_depth": 3},
        Terms(Fraction(1), gdp.NAME, Fraction(1, 10**6)),
        600,
    ),
    "nbrt, fine grid": PlanRequest(
        "nbrt",
        {"n_estimators": 3, "max_depth": 3},
        Terms(Fraction(1), gdp.NAME, Fraction(1, 10**6)),
        10**6,
    ),
    "mrf": PlanRequest(
        "mrf", {"n_estimators": 2, "max_depth": 4}, Terms(Fraction(1)), 600
    ),
    "mrf, sharded and apart": PlanRequest(
        "mrf",
        {"n_estimators": 3, "max_depth": 3, "assignment": "sharded", "se": "hash"},
        Terms(Fraction(1)),
        600,
    ),
}


def as_codes(values: SanitisedRows, request: PlanRequest, schema: Schema) -> CodedRows:
    """The rows as the job of a request reads them from files."""
    asked = code_request(plan(request, schema), schema)
    assert asked is not None
    return coded(values, asked)


def coded(values: SanitisedRows, asked: CodeRequest, *, n_rows: int = 100) -> CodedRows:
    """The rows by the codes that a job asks for, in blocks of ``n_rows`` rows."""
    codes = wide_codes(asked.public, values.features)
    blocks = np.split(codes, range(n_rows, values.features.n_rows, n_rows), axis=1)
    features = CodedColumns(
        asked.public,
        [CodedBlock.of(block, n_bits=code_bits(asked.public)) for block in blocks],
    )
    return CodedRows(features, values.y, values.row_ids if asked.with_ids else None)
