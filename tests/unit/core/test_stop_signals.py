"""Tests what the first and the second signal ask of a process."""

import os
import signal

import pytest

from app.core.stop_signals import TERMINAL_SIGNALS, stop_signals


@pytest.mark.parametrize("first", TERMINAL_SIGNALS)
def test_the_first_signal_begins_a_stop_and_handlers_are_given_back(first: signal.Signals) -> None:
    before = signal.getsignal(first)
    with stop_signals() as stop:
        assert not stop.begun.is_set()
        os.kill(os.getpid(), first)
        assert stop.begun.wait(5)
        assert not stop.now.is_set()
    assert signal.getsignal(first) is before


@pytest.mark.parametrize("first", [signal.SIGTERM, signal.SIGINT])
@pytest.mark.parametrize("second", [signal.SIGTERM, signal.SIGINT])
def test_the_second_signal_means_now(first: signal.Signals, second: signal.Signals) -> None:
    with stop_signals() as stop:
        os.kill(os.getpid(), first)
        assert stop.begun.wait(5)
        os.kill(os.getpid(), second)
        assert stop.now.wait(5)


def test_a_terminal_that_closes_is_never_the_second_signal() -> None:
    with stop_signals() as stop:
        for number in (signal.SIGTERM, signal.SIGHUP, signal.SIGHUP):
            os.kill(os.getpid(), number)
        assert stop.begun.wait(5)
        assert not stop.now.is_set()
