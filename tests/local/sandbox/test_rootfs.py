"""The root filesystem of a container, planned on small host trees."""

from pathlib import Path

import pytest

from paddle_operator.local.cri import Command, Mount, StartError
from paddle_operator.local.sandbox.rootfs import Step, rootfs_steps


@pytest.fixture
def host(tmp_path: Path) -> Path:
    root = tmp_path / "host"
    for folder in ("etc", "usr/bin", "usr/lib/python", "tmp", "var/tmp", "dev/shm", "proc", "root", "opt/tools", "run"):
        (root / folder).mkdir(parents=True)
    (root / "etc/hosts").touch()
    (root / "usr/lib/one").touch()
    (root / "bin").symlink_to("usr/bin")
    (root / "var/run").symlink_to("/run")
    return root


@pytest.fixture
def volume(tmp_path: Path) -> Path:
    (tmp_path / "volume").mkdir()
    return tmp_path / "volume"


def layout(host: Path, *mounts: Mount, directory: str = "/", hosts: str = "") -> list[Step]:
    return rootfs_steps(Command(("true",), {}, directory, mounts=mounts, hosts=hosts), host_root=str(host))


def targets(steps: list[Step], kind: str) -> list[str]:
    return [step[1] for step in steps if step[0] == kind]


def test_host_entries_are_bound_one_by_one(host: Path) -> None:
    steps = layout(host)
    assert ("bind-optional", "/usr", f"{host}/usr") in steps
    assert ("link", "/bin", "usr/bin") in steps


def test_proc_tmp_and_shm_are_private(host: Path) -> None:
    steps = layout(host)
    assert ("proc", "/proc") in steps
    assert targets(steps, "tmpfs") == ["/dev/shm", "/tmp", "/var/tmp"]
    assert "/tmp" not in targets(steps, "bind-optional")
    assert "/proc" not in targets(steps, "bind-optional")


def test_existing_mount_point_is_covered(host: Path, volume: Path) -> None:
    steps = layout(host, Mount(volume, "/opt/tools"))
    assert ("bind-optional", "/opt", f"{host}/opt") in steps
    assert steps[-1] == ("bind", "/opt/tools", str(volume)) or ("bind", "/opt/tools", str(volume)) in steps
    assert "/opt/tools" not in targets(steps, "directory")


def test_missing_mount_point_rebuilds_only_its_parents(host: Path, volume: Path) -> None:
    steps = layout(host, Mount(volume, "/usr/lib/paddle/data"))
    assert {"/usr/bin", "/usr/lib/python", "/usr/lib/one"} <= set(targets(steps, "bind-optional"))
    assert "/usr" not in targets(steps, "bind-optional")
    assert "/usr/lib" not in targets(steps, "bind-optional")
    assert "/etc" in targets(steps, "bind-optional")
    assert steps.index(("directory", "/usr/lib/paddle/data")) < steps.index(
        ("bind", "/usr/lib/paddle/data", str(volume))
    )
    assert not (host / "usr/lib/paddle").exists()


def test_mount_in_a_rebuilt_directory(host: Path, volume: Path) -> None:
    steps = layout(host, Mount(volume, "/opt/tools"), Mount(volume, "/opt/zoo"))
    assert "/opt/tools" not in targets(steps, "bind-optional")
    assert steps.index(("directory", "/opt/tools")) < steps.index(("bind", "/opt/tools", str(volume)))
    assert steps.index(("directory", "/opt/zoo")) < steps.index(("bind", "/opt/zoo", str(volume)))


def test_nested_mount_follows_its_parent(host: Path, volume: Path) -> None:
    (volume / "inner").mkdir()
    steps = layout(host, Mount(volume, "/data/inner"), Mount(volume, "/data"), Mount(volume, "/data-2"))
    assert targets(steps, "bind") == ["/data", "/data/inner", "/data-2"]


