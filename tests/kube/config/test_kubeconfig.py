import os
from pathlib import Path

import pytest
import yaml

from paddle_operator.kube.config.kubeconfig import read
from paddle_operator.kube.errors import Misconfigured
from tests.support.kubeconfigs import TOKEN, write_kubeconfig


def listed(*files: Path) -> dict[str, str]:
    return {"KUBECONFIG": os.pathsep.join(map(str, files))}


def test_the_first_file_wins_for_a_named_entry_as_a_whole(tmp_path: Path) -> None:
    first = write_kubeconfig(tmp_path / "first", cluster={"server": "https://first"})
    second = write_kubeconfig(tmp_path / "second", cluster={"server": "https://second", "tls-server-name": "leaked"})
    cluster = read(None, listed(first, second)).choose().cluster
    assert cluster.value.server == "https://first"
    assert cluster.value.tls_server_name == ""
    assert cluster.file == first


def test_the_first_file_that_has_a_current_context_decides_it(tmp_path: Path) -> None:
    first, second, third = (
        tmp_path / "first",
        write_kubeconfig(tmp_path / "second"),
        write_kubeconfig(tmp_path / "third"),
    )
    first.write_text("kind: Config\ncontexts: [{name: other, context: {cluster: there, user: me}}]\n")
    third.write_text(third.read_text().replace("current-context: here", "current-context: third"))
    assert read(None, listed(first, second, third)).choose().context.name == "here"
    assert read(None, listed(first, second, third)).choose("other").context.file == first


def test_a_context_may_refer_to_entries_of_another_file(tmp_path: Path) -> None:
    contexts, rest = tmp_path / "contexts", write_kubeconfig(tmp_path / "rest")
    contexts.write_text("current-context: mine\ncontexts: [{name: mine, context: {cluster: there, user: me}}]\n")
    chosen = read(None, listed(contexts, rest)).choose()
    assert (chosen.context.file, chosen.cluster.file, chosen.user.file) == (contexts, rest, rest)


def test_missing_files_and_empty_names_of_a_list_are_skipped(tmp_path: Path) -> None:
    file = write_kubeconfig(tmp_path / "file")
    names = listed(tmp_path / "missing", file, file)["KUBECONFIG"]
    config = read(None, {"KUBECONFIG": f"{os.pathsep}{names}{os.pathsep}"})
    assert config.files == (file,)


def test_named_kubeconfig_must_exist_and_is_the_only_one(tmp_path: Path) -> None:
    other = write_kubeconfig(tmp_path / "other")
    with pytest.raises(Misconfigured, match=r"no kubeconfig found \(tried .*missing\): set KUBECONFIG"):
        read(tmp_path / "missing", listed(other))


def test_without_a_list_the_file_in_the_home_directory_is_read(tmp_path: Path) -> None:
    (tmp_path / ".kube").mkdir()
    file = write_kubeconfig(tmp_path / ".kube" / "config")
    assert read(None, {"HOME": str(tmp_path)}).files == (file,)


def test_relative_paths_are_relative_to_their_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "conf").mkdir()
    user = {"client-certificate": "me.crt", "client-key": "/abs/me.key", "tokenFile": "../token"}
    write_kubeconfig(tmp_path / "conf" / "a", cluster={"certificate-authority": "ca.crt"}, user=user)
    monkeypatch.chdir(tmp_path)
    chosen = read(Path("conf/a"), {}).choose()
    assert chosen.cluster.value.certificate_authority == str(tmp_path / "conf" / "ca.crt")
    assert chosen.user.value.client_certificate == str(tmp_path / "conf" / "me.crt")
    assert chosen.user.value.client_key == "/abs/me.key"
    assert chosen.user.value.token_file == str(tmp_path / "conf" / "../token")
    for command, expected in {"bin/login": str(tmp_path / "conf" / "bin/login"), "login": "login"}.items():
        file = write_kubeconfig(tmp_path / "conf" / "b", user={"exec": {"command": command}})
        plugin = read(file, {}).choose().user.value.exec
        assert plugin is not None
        assert plugin.command == expected


def test_null_means_absent(tmp_path: Path) -> None:
    file = write_kubeconfig(tmp_path / "file", user={"token": None, "exec": None})
    file.write_text(file.read_text() + "preferences: null\nextensions: null\n")
    assert not read(file, {}).choose().user.value.token


@pytest.mark.parametrize(
    ("change", "sentence"),
    [
        ({"current-context": ""}, "has no current-context: name one of its contexts (here)"),
        ({"current-context": "gone"}, 'there is no context "gone" in '),
        ({"clusters": []}, 'names the cluster "there", which does not exist: name another one (none)'),
        ({"users": None}, 'names the user "me", which does not exist'),
        ({"contexts": [{"name": "here"}]}, "names no cluster: set its field cluster"),
        ({"contexts": [{"name": "here", "context": {"cluster": "there"}}]}, "names no user: set its field user"),
        ({"users": [{"name": "me"}, {"name": "me"}]}, 'user "me" in '),
        ({"users": [{"name": "me", "user": {"token": 5}}]}, "Expected `str`, got `int` - at `$.users[0].user.token`"),
        ({"kind": "PaddleJob"}, "is of the kind PaddleJob, not Config: check that it is the right file"),
    ],
)
def test_what_is_wrong_with_a_file_is_one_sentence(tmp_path: Path, change: dict[str, object], sentence: str) -> None:
    file = write_kubeconfig(tmp_path / "file")
    file.write_text(yaml.safe_dump(yaml.safe_load(file.read_text()) | change))
    with pytest.raises(Misconfigured) as raised:
        read(file, {}).choose()
    assert sentence in str(raised.value)
    assert str(file) in str(raised.value)
    assert "\n" not in str(raised.value)


@pytest.mark.parametrize(
    "text", [f"token: *{TOKEN}", f"users: [{TOKEN}", f"- {TOKEN}", TOKEN, "at: 2026-13-45", "\x00", "[" * 3000]
)
def test_what_is_not_a_kubeconfig_is_told_without_quoting_it(tmp_path: Path, text: str) -> None:
    file = tmp_path / "file"
    file.write_text(text)
    with pytest.raises(Misconfigured) as raised:
        read(file, {})
    assert f"the kubeconfig {file} " in str(raised.value)
    assert TOKEN not in str(raised.value)
    assert raised.value.__cause__ is None
    assert "\n" not in str(raised.value)


def test_a_file_that_cannot_be_read_is_named(tmp_path: Path) -> None:
    with pytest.raises(Misconfigured, match="cannot be read: Is a directory; correct its mode, or name another file"):
        read(None, listed(tmp_path))


def test_a_decoded_file_shows_no_secret(tmp_path: Path) -> None:
    secrets = {"token": TOKEN, "password": TOKEN, "client-key-data": TOKEN}
    plugin = {"command": "login", "env": [{"name": "PASSWORD", "value": TOKEN}]}
    file = write_kubeconfig(
        tmp_path / "file", cluster={"proxy-url": f"http://me:{TOKEN}@proxy"}, user=secrets | {"exec": plugin}
    )
    chosen = read(file, {}).choose()
    assert chosen.user.value.token.reveal() == TOKEN
    assert TOKEN not in f"{chosen!r} {chosen.user.value.token} {chosen.user}"
