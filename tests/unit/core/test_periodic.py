"""Tests of a task that a thread repeats."""

import threading

from app.core.periodic import Periodic


def test_a_task_is_repeated_until_the_end_although_it_fails() -> None:
    turns = threading.Semaphore(0)

    def fail(_: threading.Event) -> None:
        turns.release()
        raise OSError("no database now")

    task = Periodic("test", fail, interval_s=0.001)
    task.start()
    for _ in range(3):
        assert turns.acquire(timeout=60)
    task.stop()


def test_a_task_learns_that_its_thread_is_to_end() -> None:
    begun, ended = threading.Event(), threading.Event()

    def wait_for_the_end(stopping: threading.Event) -> None:
        begun.set()
        assert stopping.wait(60)
        ended.set()

    task = Periodic("test", wait_for_the_end, interval_s=60)
    task.start()
    assert begun.wait(60)
    task.stop()
    assert ended.wait(60)