def test_mount_point_is_created_in_a_writable_volume(host: Path, volume: Path) -> None:
    steps = layout(host, Mount(volume, "/data"), Mount(volume, "/data/deep/inner"))
    assert ("directory", "/data/deep/inner") in steps
    assert "/data" not in targets(steps, "tmpfs")


def test_rebuilt_read_only_volume_stays_read_only(host: Path, volume: Path) -> None:
    (volume / "kept").touch()
    steps = layout(host, Mount(volume, "/data", read_only=True), Mount(volume, "/data/inner"))
    assert ("tmpfs", "/data", "mode=0755") in steps
    assert ("bind-read-only", "/data/kept", str(volume / "kept")) in steps
    assert ("bind", "/data/inner", str(volume)) in steps


def test_symlinked_mount_point_is_resolved(host: Path, volume: Path) -> None:
    steps = layout(host, Mount(volume, "/var/run/paddle"), Mount(volume, "/bin/paddle"))
    assert targets(steps, "bind") == ["/run/paddle", "/usr/bin/paddle"]


def test_symlink_in_a_volume_stays_in_the_container(host: Path, volume: Path) -> None:
    (volume / "link").symlink_to("/etc")
    steps = layout(host, Mount(volume, "/data"), Mount(volume, "/data/link/paddle"))
    assert "/etc/paddle" in targets(steps, "bind")


def test_dangling_hosts_symlink_is_followed(host: Path) -> None:
    (host / "etc/hosts").unlink()
    (host / "etc/hosts").symlink_to("../run/hosts")
    steps = layout(host, hosts="127.0.0.1 localhost\n")
    assert ("file", "/run/hosts") in steps
    assert ("text", "/run/hosts", "127.0.0.1 localhost\n") in steps
    assert "/etc" in targets(steps, "bind-optional")


def test_volume_at_etc_hosts_replaces_the_text(host: Path, volume: Path) -> None:
    (volume / "hosts").touch()
    steps = layout(host, Mount(volume / "hosts", "/etc/hosts"), hosts="127.0.0.1 localhost\n")
    assert ("bind", "/etc/hosts", str(volume / "hosts")) in steps
    assert not targets(steps, "text")


def test_file_mount_creates_its_mount_point(host: Path, volume: Path) -> None:
    (volume / "key").touch()
    steps = layout(host, Mount(volume / "key", "/etc/paddle/key", read_only=True))
    assert steps.index(("file", "/etc/paddle/key")) < steps.index(
        ("bind-read-only", "/etc/paddle/key", str(volume / "key"))
    )


def test_only_a_missing_working_directory_is_created(host: Path) -> None:
    assert ("directory", "/new/deep") in layout(host, directory="/new/deep")
    assert layout(host, directory="/opt/tools") == layout(host)
    assert layout(host, directory="/opt") == layout(host)


def test_read_only_path_below_tmp_is_bound(host: Path, tmp_path: Path) -> None:
    environment = tmp_path / "cache"
    environment.mkdir()
    steps = rootfs_steps(Command(("true",), {}), [environment], str(host))
    assert ("bind-read-only", str(environment), str(environment)) in steps


@pytest.mark.parametrize(
    ("target", "message"),
    [
        ("data", "not absolute"),
        ("/", "cannot be mounted at /"),
        ("/usr/lib/one", "must be a directory, but is a file"),
        ("/usr/lib/one/below", "must be a directory, but is a file"),
    ],
)
def test_invalid_mount_is_refused(host: Path, volume: Path, target: str, message: str) -> None:
    with pytest.raises(StartError, match=message):
        layout(host, Mount(volume, target))


def test_missing_mount_source_is_refused(host: Path, tmp_path: Path) -> None:
    with pytest.raises(StartError, match="at /data: No such file"):
        layout(host, Mount(tmp_path / "gone", "/data"))


def test_symlink_loop_is_refused(host: Path, volume: Path) -> None:
    (host / "ring").symlink_to("/ring")
    with pytest.raises(StartError, match="too many symbolic links"):
        layout(host, Mount(volume, "/ring/data"))
