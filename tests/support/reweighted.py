"""Makes a small table for the reweighted forest, and plans for it."""

from fractions import Fraction

import numpy as np

from grovekeeper_forests.contract.plan import Plan
from grovekeeper_forests.data.sanitiser import SanitisedColumns, SanitisedRows
from grovekeeper_forests.data.schema import Schema
from grovekeeper_forests.privacy.calibration import Terms
from grovekeeper_forests.releases.forest.price import PlanRequest, plan
from tests.support.schemas import schema_of

SCHEMA = schema_of(
    {"name": "height", "type": "numeric", "lower": 0, "upper": 1, "missing": True},
    {"name": "colour", "type": "categorical", "categories": ["red", "green", "blue"]},
    {"name": "age", "type": "integer", "lower": 0, "upper": 120},
    classes=["a", "b", "c"],
)


def planned(
    epsilon: str = "1", size: int = 2_000, schema: Schema = SCHEMA, **parameters: object
) -> Plan:
    """A plan of ``rpf`` with the given parameters."""
    return plan(PlanRequest("rpf", parameters, Terms(Fraction(epsilon)), size), schema)


def rows(n_rows: int = 600, seed: int = 3) -> SanitisedRows:
    """Rows whose class depends on height and, in one row of ten, on colour."""
    generator = np.random.default_rng(seed)
    height, colour = (
        generator.random(n_rows),
        generator.integers(0, 3, n_rows).astype(np.int32),
    )
    y = np.where(generator.random(n_rows) < 0.9, np.floor(height * 3), colour).astype(
        np.int32
    )
    height[::17] = np.nan
    columns = SanitisedColumns(
        (height, colour, generator.integers(0, 121, n_rows).astype(float)), n_rows
    )
    return SanitisedRows(columns, y, np.zeros((n_rows, 16), dtype=np.uint8))
