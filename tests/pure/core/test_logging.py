"""Tests that log lines carry constant texts and public fields only."""

import asyncio
import errno
import io
import json
import logging as stdlib_logging
import sqlite3
import ssl
from typing import Any

import pytest

from app.core import logging, stamps


@pytest.fixture
def lines() -> "_Lines":
    stream = _Lines()
    logging.configure("INFO", stream=stream)
    return stream


class _Lines(io.StringIO):
    def parsed(self) -> list[dict[str, Any]]:
        return [json.loads(line) for line in self.getvalue().splitlines()]


@pytest.mark.parametrize("name", ["app.worker", "grovekeeper_forests.noise.randomness"])
def test_a_line_is_one_object_with_public_fields_only(lines: _Lines, name: str) -> None:
    logger = stdlib_logging.getLogger(name)
    logger.info("a job\nended", extra={"job_id": "jb_1", "rows": 48_842})
    (line,) = lines.parsed()
    at = line.pop("at")
    assert stamps.to_text(stamps.from_text(at)) == at
    assert line == {
        "level": "INFO",
        "logger": name,
        "message": "a job\nended",
        "job_id": "jb_1",
    }


def test_lines_of_a_request_and_its_threads_name_it(lines: _Lines) -> None:
    logger = stdlib_logging.getLogger("app.services")
    with logging.about(request_id="r1"), logging.about(job_id="jb_1"):
        asyncio.run(asyncio.to_thread(logger.info, "a job was charged"))
    logger.info("later")
    assert [
        (line.get("request_id"), line.get("job_id")) for line in lines.parsed()
    ] == [("r1", "jb_1"), (None, None)]


def test_arguments_of_a_message_are_not_written(lines: _Lines) -> None:
    stdlib_logging.getLogger("other.library").warning(
        "bad cell %r in %s", "PRIVATE", "column"
    )
    assert lines.parsed()[0]["message"] == "bad cell %r in %s"
    assert "PRIVATE" not in lines.getvalue()


def test_texts_of_objects_after_the_first_line_of_a_library_are_not_written(
    lines: _Lines,
) -> None:
    class Result:
        def __repr__(self) -> str:
            return "PRIVATE"

    loop = asyncio.new_event_loop()
    loop.call_exception_handler({"message": "a task failed", "future": Result()})
    loop.close()
    assert lines.parsed()[0]["message"] == "a task failed"
    assert "PRIVATE" not in lines.getvalue()


def test_patterns_of_the_server_without_their_arguments_are_not_written(
    lines: _Lines,
) -> None:
    server = stdlib_logging.getLogger("uvicorn.error")
    server.info("Started server process [%d]", 7)
    server.warning("Invalid HTTP request received.")
    assert [line["message"] for line in lines.parsed()] == [
        "Invalid HTTP request received."
    ]


def test_an_error_is_logged_as_its_type_and_its_places_in_the_code(
    lines: _Lines,
) -> None:
    try:
        int("PRIVATE")
    except ValueError:
        stdlib_logging.getLogger("app").exception("ingestion broke")
    error = lines.parsed()[0]["error"]
    assert error["type"] == "builtins.ValueError"
    assert error["at"][-1].endswith(
        "test_an_error_is_logged_as_its_type_and_its_places_in_the_code"
    )
    assert "PRIVATE" not in lines.getvalue()


@pytest.mark.parametrize(
    ("error", "code"),
    [
        (OSError(errno.ENOSPC, "PRIVATE", "PRIVATE"), "ENOSPC"),
        (OSError("PRIVATE"), None),
        (ssl.SSLError(1, "PRIVATE"), None),
        (sqlite3.OperationalError("PRIVATE"), None),
        (ValueError("PRIVATE"), None),
    ],
)
@pytest.mark.parametrize("is_cause", [False, True])
def test_a_code_of_the_system_is_logged_by_its_name(
    lines: _Lines, error: Exception, code: str | None, *, is_cause: bool
) -> None:
    try:
        if is_cause:
            raise RuntimeError("PRIVATE") from error
        raise error
    except Exception:
        stdlib_logging.getLogger("app").exception("a task failed")
    assert lines.parsed()[0]["error"].get("code") == code
    assert "PRIVATE" not in lines.getvalue()


def test_a_message_that_is_no_text_is_logged_as_its_type(lines: _Lines) -> None:
    stdlib_logging.getLogger("app").error(
        ValueError("PRIVATE"), extra={"status": {1, 2}}
    )
    (line,) = lines.parsed()
    assert (line["message"], line["status"]) == ("ValueError", "set")
    assert "PRIVATE" not in lines.getvalue()


def test_configuring_again_does_not_double_the_lines(lines: _Lines) -> None:
    logging.configure("WARNING", stream=lines)
    stdlib_logging.getLogger("app").info("below the level")
    stdlib_logging.getLogger("app").warning("once")
    assert [line["message"] for line in lines.parsed()] == ["once"]
