"""The root of a container, decided on small machines made of a few folders."""

from pathlib import Path

import pytest

from paddle_operator.local.cri import Command, Mount, StartError
from paddle_operator.local.sandbox.rootfs import Step, steps


@pytest.fixture
def machine(tmp_path: Path) -> Path:
    root = tmp_path / "machine"
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


def layout(machine: Path, *mounts: Mount, directory: str = "/", hosts: str = "") -> list[Step]:
    return steps(Command(("true",), {}, directory, mounts=mounts, hosts=hosts), machine=str(machine))


def targets(made: list[Step], kind: str) -> list[str]:
    return [step[1] for step in made if step[0] == kind]


def test_the_machine_is_shown_entry_by_entry_and_its_links_stay_links(machine: Path) -> None:
    made = layout(machine)
    assert ("show", "/usr", f"{machine}/usr") in made
    assert ("link", "/bin", "usr/bin") in made


def test_a_container_has_its_own_proc_tmp_and_shared_memory(machine: Path) -> None:
    made = layout(machine)
    assert ("proc", "/proc") in made
    assert targets(made, "tmpfs") == ["/dev/shm", "/tmp", "/var/tmp"]
    assert "/tmp" not in targets(made, "show")
    assert "/proc" not in targets(made, "show")


def test_a_mount_point_that_the_machine_has_is_covered(machine: Path, volume: Path) -> None:
    made = layout(machine, Mount(volume, "/opt/tools"))
    assert ("show", "/opt", f"{machine}/opt") in made
    assert made[-1] == ("bind", "/opt/tools", str(volume)) or ("bind", "/opt/tools", str(volume)) in made
    assert "/opt/tools" not in targets(made, "folder")


def test_a_mount_point_that_the_machine_lacks_takes_apart_only_the_folders_above_it(
    machine: Path, volume: Path
) -> None:
    made = layout(machine, Mount(volume, "/usr/lib/paddle/data"))
    assert {"/usr/bin", "/usr/lib/python", "/usr/lib/one"} <= set(targets(made, "show"))
    assert "/usr" not in targets(made, "show")
    assert "/usr/lib" not in targets(made, "show")
    assert "/etc" in targets(made, "show")
    assert made.index(("folder", "/usr/lib/paddle/data")) < made.index(("bind", "/usr/lib/paddle/data", str(volume)))
    assert not (machine / "usr/lib/paddle").exists()


def test_a_mount_on_an_existing_entry_survives_its_folder_being_taken_apart(machine: Path, volume: Path) -> None:
    made = layout(machine, Mount(volume, "/opt/tools"), Mount(volume, "/opt/zoo"))
    assert "/opt/tools" not in targets(made, "show")
    assert made.index(("folder", "/opt/tools")) < made.index(("bind", "/opt/tools", str(volume)))
    assert made.index(("folder", "/opt/zoo")) < made.index(("bind", "/opt/zoo", str(volume)))


def test_a_nested_mount_comes_after_the_one_around_it_whatever_order_they_are_asked_in(
    machine: Path, volume: Path
) -> None:
    (volume / "inner").mkdir()
    made = layout(machine, Mount(volume, "/data/inner"), Mount(volume, "/data"), Mount(volume, "/data-2"))
    assert targets(made, "bind") == ["/data", "/data/inner", "/data-2"]


def test_in_a_writable_volume_a_mount_point_is_made_in_the_volume_as_engines_do(machine: Path, volume: Path) -> None:
    made = layout(machine, Mount(volume, "/data"), Mount(volume, "/data/deep/inner"))
    assert ("folder", "/data/deep/inner") in made
    assert "/data" not in targets(made, "tmpfs")


