"""A kind of release that the service does not have, the noisy number of rows: four
files, and a line in each list of all kinds (CONTRIBUTING.md).
"""

from types import ModuleType
from typing import Any

from app.api import main
from app.services.drawing import perform
from app.services.releases import kinds
from grovekeeper_forests.releases import names
from tests.support.noisy_count.draw import draw
from tests.support.noisy_count.service import COUNT, CountKind, routes

LINES: tuple[tuple[ModuleType, str, Any], ...] = (
    (names, "IN_WORDS", {**names.IN_WORDS, COUNT: "count"}),
    (kinds, "KINDS", {**kinds.KINDS, COUNT: CountKind()}),
    (perform, "DRAW", {**perform.DRAW, COUNT: draw}),
    (main, "ROUTERS", (*main.ROUTERS, routes)),
)
"""A line in each of four lists; the service would have it in the list's own file."""
