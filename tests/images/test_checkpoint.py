"""A checkpoint is complete or does not exist."""

import gzip
from pathlib import Path

import pytest

from tests.images.programs import WIDE_AND_DEEP, load_module

checkpoint = load_module(WIDE_AND_DEEP, "checkpoint")


def write_checkpoint(folder: Path, epoch: int, text: str) -> None:
    checkpoints = checkpoint.Checkpoints(folder)
    partial = checkpoints.partial(epoch)
    (partial / "table").write_text(text)
    checkpoints.commit(partial)


def test_missing_folder_has_no_checkpoint(tmp_path: Path) -> None:
    assert checkpoint.Checkpoints(tmp_path / "shared").latest() is None


def test_new_checkpoint_replaces_the_old(tmp_path: Path) -> None:
    write_checkpoint(tmp_path, 9, "nine")
    write_checkpoint(tmp_path, 10, "ten")
    assert checkpoint.Checkpoints(tmp_path).latest() == (10, tmp_path / "epoch-10")
    assert [path.name for path in tmp_path.iterdir()] == ["epoch-10"]
    assert (tmp_path / "epoch-10/table").read_text() == "ten"


def test_unfinished_checkpoint_is_ignored(tmp_path: Path) -> None:
    write_checkpoint(tmp_path, 1, "one")
    (checkpoint.Checkpoints(tmp_path).partial(2) / "table").write_text("hal")
    assert checkpoint.Checkpoints(tmp_path).latest() == (1, tmp_path / "epoch-1")


def test_partial_write_is_not_reused(tmp_path: Path) -> None:
    (checkpoint.Checkpoints(tmp_path).partial(1) / "old").touch()
    write_checkpoint(tmp_path, 1, "one")
    assert [path.name for path in (tmp_path / "epoch-1").iterdir()] == ["table"]


def test_later_of_two_checkpoints_is_loaded(tmp_path: Path) -> None:
    for epoch in (9, 10):
        (tmp_path / f"epoch-{epoch}").mkdir()
    assert checkpoint.Checkpoints(tmp_path).latest() == (10, tmp_path / "epoch-10")


def test_failed_server_write_is_removed(tmp_path: Path) -> None:
    write_checkpoint(tmp_path, 1, "one")
    partial = checkpoint.Checkpoints(tmp_path).partial(2)
    (partial / "000").mkdir()
    (partial / "000/part-000.gz").write_bytes(gzip.compress(b"parameters")[:-4])
    with pytest.raises(OSError, match=r"part-000\.gz is truncated: check the free space of"):
        checkpoint.Checkpoints(tmp_path).commit(partial)
    assert checkpoint.Checkpoints(tmp_path).latest() == (1, tmp_path / "epoch-1")
