"""Takes the pictures of the dashboard for the guides: ``python -m benchmarks.screenshots``.

Starts the demo in a temporary home, signs in with its admin key, and ends the demo. Needs Chromium (``CHROMIUM`` names
another program).
"""

import os
import signal
import subprocess
import sys
import tempfile
from pathlib import Path

from playwright.sync_api import sync_playwright

from benchmarks.guide_pictures import FOLDER
from grovekeeper_client.client import Client

_FLAGS = ("--no-sandbox", "--disable-gpu", "--disable-quic", "--disable-background-networking")
_READY = "Grovekeeper is ready at "
_SIZE = {"width": 1100, "height": 760}


def take(url: str, key: str) -> None:
    """Saves a picture of each page of the running demo."""
    with Client(url, key) as client:
        dataset, model = next(client.datasets())["id"], next(client.models())["id"]
    pages = {
        "dashboard-datasets": "/",
        "dashboard-dataset": f"/ui/datasets/{dataset}",
        "dashboard-quote": f"/ui/datasets/{dataset}/train?epsilon=0.5",
        "dashboard-model": f"/ui/models/{model}",
    }
    program = os.environ.get("CHROMIUM", "/usr/bin/chromium")
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=program, args=list(_FLAGS))
        page = browser.new_page(viewport=_SIZE)
        page.goto(url)
        page.fill("#key", key)
        page.get_by_role("button", name="Sign in").click()
        for name, path in pages.items():
            page.goto(f"{url}{path}")
            page.screenshot(path=FOLDER / f"{name}.png")
        browser.close()


def main() -> None:
    """Runs the demo, takes the pictures, and interrupts the demo."""
    with tempfile.TemporaryDirectory() as folder:
        home = Path(folder) / "home"
        command = [sys.executable, "-m", "app.cli", "demo", "--port", "0", "--home", str(home)]
        demo = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
        assert demo.stdout is not None
        lines = []
        for line in demo.stdout:
            lines.append(line)
            if "Open the dashboard" in line:
                break
        url = next(line for line in lines if line.startswith(_READY)).removeprefix(_READY).strip()
        try:
            take(url, (home / "admin.key").read_text(encoding="utf-8").strip())
        finally:
            demo.send_signal(signal.SIGINT)
            demo.wait(timeout=60)


if __name__ == "__main__":
    main()
