import os
import tarfile
from pathlib import Path

import pytest

from paddle_operator.local.images.image_config import UnsupportedInstruction, read_image_config
from paddle_operator.local.images.layers import build_layer, layer_mounts
from tests.local.image_folders import make_image_folder


def layer_of(folder: Path, layers: Path, *lines: str) -> Path:
    (folder / "Dockerfile").write_text("\n".join(["FROM a", *lines]))
    read = read_image_config(folder / "Dockerfile", {}, lambda _: None)
    return build_layer(read.copies, read.directories, layers)


def files_of(folder: Path) -> dict[str, str]:
    return {str(path.relative_to(folder)): path.read_text() for path in sorted(folder.rglob("*")) if path.is_file()}


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return make_image_folder(
        tmp_path / "demo", "", **{"app/train__py": "train", "app/deep/data": "1", "notes__md": "notes"}
    )


@pytest.fixture
def layers(tmp_path: Path) -> Path:
    return tmp_path / "layers"


def test_copy_of_directories_and_files(folder: Path, layers: Path) -> None:
    found = layer_of(
        folder, layers, "WORKDIR /w", "COPY app /app", "COPY notes.md .", "COPY notes.md /one.md", "COPY app/* /all/"
    )
    assert files_of(found) == {
        "all/data": "1",
        "all/train.py": "train",
        "app/deep/data": "1",
        "app/train.py": "train",
        "one.md": "notes",
        "w/notes.md": "notes",
    }


def test_copy_preserves_modes_and_links(folder: Path, layers: Path) -> None:
    (folder / "app/run").write_text("")
    (folder / "app/run").chmod(0o750)
    (folder / "app/link").symlink_to("train.py")
    found = layer_of(folder, layers, "COPY app /app", "COPY --chmod=700 notes.md /")
    assert (found / "app/run").stat().st_mode & 0o777 == 0o750
    assert os.readlink(found / "app/link") == "train.py"
    assert (found / "notes.md").stat().st_mode & 0o777 == 0o700


def test_only_add_unpacks_archives(folder: Path, layers: Path) -> None:
    with tarfile.open(folder / "data.tar.gz", "w:gz") as archive:
        archive.add(folder / "notes.md", "inner/notes.md")
    found = layer_of(folder, layers, "ADD data.tar.gz /data", "COPY data.tar.gz /raw/")
    assert (found / "data/inner/notes.md").read_text() == "notes"
    assert (found / "raw/data.tar.gz").is_file()


def test_dockerignore_patterns_and_exceptions(folder: Path, layers: Path) -> None:
    (folder / ".dockerignore").write_text("# why\n**/*.md\napp/deep/*\n!app/deep/kept\nDockerfile\n.dockerignore\n")
    (folder / "app/deep/kept").write_text("2")
    assert files_of(layer_of(folder, layers, "COPY . /app")) == {"app/app/deep/kept": "2", "app/app/train.py": "train"}


def test_layer_digest_follows_the_files(folder: Path, layers: Path) -> None:
    first = layer_of(folder, layers, "COPY app /app")
    assert layer_of(folder, layers, "COPY app /app") == first
    (folder / "app/train.py").write_text("other")
    second = layer_of(folder, layers, "COPY app /app")
    assert second != first
    assert (first / "app/train.py").read_text() == "train"
    assert sorted(layers.iterdir()) == sorted([first, second])  # nothing half made is left


@pytest.mark.parametrize("source", ["missing", "*.none", "../demo-2"])
def test_missing_copy_source_names_its_line(folder: Path, layers: Path, source: str) -> None:
    with pytest.raises(UnsupportedInstruction, match=r"Dockerfile:2: COPY .* is not supported: ") as refused:
        layer_of(folder, layers, f"COPY {source} /x")
    assert source in str(refused.value)
    assert not layers.exists()


def test_layer_mounts_only_its_own_directories(folder: Path, layers: Path) -> None:
    lines = ["WORKDIR /work/here", "COPY app /opt/app", "COPY notes.md /usr/bin/notes", "COPY notes.md /etc/new/"]
    found = layer_of(folder, layers, *lines)
    assert {mount.target: str(mount.source.relative_to(found)) for mount in layer_mounts(found)} == {
        "/etc/new": "etc/new",
        "/opt/app": "opt/app",
        "/usr/bin/notes": "usr/bin/notes",
        "/work": "work",
    }
