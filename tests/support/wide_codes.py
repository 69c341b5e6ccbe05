"""Encodes rows by bins that may be more than 256, column by column, as jobs encode the
rows of files.
"""

import numpy as np

from grovekeeper_forests.data.encoding import Encoding
from grovekeeper_forests.data.sanitiser import SanitisedColumns


def wide_codes(public: Encoding, rows: SanitisedColumns) -> np.ndarray:
    """uint16 ``(n_features, n_rows)``."""
    return np.stack(
        [
            public.tables.wide_codes(index, column)
            for index, column in enumerate(rows.columns)
        ]
    )
