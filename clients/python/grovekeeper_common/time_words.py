"""Writes times as words for people."""

from grovekeeper_common.json_types import JsonMapping


def hour_in_words(time: str) -> str:
    """The hour that begins at a time in UTC, as its beginning and its end:
    ``2026-11-30 06:00 to 07:00``. What is known to the hour reads as an exact time if
    only the beginning is shown.

    Args:
        time: ISO 8601 text.
    """
    day, hour = time[:10], int(time[11:13])
    return f"{day} {hour:02}:00 to {hour + 1:02}:00"


def pace_in_words(pace: JsonMapping | None, symbol: str) -> str:
    """When what is left of a budget ends, by its charges of the last days; nothing
    without a pace.

    Args:
        symbol: of the unit of the amounts.
    """
    if pace is None:
        return ""
    end = "lasts for more than ten years"
    if pace["ends_on"] is not None:
        end = f"ends about {pace['ends_on']}"
    charged = f"{pace['charged']} {symbol} was charged in the last {pace['days']} days"
    return f"{charged}. At this pace, what is left {end}."
