import logging
import stat
from pathlib import Path

import pytest

from app.core.errors import InstallationError
from app.core.private_files import close_to_others


def test_the_access_of_other_accounts_is_removed_and_logged_once(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    folder, file, closed = tmp_path / "rows", tmp_path / "storage.key", tmp_path / "signing.key"
    folder.mkdir()
    for path, mode in ((folder, 0o755), (file, 0o640), (closed, 0o400)):
        path.touch()
        path.chmod(mode)
    with caplog.at_level(logging.WARNING):
        close_to_others([folder, file, closed, tmp_path / "absent"])
    assert [stat.S_IMODE(path.stat().st_mode) for path in (folder, file, closed)] == [0o700, 0o600, 0o400]
    assert len(caplog.records) == 2
    caplog.clear()
    close_to_others([folder, file, closed])
    assert caplog.records == []


def test_an_open_file_of_another_account_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = tmp_path / "storage.key"
    file.touch()
    file.chmod(0o644)

    def refuse(_path: Path, _mode: int) -> None:
        raise PermissionError

    monkeypatch.setattr(Path, "chmod", refuse)
    with pytest.raises(InstallationError, match=r"storage\.key, which is not this account's"):
        close_to_others([file])
