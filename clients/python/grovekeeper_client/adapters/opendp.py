"""Charges measurements of OpenDP to the account of a dataset before they read a row.

>>> noisy = opendp.mechanism(census, measurement, description="sum of ages")
>>> noisy.quote()["price"]["amount"]
>>> total = noisy.run(lambda: read_ages("census.csv"))
"""

from typing import Any, Unpack

from grovekeeper_client.adapters.protocol import ChargeOptions, Mechanism, has_unit
from grovekeeper_client.adapters.rounding import Unpriced, upward
from grovekeeper_client.datasets import Dataset
from grovekeeper_common.json_types import JsonObject

_DISTANCE_OF_ROW = {
    "add_remove": {"SymmetricDistance": 1, "InsertDeleteDistance": 1},
    "label": {
        "SymmetricDistance": 2,
        "InsertDeleteDistance": 2,
        "ChangeOneDistance": 1,
    },
}
"""The distance of neighbours in OpenDP's metrics, by adjacency of the account. A changed
label is one row removed and one added.
"""


def mechanism(
    dataset: Dataset,
    measurement: Any,
    *,
    description: str,
    **options: Unpack[ChargeOptions],
) -> Mechanism[Any]:
    """States a measurement at the loss of its own privacy map.

    ``d_in`` is what the account protects: one row, or the ``max_rows`` rows of one unit
    (the map is evaluated there, which is the group privacy that OpenDP proves). The
    input metric is a distance of row lists of unknown length: ``SymmetricDistance`` or
    ``InsertDeleteDistance``; the latter assumes an order in which one row more moves no
    other. ``ChangeOneDistance`` is replace-one and serves accounts that protect labels
    alone. ``d_out`` is ε of ``MaxDivergence``, ρ of ``ZeroConcentratedDivergence``, or
    (ε, δ) of ``Approximate<MaxDivergence>``. OpenDP rounds it up to a float
    (docs.opendp.org, "privacy map"); here it is rounded up to decimal text.

    Args:
        dataset: whose account pays.
        measurement: an ``opendp.mod.Measurement`` over vectors of rows.
        description: what is released; public, for good.
        options: see :class:`~grovekeeper_client.adapters.protocol.ChargeOptions`.

    Raises:
        Unpriced: the measurement has another metric, measure or domain.
    """
    adjacency = dataset.facts["adjacency"]
    distance = _distance_of_row(measurement, adjacency)
    unit = has_unit(dataset)
    max_rows = dataset.facts["privacy_unit"]["max_rows"] if unit else 1
    loss = _loss(measurement, measurement.map(distance * max_rows))
    stated: JsonObject = {
        "description": description,
        "per": "unit" if unit else "row",
        "declared": {"adjacency": adjacency, **loss},
        **options,
    }
    return Mechanism(dataset, stated, measurement)


def _distance_of_row(measurement: Any, adjacency: str) -> int:
    metric = str(measurement.input_metric.type)
    distances = _DISTANCE_OF_ROW[adjacency]
    if metric not in distances:
        raise Unpriced(
            f"the account protects {adjacency}, and {metric} is no distance of it: chain the measurement behind "
            f"transformations from {' or '.join(distances)}"
        )
    domain = measurement.input_domain
    if not str(domain.type).startswith("VectorDomain<"):
        raise Unpriced(f"no price for the domain {domain}: rows are vectors here")
    # Of lists of one length none is another with one row more, so the map at distance 1
    # states nothing, and may be zero.
    if adjacency == "add_remove" and domain.size is not None:
        raise Unpriced(
            f"{domain} fixes the number of rows, which adding a row changes: build the measurement without a size"
        )
    return distances[metric]


def _loss(measurement: Any, d_out: Any) -> dict[str, str]:
    """The declared loss that a ``d_out`` is."""
    measure = str(measurement.output_measure.type)
    if measure == "MaxDivergence":
        return {"epsilon": upward(d_out)}
    if measure == "ZeroConcentratedDivergence":
        return {"rho": upward(d_out)}
    if measure == "Approximate<MaxDivergence>":
        epsilon, delta = d_out
        return {"epsilon": upward(epsilon)} | (
            {"delta": upward(delta)} if delta else {}
        )
    raise Unpriced(
        f"no account counts {measure}: make a pure, a zero-concentrated or, by make_zCDP_to_approxDP and "
        "make_fix_delta, an (ε, δ) measurement"
    )
