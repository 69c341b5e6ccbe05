"""The notebooks of the documentation were executed from top to bottom, without an
error, and show plots.
"""

import ast
import json
import re
from pathlib import Path
from typing import Any

import pytest

_FOLDER = Path(__file__).parents[2] / "docs" / "notebooks"
_NOTEBOOKS = sorted(_FOLDER.glob("*.ipynb"))
_PATH_OF_A_MACHINE = re.compile(r"/(home|root|tmp|Users|work)/")


def test_there_is_one_for_every_story() -> None:
    assert [path.stem for path in _NOTEBOOKS] == [
        "bank-marketing",
        "census",
        "hospital-readmission",
    ]


@pytest.mark.parametrize("path", _NOTEBOOKS, ids=lambda path: path.stem)
def test_it_was_executed_from_top_to_bottom_and_shows_plots(path: Path) -> None:
    cells: list[dict[str, Any]] = json.loads(path.read_text(encoding="utf-8"))["cells"]
    code = [cell for cell in cells if cell["cell_type"] == "code"]
    assert [cell["execution_count"] for cell in code] == list(range(1, len(code) + 1))
    outputs = [output for cell in code for output in cell["outputs"]]
    assert not [output for output in outputs if output["output_type"] == "error"]
    assert not [output for output in outputs if output.get("name") == "stderr"]
    assert [output for output in outputs if "image/png" in output.get("data", {})]
    for cell in code:
        ast.parse("".join(cell["source"]))
    texts = ["".join(cell["source"]) for cell in cells]
    texts += ["".join(output.get("text", "")) for output in outputs]
    texts += [
        "".join(output.get("data", {}).get("text/plain", "")) for output in outputs
    ]
    assert not [text for text in texts if _PATH_OF_A_MACHINE.search(text)]
