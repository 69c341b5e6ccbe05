"""Chooses the bins of a forest whose trees are released in sequence: public bins, or the bins of a reused profile."""

from app.forests.bins import quantile_bins
from app.forests.bins.reused_profile import ReusedProfile
from app.forests.contract.parameters import Value
from app.forests.data.encoding import Encoding
from app.forests.data.schema import Schema


def encoding_of(schema: Schema, n_bins: Value, profile: ReusedProfile | None) -> Encoding:
    """The bins that splits refer to; planning, growth and prediction all use this function.

    Args:
        schema: public.
        n_bins: public bins per numeric feature, where no profile is reused.
        profile: an earlier release, whose cuts are public.
    """
    if profile is None:
        return Encoding.of(schema, int(n_bins))
    return quantile_bins.encoding(schema, profile.cut_array)
