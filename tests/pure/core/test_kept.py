"""Properties that are computed once for each object."""

from dataclasses import dataclass
from threading import Event, Thread

from grovekeeper_forests.kept import kept_property

WAIT_S = 30


@dataclass(frozen=True)
class Declared:
    """A value that is computed when it may be."""

    may_compute: Event
    computing: Event

    @kept_property
    def value(self) -> object:
        """Another object at each computation."""
        self.computing.set()
        assert self.may_compute.wait(WAIT_S)
        return object()


def test_a_value_is_computed_once() -> None:
    declared = Declared(Event(), Event())
    declared.may_compute.set()
    assert declared.value is declared.value


def test_the_value_of_one_object_waits_for_that_of_no_other() -> None:
    large, small = Declared(Event(), Event()), Declared(Event(), Event())
    small.may_compute.set()
    values: list[object] = []
    first = Thread(target=lambda: values.append(large.value), daemon=True)
    second = Thread(target=lambda: values.append(small.value), daemon=True)
    first.start()
    assert large.computing.wait(WAIT_S)
    second.start()
    second.join(WAIT_S)
    assert values == [small.value]
    large.may_compute.set()
    first.join(WAIT_S)
    assert values == [small.value, large.value]
