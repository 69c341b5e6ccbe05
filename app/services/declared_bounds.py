"""Warns of declared bounds that were read off the rows."""

from app.forests.data.schema import Schema

FROM_ROWS = "rounded-from-data"
_SHOWN = 5


def warnings_of(schema: Schema) -> list[str]:
    """A sentence that names the features whose bounds were read off the rows, if there are any.

    The guarantee takes the declaration as public. Bounds that follow the rows say something about the smallest and the
    largest value, whatever the service does, and no charge covers it.
    """
    names = [feature.name for feature in schema.features if feature.bounds == FROM_ROWS]
    if not names:
        return []
    more = f" and {len(names) - _SHOWN} more" if len(names) > _SHOWN else ""
    return [
        f"The bounds of {', '.join(names[:_SHOWN])}{more} were read off the rows and rounded ({FROM_ROWS}). The "
        "declaration publishes them, and the guarantee does not cover what they say about the rows. Use bounds from a "
        "data dictionary or from the meaning of the column."
    ]
