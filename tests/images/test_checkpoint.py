"""An epoch is in the folder whole or not at all."""

import gzip
from pathlib import Path

import pytest

from tests.images.programs import WIDE_AND_DEEP, loaded

checkpoint = loaded(WIDE_AND_DEEP, "checkpoint")


def kept(folder: Path, epoch: int, text: str) -> None:
    checkpoints = checkpoint.Checkpoints(folder)
    part = checkpoints.part(epoch)
    (part / "table").write_text(text)
    checkpoints.keep(part)


def test_there_is_none_in_a_folder_that_is_not_there(tmp_path: Path) -> None:
    assert checkpoint.Checkpoints(tmp_path / "shared").latest() is None


def test_the_latest_replaces_the_one_before_it(tmp_path: Path) -> None:
    kept(tmp_path, 9, "nine")
    kept(tmp_path, 10, "ten")
    assert checkpoint.Checkpoints(tmp_path).latest() == (10, tmp_path / "epoch-10")
    assert [path.name for path in tmp_path.iterdir()] == ["epoch-10"]
    assert (tmp_path / "epoch-10/table").read_text() == "ten"


def test_one_that_was_never_finished_is_not_taken_for_whole(tmp_path: Path) -> None:
    kept(tmp_path, 1, "one")
    (checkpoint.Checkpoints(tmp_path).part(2) / "table").write_text("hal")
    assert checkpoint.Checkpoints(tmp_path).latest() == (1, tmp_path / "epoch-1")


def test_what_a_pod_that_died_has_written_is_not_mixed_into_the_next(tmp_path: Path) -> None:
    (checkpoint.Checkpoints(tmp_path).part(1) / "old").touch()
    kept(tmp_path, 1, "one")
    assert [path.name for path in (tmp_path / "epoch-1").iterdir()] == ["table"]


def test_of_two_the_later_counts_where_a_pod_died_before_it_removed_the_other(tmp_path: Path) -> None:
    for epoch in (9, 10):
        (tmp_path / f"epoch-{epoch}").mkdir()
    assert checkpoint.Checkpoints(tmp_path).latest() == (10, tmp_path / "epoch-10")


def test_what_a_server_could_not_write_to_its_end_is_not_kept(tmp_path: Path) -> None:
    kept(tmp_path, 1, "one")
    part = checkpoint.Checkpoints(tmp_path).part(2)
    (part / "000").mkdir()
    (part / "000/part-000.gz").write_bytes(gzip.compress(b"parameters")[:-4])
    with pytest.raises(OSError, match=r"part-000\.gz was not written to its end: is there room in"):
        checkpoint.Checkpoints(tmp_path).keep(part)
    assert checkpoint.Checkpoints(tmp_path).latest() == (1, tmp_path / "epoch-1")
