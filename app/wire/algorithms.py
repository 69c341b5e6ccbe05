"""Defines the types of ``/algorithms``."""

from app.wire.base import Answer
from grovekeeper_common.json_types import JsonObject


class MeasuredOut(Answer):
    dataset: str
    accountant: str
    epsilon: str
    percent: str


class AboutOut(Answer):
    claimed: str | None
    wrong: str | None
    here: str
    proof: str | None
    results: str
    accuracy: list[MeasuredOut]


class AlgorithmOut(Answer):
    """An algorithm, with its claims, its parameters and the accountants that can price
    it.
    """

    slug: str
    title: str
    source: str
    about: AboutOut
    accountants: list[str]
    adjacency: str
    unlabelled: bool
    read_outs: list[str]
    predicts_numbers: bool
    parameters: list[JsonObject]


class AlgorithmList(Answer):
    algorithms: list[AlgorithmOut]
