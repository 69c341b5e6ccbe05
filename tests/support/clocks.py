"""A clock that a test moves."""

from app.access.keys import elapsed_s


class StoppedClock:
    """The seconds since the start of the machine, as they were when it was made; a test
    moves ``now_s``.
    """

    def __init__(self) -> None:
        self.now_s = elapsed_s()

    def __call__(self) -> float:
        return self.now_s
