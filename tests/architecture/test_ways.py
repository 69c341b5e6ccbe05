"""Counts the code that a request or a job enters, and the size and density of the code,
against upper limits.

A reader of a request has to hold every function in mind that the request enters. A
limit is what was measured when it was set, and 3 % are free; a change that needs more
needs a record in docs/adr, and a change that saves a fifth has to lower the limit.
``python -m tests.support.ruler`` prints all numbers.
"""

import ast
from pathlib import Path

import pytest

from app.core.settings import Settings
from tests.support import ruler
from tests.support.databases import MigratedDatabase
from tests.support.ruler import CODE, SERVICE, TESTS, Way
from tests.support.sources import sources

FUNCTIONS = {
    "POST /train": 281,
    "GET /ledger/{id}": 155,
    "POST /models/{id}/predict, warm": 66,
    "POST /models/{id}/predict, cold": 220,
    "POST /models/{id}/evaluations": 272,
    "a job": 533,
}
"""The largest number of functions that each way enters: HTTP layers, transaction and,
for a job, the child.
"""

TOKENS = {
    "POST /train": 23_000,
    "GET /ledger/{id}": 10_510,
    "POST /models/{id}/predict, warm": 6_000,
    "POST /models/{id}/predict, cold": 19_270,
    "POST /models/{id}/evaluations": 21_200,
    "a job": 43_240,
}
"""The largest number of code tokens in the bodies of those functions. A longer function
does not save a reader.
"""

SIZES = {
    "code tokens": 486_600,
    "files with TYPE_CHECKING": 7,
    "imports in functions": 52,
}
"""The largest size of the code. Limits on lines and files rewarded packed lines and
joined files (ADR 0049).
"""

DENSITIES = {
    "service": {
        "tokens a line": 7.5,
        "% of dense lines": 3.0,
        "comprehensions": 23.4,
        "ternaries": 11.6,
    },
    "tests": {
        "tokens a line": 8.5,
        "% of dense lines": 6.1,
        "comprehensions": 33.3,
        "ternaries": 7.1,
    },
}
"""The largest densities. A line with more than 20 tokens is dense; the last two are per
1,000 lines of code.
"""

MIN_COMMENTS = 1.95
"""The smallest number of comments per 100 lines of code, those in ``limits.py`` left
out.
"""

SLACK = 1.03


@pytest.fixture(scope="module")
def entered(
    tmp_path_factory: pytest.TempPathFactory, migrated_database: MigratedDatabase
) -> dict[str, Way]:
    """What each way enters."""
    folder = tmp_path_factory.mktemp("ways")
    with migrated_database("sqlite", folder) as url:
        return ruler.ways(Settings(home=folder / "home", database_url=url))


@pytest.mark.parametrize("way", FUNCTIONS)
def test_a_way_enters_few_functions(entered: dict[str, Way], way: str) -> None:
    functions = entered[way].functions
    _require_at_most(
        FUNCTIONS[way],
        len(functions),
        f"functions entered by {way}: {', '.join(functions)}",
    )


@pytest.mark.parametrize("way", TOKENS)
def test_a_way_enters_little_code(entered: dict[str, Way], way: str) -> None:
    _require_at_most(
        TOKENS[way],
        entered[way].n_tokens,
        f"code tokens in the functions entered by {way}",
    )


def test_the_code_is_small() -> None:
    texts = [path.read_text(encoding="utf-8") for path in sources()]
    trees = list(map(ast.parse, texts))
    sizes = {
        "code tokens": ruler.size(*CODE).tokens,
        "files with TYPE_CHECKING": sum("if TYPE_CHECKING" in text for text in texts),
        "imports in functions": sum(len(_imports_in_functions(tree)) for tree in trees),
    }
    assert sizes.keys() == SIZES.keys()
    for name, number in sizes.items():
        _require_at_most(SIZES[name], number, f"{name} of the code")


@pytest.mark.parametrize(
    ("name", "folders"),
    [
        ("service", SERVICE),
        pytest.param("tests", (TESTS,), marks=pytest.mark.long),  # 10 s
    ],
)
def test_lines_are_not_dense(name: str, folders: tuple[Path, ...]) -> None:
    size = ruler.size(*folders)
    densities = {
        "tokens a line": size.tokens / size.code_lines,
        "% of dense lines": 100 * size.dense_lines / size.code_lines,
        "comprehensions": size.per_thousand_lines(size.comprehensions),
        "ternaries": size.per_thousand_lines(size.ternaries),
    }
    assert densities.keys() == DENSITIES[name].keys()
    for measure, density in densities.items():
        _require_at_most(DENSITIES[name][measure], density, f"{measure} in {name}")


def test_comments_that_say_why_do_not_get_lost() -> None:
    size = ruler.size(*CODE)
    assert 100 * size.comments / size.code_lines >= MIN_COMMENTS


def _imports_in_functions(tree: ast.Module) -> set[ast.AST]:
    functions = (
        node
        for node in ast.walk(tree)
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
    )
    inside = (node for function in functions for node in ast.walk(function))
    return {node for node in inside if isinstance(node, ast.Import | ast.ImportFrom)}


def _require_at_most(limit: float, number: float, what: str) -> None:
    assert number <= limit * SLACK, (
        f"{number:.4g} instead of at most {limit:.4g} {what}"
    )
    assert number > limit * 4 / 5, (
        f"lower the limit of {limit:.4g} to {number:.4g} {what}"
    )
