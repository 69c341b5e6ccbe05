"""Tests that concurrent writers of heads never write a smaller or a wrong head while
entries are appended.
"""

import threading
from pathlib import Path

from app.services.ledger.heads import Heads
from tests.support.crash_scene import opened
from tests.support.evidence import head_folder

N_WRITERS = 6
N_JOBS = 25


def test_heads_only_grow_while_many_write_them(
    database_url: str, tmp_path: Path
) -> None:
    """Each writer has its own state and opens the lock file itself, as a process would."""
    with opened(database_url, tmp_path / "home") as scene:
        Heads(scene.installation).confirm()
        folder = head_folder(scene.installation)
        done, sizes, failures = threading.Event(), [0], []

        def write() -> None:
            try:
                while not done.is_set():
                    Heads(scene.installation).publish()
            except Exception as error:  # noqa: BLE001  # the test fails with any failure of a thread
                failures.append(error)

        def watch() -> None:
            try:
                while not done.is_set():
                    sizes.extend(
                        head.size
                        for head in folder.read_all()
                        if head.account_id == scene.dataset_id
                    )
            except Exception as error:  # noqa: BLE001  # the test fails with any failure of a thread
                failures.append(error)

        threads = [threading.Thread(target=write) for _ in range(N_WRITERS)] + [
            threading.Thread(target=watch)
        ]
        for thread in threads:
            thread.start()
        for number in range(N_JOBS):
            scene.submit(key=f"k{number}")
        done.set()
        for thread in threads:
            thread.join()
        assert failures == []
        assert sizes == sorted(sizes)
        Heads(scene.installation).publish()
        assert max(head.size for head in folder.read_all()) == 1 + N_JOBS
        Heads(scene.installation).confirm()
