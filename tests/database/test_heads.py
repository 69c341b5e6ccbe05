"""Head files beside both databases: written after commits, never reduced, compared
after a restore.
"""

import shutil
import sqlite3
from collections.abc import Callable, Iterator
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from unittest.mock import patch

import pytest

from app.core.errors import BalanceMismatch, InstallationError, LedgerRewound
from app.core.processes import Stop
from app.core.settings import Settings
from app.jobs import queue
from app.ledger import checkpoints, control
from app.ledger.checkpoints import Checkpoint, Signer
from app.services.datasets.erase import delete_dataset
from app.services.execution import run_job
from app.services.installation import Installation
from app.services.keys import revoke_key
from app.services.ledger.heads import Heads, HeadWriter, checkpoint_of, replace_signer
from app.worker.main import _Loop
from tests.support.crash_scene import (
    ADMIN,
    OWNER,
    STRANGER,
    Scene,
    open_account,
    open_installation,
    opened,
)
from tests.support.databases import MigratedDatabase, on_one_database
from tests.support.evidence import head_folder

pytestmark = pytest.mark.contract


@pytest.fixture
def scene(scene: Scene) -> Scene:
    scene.submit(key="first")
    return scene


@pytest.fixture
def empty_installation(
    migrated_database: MigratedDatabase, tmp_path: Path
) -> Iterator[Installation]:
    folder = tmp_path / "other"
    folder.mkdir()
    with migrated_database("sqlite", folder) as url:
        empty = open_installation(url, folder / "home")
        yield empty
        empty.close()


def _written(scene: Scene) -> dict[str, int]:
    """Sizes of the heads of accounts, without the control chain."""
    heads = head_folder(scene.installation).read_all()
    return {
        head.account_id: head.size for head in heads if head.account_id != control.CHAIN
    }


def _newest(scene: Scene) -> Checkpoint:
    """The head of the dataset's account."""
    (newest,) = (
        h
        for h in head_folder(scene.installation).read_all()
        if h.account_id == scene.dataset_id
    )
    return newest


def _file(scene: Scene) -> Path:
    (file,) = (scene.installation.home / "checkpoints").glob(
        f"{scene.dataset_id}.*.checkpoint"
    )
    return file


def _head(scene: Scene, size: int) -> Checkpoint:
    with scene.installation.database.read() as session:
        return checkpoint_of(session, scene.dataset_id, size)


def _in_the_way(folder: Path) -> None:
    shutil.rmtree(folder)
    folder.write_text("in the way")


def test_heads_follow_the_entries_and_hold(scene: Scene) -> None:
    heads = Heads(scene.installation)
    assert _written(scene) == {}
    heads.publish()
    assert _written(scene) == {scene.dataset_id: 2}
    open_account(scene.installation, "ds_other", cap=5)
    scene.submit(key="second")
    heads.publish()
    assert _written(scene) == {scene.dataset_id: 3, "ds_other": 1}
    Heads(scene.installation).confirm()


def test_a_head_is_the_signed_root_of_all_entries(scene: Scene) -> None:
    Heads(scene.installation).publish()
    assert replace(_newest(scene), at="") == replace(_head(scene, 2), at="")


def test_entries_after_the_last_head_do_not_contradict_it(scene: Scene) -> None:
    """A process that is killed between a commit and the write of its head leaves a
    consistent database.
    """
    Heads(scene.installation).publish()
    scene.submit(key="unpublished")
    Heads(scene.installation).confirm()


def test_a_head_never_goes_back(scene: Scene) -> None:
    heads = Heads(scene.installation)
    heads.publish()
    folder = head_folder(scene.installation)
    newest = _newest(scene)
    for other in (_head(scene, 1), replace(newest, root=bytes(32))):
        folder.write(other, heads.signer.sign(other))
        assert _newest(scene) == newest, (
            "a head of the same size is evidence of another history"
        )


