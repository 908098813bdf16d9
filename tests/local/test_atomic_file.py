"""A file is replaced atomically while others read it."""

import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from paddle_operator.local.atomic_file import write_atomic


def test_concurrent_writers_never_mix_their_content(tmp_path: Path) -> None:
    path, ready = tmp_path / "file", threading.Barrier(8)

    def write(letter: str) -> set[str]:
        ready.wait()
        read = set()
        for _ in range(100):
            write_atomic(path, letter * 10_000, mode=0o755)
            read.add(path.read_text())
        return read

    with ThreadPoolExecutor(8) as threads:
        read = set().union(*threads.map(write, "abcdefgh"))
    assert read <= {letter * 10_000 for letter in "abcdefgh"}
    assert [each.name for each in tmp_path.iterdir()] == ["file"]
    assert path.stat().st_mode & 0o777 == 0o755


def test_failed_rename_leaves_no_temporary_file(tmp_path: Path) -> None:
    (tmp_path / "folder" / "full").mkdir(parents=True)
    with pytest.raises(OSError, match="folder"):
        write_atomic(tmp_path / "folder", "text")
    assert [each.name for each in tmp_path.iterdir()] == ["folder"]
