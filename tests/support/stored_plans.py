"""Reads a stored plan as the transaction that charges its job does."""

from app.forests import catalogue
from app.forests.contract.plan import Plan
from app.forests.data.schema import Schema


def read_priced(stored: object, schema: Schema) -> Plan:
    """The plan, whose event costs what its parameters cost.

    Raises:
        PlanInvalid: not a plan that this version makes.
    """
    plan = catalogue.read_plan(stored)
    catalogue.require_priced(plan, schema)
    return plan