@pytest.mark.parametrize("forged", ["longer", "other root", "missing account"])
def test_a_database_that_contradicts_a_head_is_refused(
    scene: Scene, forged: str
) -> None:
    head = _head(scene, 2)
    head = {
        "longer": replace(head, size=3),
        "other root": replace(head, root=bytes(32)),
        "missing account": replace(head, account_id="ds_gone"),
    }[forged]
    signer, heads = Heads(scene.installation).signer, Heads(scene.installation)
    head_folder(scene.installation).write(head, signer.sign(head))
    for _ in range(2):
        with pytest.raises(LedgerRewound, match=head.account_id):
            heads.confirm()
        with pytest.raises(LedgerRewound):
            heads.publish()
    assert "See the operator's guide" in str(LedgerRewound("ds_1"))
    assert _written(scene)[head.account_id] == head.size, (
        "a refusal overwrites no evidence"
    )


@on_one_database
def test_two_signed_heads_of_one_size_with_other_roots_are_refused(
    scene: Scene,
) -> None:
    """Each is true of one history, and the database has one of them."""
    heads = Heads(scene.installation)
    heads.publish()
    other = replace(_newest(scene), root=bytes(32))
    # without its size, as earlier versions named it
    file = _file(scene).with_name(f"{scene.dataset_id}.checkpoint")
    file.write_text(heads.signer.sign(other), encoding="utf-8")
    with pytest.raises(LedgerRewound, match=scene.dataset_id):
        Heads(scene.installation).confirm()


@on_one_database
@pytest.mark.parametrize("signature", ["of another key", "of another head", "none"])
def test_a_head_without_a_signature_of_the_pinned_key_is_refused(
    scene: Scene, signature: str
) -> None:
    """A forged head of size 1 would let a database start that is older than the true
    head.
    """
    heads = Heads(scene.installation)
    heads.publish()
    file = _file(scene)
    signed, forged = heads.signer.sign(_head(scene, 2)), _head(scene, 1)
    note = {
        "of another key": Signer.open(
            scene.installation.home / "other.key", make=True
        ).sign(forged),
        "of another head": forged.text() + signed[signed.index("\n— ") :],
        "none": f"{forged.text()}\n— grovekeeper AAAA\n",
    }[signature]
    file.write_text(note, encoding="utf-8")
    other = Heads(scene.installation)
    for _ in range(2):
        with pytest.raises(LedgerRewound, match="signed by another key"):
            other.confirm()
    assert other.rewound is not None, "released models are not served either"
    scene.submit(key="second")
    heads.publish()
    assert file.read_text(encoding="utf-8") == note, (
        "evidence is neither overwritten nor removed"
    )
    with pytest.raises(LedgerRewound, match="signed by another key"):
        Heads(scene.installation).confirm()


def test_a_missing_signing_key_is_not_replaced_without_a_command(scene: Scene) -> None:
    key = scene.installation.home / "signing.key"
    heads = Heads(scene.installation)
    heads.publish()
    lost = key.rename(scene.installation.home / "kept")
    with pytest.raises(InstallationError, match=r"signing\.key is missing.*new-signer"):
        Heads(scene.installation).confirm()
    assert not key.exists()
    lost.rename(key)
    with pytest.raises(InstallationError, match="is the signing key already"):
        replace_signer(scene.installation.settings, scene.installation.database)
    key.unlink()
    second = replace_signer(scene.installation.settings, scene.installation.database)
    assert second.verifier_key != heads.signer.verifier_key
    scene.submit(key="second")
    again = Heads(scene.installation)
    again.publish()
    assert again.signer.verifier_key == second.verifier_key
    assert _written(scene) == {scene.dataset_id: 3}, (
        "heads of the first key are still believed"
    )


def test_another_signing_key_is_refused(scene: Scene) -> None:
    Heads(scene.installation).publish()
    (scene.installation.home / "signing.key").unlink()
    Signer.open(scene.installation.home / "signing.key", make=True)
    with pytest.raises(
        InstallationError, match="not the signing key that the database names"
    ):
        Heads(scene.installation).confirm()


