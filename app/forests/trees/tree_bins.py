"""The bins of forests that release one tree after another: public ones, or those of a profile that is reused."""

from app.forests.bins import quantile_bins
from app.forests.bins.reused_profile import ReusedProfile
from app.forests.contract.parameters import Value
from app.forests.data.encoding import Encoding
from app.forests.data.schema import Schema


def encoding_of(schema: Schema, n_bins: Value, profile: ReusedProfile | None) -> Encoding:
    """What splits count in, the same in plans, in growth and in prediction.

    Args:
        schema: public.
        n_bins: public bins per number, where no profile is reused.
        profile: released before; its cuts are then as public as equal steps are.
    """
    if profile is None:
        return Encoding.of(schema, int(n_bins))
    return quantile_bins.encoding(schema, profile.cut_array)
