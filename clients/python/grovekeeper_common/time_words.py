"""Writes times as words for people."""


def hour_in_words(time: str) -> str:
    """The hour that begins at a time in UTC, as its beginning and its end:
    ``2026-11-30 06:00 to 07:00``. What is known to the hour reads as an exact time if
    only the beginning is shown.

    Args:
        time: ISO 8601 text.
    """
    day, hour = time[:10], int(time[11:13])
    return f"{day} {hour:02}:00 to {hour + 1:02}:00"
