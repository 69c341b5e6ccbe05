"""When what is left of a budget ends, by its charges of the last days."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import timedelta

import pytest
from sqlalchemy import Engine, event

from app.core import limits, stamps
from app.ledger import statements
from app.services import attention
from app.services.datasets.erase import delete_dataset
from app.services.datasets.show import list_datasets, show_dataset
from app.services.ledger.pace import paces
from app.services.pagination import PageRequest
from app.wire.datasets import PaceOut
from tests.support.clocks import database_tells
from tests.support.crash_scene import OWNER, Scene
from tests.support.job_kinds import run

pytestmark = [pytest.mark.contract, pytest.mark.in_turn("database_url")]

DAY = timedelta(days=1)


def pace_after(scene: Scene, days: float) -> PaceOut | None:
    """The pace as it is shown some days after now."""
    with (
        database_tells(stamps.now() + days * DAY),
        scene.installation.database.read() as session,
    ):
        id_ = scene.dataset_id
        balances = {id_: statements.balance(session, id_)}
        return paces(session, balances).get(id_)


@contextmanager
def listening(engine: Engine, hear: Callable[[object], None]) -> Iterator[None]:
    """Tells of each statement that an engine sends."""

    def note(*arguments: object) -> None:
        hear(arguments[2])

    event.listen(engine, "before_cursor_execute", note)
    try:
        yield
    finally:
        event.remove(engine, "before_cursor_execute", note)


def day_after(days: float) -> str:
    """A day as answers have it."""
    return (stamps.now() + days * DAY).date().isoformat()


def test_a_pace_counts_the_days_since_the_first_charge(scene: Scene) -> None:
    assert pace_after(scene, 10) is None
    scene.charge_external(key="first", epsilon="0.25")
    # what was charged a minute ago says nothing about thirty days
    assert pace_after(scene, 0) is None
    assert pace_after(scene, limits.MIN_PACE_DAYS - 0.01) is None
    # 2.75 of 3 is left: eleven times ten days
    earliest = day_after(120)
    shown = pace_after(scene, 10)
    assert shown is not None
    assert (shown.days, shown.charged) == (10, "0.25")
    # a test that begins just before midnight may end on the next day, and each second
    # since the charge counts eleven times
    assert shown.ends_on is not None
    assert earliest <= shown.ends_on <= day_after(120.01)
    later = pace_after(scene, limits.PACE_DAYS - 0.01)
    assert later is not None
    assert later.days == limits.PACE_DAYS - 1
    assert pace_after(scene, limits.PACE_DAYS + 0.01) is None


def test_a_pace_counts_the_charges_of_the_tightest_cell(scene: Scene) -> None:
    for cell, epsilon in ((0, "0.5"), (1, "0.25")):
        scene.submit(key=epsilon, scope={"shard": [cell]}, epsilon=epsilon)
        run(scene)
    shown = pace_after(scene, 20)
    assert shown is not None
    assert (shown.charged, shown.days) == ("0.5", 20)
    scene.lower_cap("0.5", key="lower")
    assert pace_after(scene, 20) is None, "nothing is left"


def test_a_pace_costs_no_statement_for_each_scope(scene: Scene) -> None:
    engine = scene.installation.database.engine
    counts = []
    for cell in (0, 1, 2):
        scene.submit(key=f"{cell}", scope={"shard": [cell]}, epsilon="0.25")
        run(scene)
        pace_after(scene, 10)  # reads the newest entries into the kept state
        statements_sent = list[object]()
        with listening(engine, statements_sent.append):
            pace_after(scene, 10)
        counts.append(len(statements_sent))
    assert counts[0] == counts[-1]


def test_an_erased_dataset_has_no_pace(
    scene: Scene, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(limits, "MIN_PACE_DAYS", 0)
    scene.charge_external(key="first", epsilon="0.25")
    assert show_dataset(scene.installation, OWNER, scene.dataset_id).pace is not None
    delete_dataset(scene.installation, OWNER, scene.dataset_id)
    assert show_dataset(scene.installation, OWNER, scene.dataset_id).pace is None


def test_an_end_beyond_ten_years_is_none(scene: Scene) -> None:
    scene.charge_external(key="small", epsilon="0.005")
    shown = pace_after(scene, 10)
    assert shown == PaceOut(days=10, charged="0.005", ends_on=None)


def test_no_more_than_the_newest_entries_are_read(
    scene: Scene, monkeypatch: pytest.MonkeyPatch
) -> None:
    for number in range(3):
        scene.charge_external(key=f"{number}", epsilon="0.25")
    # each is reserved and charged
    monkeypatch.setattr(limits, "MAX_PACE_ENTRIES", 4)
    shown = pace_after(scene, 10)
    assert shown is not None
    assert shown.charged == "0.5"


def test_lists_and_the_dataset_state_one_pace(
    scene: Scene, monkeypatch: pytest.MonkeyPatch
) -> None:
    scene.charge_external(key="first", epsilon="0.25")
    assert show_dataset(scene.installation, OWNER, scene.dataset_id).pace is None
    monkeypatch.setattr(limits, "MIN_PACE_DAYS", 0)
    by = (scene.installation, OWNER)
    datasets = list_datasets(*by, PageRequest()).datasets
    (listed,) = (item for item in datasets if item.id == scene.dataset_id)
    shown = show_dataset(*by, scene.dataset_id)
    (budget,) = attention.budgets(OWNER, [shown])
    # a charge of seconds ago would end what is left today, or a day later at midnight
    for pace in (shown.pace, listed.pace, budget.pace):
        assert pace is not None
        assert (pace.days, pace.charged) == (0, "0.25")
        assert pace.ends_on in (day_after(-0.01), day_after(0.01))