def test_a_read_only_volume_is_taken_apart_and_its_entries_stay_read_only(machine: Path, volume: Path) -> None:
    (volume / "kept").touch()
    made = layout(machine, Mount(volume, "/data", read_only=True), Mount(volume, "/data/inner"))
    assert ("tmpfs", "/data", "mode=0755") in made
    assert ("bind read-only", "/data/kept", str(volume / "kept")) in made
    assert ("bind", "/data/inner", str(volume)) in made


def test_links_above_a_mount_point_are_followed_as_the_container_sees_them(machine: Path, volume: Path) -> None:
    made = layout(machine, Mount(volume, "/var/run/paddle"), Mount(volume, "/bin/paddle"))
    assert targets(made, "bind") == ["/run/paddle", "/usr/bin/paddle"]


def test_a_link_in_a_volume_leads_within_the_container_and_not_on_the_machine(machine: Path, volume: Path) -> None:
    (volume / "link").symlink_to("/etc")
    made = layout(machine, Mount(volume, "/data"), Mount(volume, "/data/link/paddle"))
    assert "/etc/paddle" in targets(made, "bind")


def test_etc_hosts_that_is_a_link_to_nowhere_gets_its_text_where_the_link_leads(machine: Path) -> None:
    (machine / "etc/hosts").unlink()
    (machine / "etc/hosts").symlink_to("../run/hosts")
    made = layout(machine, hosts="127.0.0.1 localhost\n")
    assert ("file", "/run/hosts") in made
    assert ("text", "/run/hosts", "127.0.0.1 localhost\n") in made
    assert "/etc" in targets(made, "show")


def test_a_volume_at_etc_hosts_wins_over_the_text(machine: Path, volume: Path) -> None:
    (volume / "hosts").touch()
    made = layout(machine, Mount(volume / "hosts", "/etc/hosts"), hosts="127.0.0.1 localhost\n")
    assert ("bind", "/etc/hosts", str(volume / "hosts")) in made
    assert not targets(made, "text")


def test_a_file_can_be_mounted_where_nothing_is(machine: Path, volume: Path) -> None:
    (volume / "key").touch()
    made = layout(machine, Mount(volume / "key", "/etc/paddle/key", read_only=True))
    assert made.index(("file", "/etc/paddle/key")) < made.index(
        ("bind read-only", "/etc/paddle/key", str(volume / "key"))
    )


def test_a_working_directory_that_is_missing_is_made_and_one_that_is_there_keeps_what_it_has(machine: Path) -> None:
    assert ("folder", "/new/deep") in layout(machine, directory="/new/deep")
    assert layout(machine, directory="/opt/tools") == layout(machine)
    assert layout(machine, directory="/opt") == layout(machine)


def test_what_every_container_needs_stays_in_sight_below_tmp(machine: Path, tmp_path: Path) -> None:
    environment = tmp_path / "cache"
    environment.mkdir()
    made = steps(Command(("true",), {}), [environment], str(machine))
    assert ("bind read-only", str(environment), str(environment)) in made


@pytest.mark.parametrize(
    ("target", "sentence"),
    [
        ("data", "not absolute"),
        ("/", "cannot be mounted at /"),
        ("/usr/lib/one", "has to be a folder, but a file stands there"),
        ("/usr/lib/one/below", "has to be a folder, but a file stands there"),
    ],
)
def test_a_mount_that_cannot_be_is_refused(machine: Path, volume: Path, target: str, sentence: str) -> None:
    with pytest.raises(StartError, match=sentence):
        layout(machine, Mount(volume, target))


def test_a_source_that_is_gone_is_refused_with_its_mount_path(machine: Path, tmp_path: Path) -> None:
    with pytest.raises(StartError, match="to be mounted at /data, cannot be used: No such file"):
        layout(machine, Mount(tmp_path / "gone", "/data"))


def test_links_in_a_circle_are_refused(machine: Path, volume: Path) -> None:
    (machine / "ring").symlink_to("/ring")
    with pytest.raises(StartError, match="too many symbolic links"):
        layout(machine, Mount(volume, "/ring/data"))