def test_no_key_is_made_or_pinned_for_a_database_that_does_not_match_the_heads(
    empty_installation: Installation, scene: Scene
) -> None:
    """A new database beside the heads of another one; the operator lost the signing
    key, or still has it.
    """
    Heads(scene.installation).publish()
    home, other = scene.installation.home, empty_installation.home
    shutil.copytree(home / "checkpoints", other / "checkpoints")
    (other / "signing.key").unlink()
    with pytest.raises(InstallationError, match=r"signing\.key is missing"):
        Heads(empty_installation).confirm()
    shutil.copy(home / "signing.key", other)
    with pytest.raises(LedgerRewound):
        Heads(empty_installation).confirm()
    with empty_installation.database.read() as session:
        assert checkpoints.pinned_keys(session) == []


@on_one_database
@pytest.mark.parametrize("content", [b"", b"canary", b"\xff"])
def test_a_damaged_head_is_refused(scene: Scene, content: bytes) -> None:
    Heads(scene.installation).publish()
    file = _file(scene)
    file.write_bytes(content)
    with pytest.raises(
        InstallationError, match="not a head that this program wrote"
    ) as refused:
        Heads(scene.installation).confirm()
    assert "canary" not in str(refused.value)


@on_one_database
def test_line_ends_of_another_system_damage_no_head(scene: Scene) -> None:
    Heads(scene.installation).publish()
    file = _file(scene)
    content = file.read_bytes()
    for changed in (
        content.replace(b"\n", b"\r\n"),
        content[:-1],
        content + b"\n",
        b"\xef\xbb\xbf" + content,
    ):
        file.write_bytes(changed)
        Heads(scene.installation).confirm()
    file.write_bytes(content.replace(b"\n", b"\r\n").replace(b"Z", b"Y"))
    with pytest.raises(LedgerRewound, match="signed by another key"):
        Heads(scene.installation).confirm()


@on_one_database
def test_a_folder_that_can_hold_no_head_is_refused_at_once(scene: Scene) -> None:
    """If the service ran without heads, it could not detect a restore."""
    folder = scene.installation.home / "checkpoints"
    folder.write_text("no folder")
    for _ in range(2):
        with pytest.raises(
            InstallationError, match=f"heads cannot be kept: .*: {folder}"
        ):
            Heads(scene.installation).confirm()
    folder.unlink()
    Heads(scene.installation).publish()
    assert _written(scene) == {scene.dataset_id: 2}


@on_one_database
def test_a_head_under_another_name_is_refused(scene: Scene) -> None:
    Heads(scene.installation).publish()
    file = _file(scene)
    file.rename(file.with_name("ds_other.checkpoint"))
    with pytest.raises(InstallationError, match="not a head"):
        Heads(scene.installation).confirm()


def test_an_unfinished_file_of_a_killed_writer_is_ignored(scene: Scene) -> None:
    Heads(scene.installation).publish()
    (scene.installation.home / "checkpoints" / f".{scene.dataset_id}.123").write_text(
        "half"
    )
    Heads(scene.installation).confirm()


@on_one_database
def test_a_damaged_head_of_one_account_does_not_block_other_accounts(
    scene: Scene,
) -> None:
    heads = Heads(scene.installation)
    heads.publish()
    damaged = _file(scene)
    damaged.write_bytes(b"damaged")
    scene.submit(key="second")
    # one entry on either side of the head, in either order
    others = {f"{side}_other" for side in ("aa", "zz")}
    for account_id in others:
        open_account(scene.installation, account_id, cap=5)
    heads.publish()
    assert damaged.read_bytes() == b"damaged", "evidence is not overwritten"
    with pytest.raises(InstallationError, match="not a head that this program wrote"):
        Heads(scene.installation).confirm()
    damaged.unlink()
    assert set(_written(scene)) == {*others, scene.dataset_id}


