"""Reads a stored plan as the transaction that charges its job does."""

from grovekeeper_forests.contract.plan import Plan
from grovekeeper_forests.data.schema import Schema
from grovekeeper_forests.releases.forest import price as forest_price


def read_priced(stored: object, schema: Schema) -> Plan:
    """The plan, whose event costs what its parameters cost.

    Raises:
        PlanInvalid: not a plan that this version makes.
    """
    plan = forest_price.read_plan(stored)
    forest_price.require_priced(plan, schema)
    return plan
