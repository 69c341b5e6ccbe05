"""What threads make of parts arrives in order, and a failure in a thread reaches the
caller.
"""

from threading import Event, Timer, current_thread

import pytest

from grovekeeper_forests.data.coded_rows import made_ahead

_GIVE_UP_S = 30


def test_the_next_part_is_made_while_the_caller_works_on_one() -> None:
    made_third, started = Event(), []

    def make(part: int) -> int:
        started.append((part, current_thread()))
        if part == 2:
            made_third.set()
        return part * part

    ahead = made_ahead(range(3), make)
    assert next(ahead) == 0
    assert next(ahead) == 1
    assert made_third.wait(_GIVE_UP_S), (
        "the third part is made before the caller asks for it"
    )
    assert list(ahead) == [4]
    assert [part for part, _ in started] == [0, 1, 2]
    assert current_thread() not in {thread for _, thread in started}


def test_of_no_parts_nothing_is_made() -> None:
    assert list(made_ahead((), str)) == []


def test_a_failure_arrives_at_the_place_of_its_part() -> None:
    ahead = made_ahead((1, 0, 2), lambda part: 1 / part)
    assert next(ahead) == 1
    with pytest.raises(ZeroDivisionError):
        next(ahead)
    assert list(ahead) == []


def test_closing_waits_for_the_part_that_is_being_made() -> None:
    may_end, ended = Event(), []

    def make(part: int) -> int:
        if part == 1:
            may_end.wait(_GIVE_UP_S)
        ended.append(part)
        return part

    ahead = made_ahead((0, 1, 2), make)
    assert next(ahead) == 0
    Timer(0.1, may_end.set).start()
    ahead.close()
    assert ended == [0, 1]