@pytest.mark.parametrize("n_later", [1, 3])
def test_a_restore_under_a_running_process_is_noticed(
    sqlite_database_url: str, tmp_path: Path, n_later: int
) -> None:
    """The restore is also detected if the restored database has grown beyond the last
    head before the next check.
    """
    with opened(sqlite_database_url, tmp_path / "home") as scene:
        scene.submit(key="first")
        heads = Heads(scene.installation)
        heads.confirm()
        scene.installation.database.close()
        file = tmp_path / "grovekeeper.sqlite3"
        # closing the connection checkpoints the write-ahead log
        with scene.installation.database.write() as session:
            assert session.is_active
        scene.installation.database.close()
        backup = shutil.copyfile(file, tmp_path / "backup")
        scene.submit(key="second")
        heads.publish()
        scene.installation.database.close()
        for beside in tmp_path.glob("grovekeeper.sqlite3-*"):
            beside.unlink()
        shutil.copyfile(backup, file)
        with pytest.raises(BalanceMismatch):
            scene.submit(key="by a process that has read more")
        scene.installation.database.kept.clear()  # as in another process
        for number in range(1, n_later):
            scene.submit(key=f"later {number}")
        before = _written(scene)
        with pytest.raises(LedgerRewound):
            heads.publish()
        assert _written(scene) == before, "a refusal overwrites no evidence"
        with pytest.raises(LedgerRewound):
            heads.confirm()
        with pytest.raises(LedgerRewound):
            Heads(scene.installation).confirm()


ACTS: dict[str, Callable[[Installation, str], None]] = {
    "revocation": lambda it, _: revoke_key(it, ADMIN, STRANGER.key_id),
    "deletion": lambda it, dataset_id: delete_dataset(it, OWNER, dataset_id),
}


@pytest.mark.parametrize("act", ACTS)
def test_a_backup_from_before_an_act_is_refused(
    sqlite_database_url: str, tmp_path: Path, act: str
) -> None:
    """No account grew since the backup. A revoked key of the backup would open the
    service again.
    """
    with opened(sqlite_database_url, tmp_path / "home") as scene:
        Heads(scene.installation).publish()
        scene.installation.database.close()
        file = tmp_path / "grovekeeper.sqlite3"
        with (
            sqlite3.connect(file) as copied,
            sqlite3.connect(tmp_path / "backup") as backup,
        ):
            copied.backup(backup)
        ACTS[act](scene.installation, scene.dataset_id)
        Heads(scene.installation).publish()
        scene.installation.database.close()
        for beside in tmp_path.glob("grovekeeper.sqlite3*"):
            if beside.suffix != ".lock":
                beside.unlink()
        (tmp_path / "backup").rename(file)
        with pytest.raises(LedgerRewound, match="control"):
            Heads(scene.installation).confirm()


def test_the_thread_writes_what_is_left_when_it_is_stopped(scene: Scene) -> None:
    writer = HeadWriter(Heads(scene.installation))
    writer.start()
    scene.submit(key="second")
    writer.stop()
    assert _written(scene) == {scene.dataset_id: 3}


@on_one_database
def test_a_folder_that_cannot_be_written_any_more_is_tried_again(scene: Scene) -> None:
    folder = scene.installation.home / "checkpoints"
    heads = Heads(scene.installation)
    heads.confirm()
    _in_the_way(folder)
    with pytest.raises(OSError, match="checkpoints"):
        heads.publish()
    folder.unlink()
    heads.publish()
    assert _written(scene) == {scene.dataset_id: 2}


@on_one_database
def test_a_head_stays_until_a_newer_one_is_written(scene: Scene) -> None:
    heads = Heads(scene.installation)
    heads.publish()
    before = _written(scene)
    scene.submit(key="later")
    store = type(scene.installation.heads)
    with patch.object(store, "new", side_effect=OSError), pytest.raises(OSError):
        heads.publish()
    assert _written(scene) == before


def test_jobs_end_although_the_folder_of_heads_cannot_be_written(scene: Scene) -> None:
    loop = _Loop(scene.installation, Stop())
    assert loop._is_ready()
    job_id = scene.submit_job(key="job")
    assert run_job.claim_next(scene.installation) is not None
    with scene.installation.database.write() as session:
        queue.locked(session, job_id).lease_until = datetime.now(UTC) - timedelta(
            hours=1
        )
    _in_the_way(scene.installation.home / "checkpoints")
    loop._sweep_when_due()
    assert scene.job(job_id).state == "queued"


def test_an_old_database_is_not_compared(
    empty_database_url: str, tmp_path: Path
) -> None:
    settings = Settings(home=tmp_path / "home", database_url=empty_database_url)
    installation = Installation.open(settings, pool_size=1)
    heads = Heads(installation)
    writer = HeadWriter(heads)
    writer.start()
    writer.stop()
    assert heads.is_current is False
    installation.close()
