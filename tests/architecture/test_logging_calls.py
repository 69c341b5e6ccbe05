"""Tests that log calls pass a constant text and public fields; the formatter drops
everything else.
"""

import ast
from pathlib import Path

import pytest

from app.core.logging import PUBLIC_FIELDS
from tests.support.sources import sources

_ROOT = Path(__file__).parents[2]
_METHODS = {"debug", "info", "warning", "error", "exception", "critical"}
_LOGGERS = {"_log", "logger", "log", "_logger"}


def _problems(source: str) -> list[str]:
    problems = []
    for node in ast.walk(ast.parse(source)):
        if not (
            isinstance(node, ast.Call)
            and isinstance(node.func, ast.Attribute)
            and node.func.attr in _METHODS
        ):
            continue
        if not (
            isinstance(node.func.value, ast.Name) and node.func.value.id in _LOGGERS
        ):
            continue
        if not (
            len(node.args) == 1
            and isinstance(node.args[0], ast.Constant)
            and isinstance(node.args[0].value, str)
        ):
            problems.append(f"line {node.lineno}: not one constant text")
        for keyword in node.keywords:
            if keyword.arg == "extra" and not _is_public(keyword.value):
                problems.append(f"line {node.lineno}: not public fields")
    return problems


def _is_public(extra: ast.expr) -> bool:
    return isinstance(extra, ast.Dict) and all(
        isinstance(key, ast.Constant) and key.value in PUBLIC_FIELDS
        for key in extra.keys
    )


def _sources() -> list[Path]:
    return [path for path in sources() if path.name != "logging.py"]


@pytest.mark.parametrize(
    "path", _sources(), ids=lambda path: str(path.relative_to(_ROOT))
)
def test_log_calls_pass_public_fields_only(path: Path) -> None:
    assert _problems(path.read_text(encoding="utf-8")) == []


def test_the_check_finds_fields_that_are_not_public() -> None:
    assert _problems("_log.info('ended', extra={'job_id': job})") == []
    assert (
        len(
            _problems(
                "_log.info('%s ended', job)\nlogger.error(str(e))\nlog.info('a', extra={'rows': 3})"
            )
        )
        == 3
    )
