"""The built site, opened from a folder in a real Chromium: its search works, and
nothing comes from elsewhere.
"""

import os
import subprocess
import sys
from pathlib import Path

import pytest
from playwright.sync_api import expect, sync_playwright

from tests.support.chromium import CHROMIUM, FLAGS

ROOT = Path(__file__).parents[2]

pytestmark = [
    pytest.mark.browser,
    pytest.mark.skipif(CHROMIUM is None, reason="no Chromium on the PATH"),
]


def test_the_search_of_a_site_in_a_folder_finds_pages(tmp_path: Path) -> None:
    command = [
        sys.executable,
        "-m",
        "mkdocs",
        "build",
        "--quiet",
        "--strict",
        "--site-dir",
        str(tmp_path / "site"),
    ]
    subprocess.run(
        command, cwd=ROOT, check=True, env=os.environ | {"NO_MKDOCS_2_WARNING": "1"}
    )
    elsewhere: list[str] = []
    with sync_playwright() as playwright:
        chromium = playwright.chromium.launch(executable_path=CHROMIUM, args=FLAGS)
        page = chromium.new_page()
        page.on(
            "request",
            lambda asked: (
                None
                if asked.url.startswith(("file:", "data:"))
                else elsewhere.append(asked.url)
            ),
        )
        page.goto((tmp_path / "site" / "index.html").as_uri())
        search = page.get_by_role("textbox", name="Search")
        search.click()
        search.press_sequentially("truncated")
        expect(page.locator(".md-search-result__item").first).to_contain_text(
            "truncated", ignore_case=True, timeout=120_000
        )
        chromium.close()
    assert elsewhere == []
