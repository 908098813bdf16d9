import asyncio
import base64
import os
import ssl
from pathlib import Path
from typing import Any

import msgspec
import pytest
import trustme
from multidict import CIMultiDictProxy

from paddle_operator.kube.config.load import from_kubeconfig, in_cluster, load
from paddle_operator.kube.config.server import ServerConfig
from paddle_operator.kube.errors import Misconfigured
from testbed.clock import FakeClock
from tests.support.kubeconfigs import TOKEN, count_runs, make_exec_user, write_kubeconfig, write_plugin

IN_POD = {"KUBERNETES_SERVICE_HOST": "10.96.0.1", "KUBERNETES_SERVICE_PORT": "443"}


@pytest.fixture(scope="module")
def authority() -> trustme.CA:
    return trustme.CA()


@pytest.fixture
def account(tmp_path: Path, authority: trustme.CA) -> Path:
    """What kubelet mounts into a pod: each name is a link through a directory that is exchanged as a whole."""
    directory = tmp_path / "serviceaccount"
    directory.mkdir()
    for name in ("token", "ca.crt", "namespace"):
        (directory / name).symlink_to(Path("..data", name))
    mount(directory, "first", authority)
    return directory


def mount(directory: Path, token: str, authority: trustme.CA) -> None:
    version = directory / f"..{token}"
    version.mkdir()
    (version / "token").write_text(token)
    (version / "namespace").write_text("training\n")
    authority.cert_pem.write_to_path(str(version / "ca.crt"))
    (directory / "..new").symlink_to(version.name)
    (directory / "..new").rename(directory / "..data")


def data(text: str) -> str:
    return base64.b64encode(text.encode()).decode()


def connected(path: Path, **parts: Any) -> ServerConfig:
    return from_kubeconfig(write_kubeconfig(path / "config", **parts), environ={"PATH": os.environ["PATH"]})


async def refusal_of(path: Path, **parts: Any) -> str:
    async def first_request() -> None:
        connection = connected(path, **parts)
        await connection.tls()
        await connection.headers()

    with pytest.raises(Misconfigured) as raised:
        await first_request()
    assert raised.value.__cause__ is None
    sentence = str(raised.value)
    assert str(path / "config") in sentence
    assert "\n" not in sentence
    assert TOKEN not in sentence
    return sentence


# In a pod


async def test_a_pod_finds_its_server_namespace_and_token(account: Path) -> None:
    connection = in_cluster(account, environ=IN_POD)
    assert connection.server == "https://10.96.0.1:443"
    assert connection.namespace == "training"
    assert connection.source == "the service account of this pod"
    assert connection.proxy is None
    assert connection.server_name is None
    assert await connection.headers() == {"Authorization": "Bearer first"}
    context = await connection.tls()
    assert context
    assert context.verify_mode is ssl.CERT_REQUIRED


def test_an_ipv6_host_is_bracketed_and_pod_namespace_wins(account: Path) -> None:
    connection = in_cluster(account, environ=IN_POD | {"KUBERNETES_SERVICE_HOST": "fd00::1", "POD_NAMESPACE": "mine"})
    assert connection.server == "https://[fd00::1]:443"
    assert connection.namespace == "mine"


async def test_a_rotated_token_and_ca_are_picked_up(account: Path) -> None:
    clock = FakeClock()
    connection = in_cluster(account, environ=IN_POD, clock=clock)
    first = await connection.tls()
    mount(account, "second", trustme.CA())
    await clock.advance(1)
    assert await connection.headers() == {"Authorization": "Bearer second"}
    second = await connection.tls()
    assert second is not first
    await clock.advance(100)
    assert await connection.tls() is second


async def test_service_account_token_is_renewed_only_by_a_new_one(account: Path, authority: trustme.CA) -> None:
    connection = in_cluster(account, environ=IN_POD, clock=FakeClock())
    await connection.headers()
    assert not await connection.renew()
    mount(account, "second", authority)
    assert await connection.renew()
    assert await connection.headers() == {"Authorization": "Bearer second"}


@pytest.mark.parametrize("name", ["token", "ca.crt"])
def test_a_pod_without_a_mounted_account_is_told_why(account: Path, name: str) -> None:
    (account / "..data" / name).unlink()
    with pytest.raises(
        Misconfigured, match=rf"{name} cannot be used: No such file.*is automountServiceAccountToken false\?"
    ):
        in_cluster(account, environ=IN_POD)


@pytest.mark.parametrize("missing", IN_POD)
def test_outside_a_pod_there_is_no_account(account: Path, missing: str) -> None:
    with pytest.raises(
        Misconfigured, match=r"this process is not in a pod of a cluster, .*: name a kubeconfig instead"
    ):
        in_cluster(account, environ={name: value for name, value in IN_POD.items() if name != missing})


def test_precedence_of_named_file_pod_and_home(account: Path, tmp_path: Path) -> None:
    (tmp_path / ".kube").mkdir()
    home = write_kubeconfig(tmp_path / ".kube" / "config", cluster={"server": "https://home"})
    named = write_kubeconfig(tmp_path / "named", cluster={"server": "https://named"})
    environ = IN_POD | {"HOME": str(tmp_path)}
    assert load(named, directory=account, environ=environ).server == "https://named"
    assert load(context="here", directory=account, environ=environ).server == "https://home"
    assert load(directory=account, environ=environ | {"KUBECONFIG": str(named)}).server == "https://named"
    assert load(directory=account, environ=environ).server == "https://10.96.0.1:443"
    assert load(directory=tmp_path / "nothing", environ=environ).server == "https://home"
    home.unlink()
    with pytest.raises(Misconfigured, match=r"the service account's token .* cannot be used"):
        load(directory=tmp_path / "nothing", environ=environ)
    with pytest.raises(Misconfigured, match="no kubeconfig found"):
        load(directory=account, environ={"HOME": str(tmp_path)})


# From a kubeconfig


async def test_a_context_gives_server_namespace_token_and_source(tmp_path: Path) -> None:
    cluster = {"server": "https://there:6443/k8s/clusters/c-1/", "tls-server-name": "kubernetes"}
    connection = connected(tmp_path, cluster=cluster, user={"token": f"{TOKEN}\n"}, namespace="training")
    assert connection.server == "https://there:6443/k8s/clusters/c-1"
    assert connection.namespace == "training"
    assert connection.server_name == "kubernetes"
    assert connection.source == f'context "here" of {tmp_path / "config"}'
    assert await connection.headers() == {"Authorization": f"Bearer {TOKEN}"}
    assert TOKEN not in repr(connection)
    assert not await connection.renew()


async def test_anonymous_user_sends_no_header(tmp_path: Path) -> None:
    connection = connected(tmp_path)
    assert dict(await connection.headers()) == {}
    assert connection.namespace == "default"
    assert not await connection.renew()


@pytest.mark.parametrize("server", ["http://localhost:8080", "localhost:8080"])
async def test_a_plain_http_server_has_no_tls(tmp_path: Path, server: str) -> None:
    connection = connected(tmp_path, cluster={"server": server})
    assert connection.server == "http://localhost:8080"
    assert await connection.tls() is None


async def test_a_bare_host_with_a_field_about_tls_is_an_https_server(tmp_path: Path) -> None:
    connection = connected(tmp_path, cluster={"server": "there:6443", "insecure-skip-tls-verify": True})
    assert connection.server == "https://there:6443"


async def test_a_server_goes_unchecked_only_when_told_so(tmp_path: Path) -> None:
    careless = await connected(tmp_path, cluster={"insecure-skip-tls-verify": True}).tls()
    careful = await connected(tmp_path, cluster={"insecure-skip-tls-verify": False}).tls()
    assert careless
    assert careful
    assert (careless.verify_mode, careless.check_hostname) == (ssl.CERT_NONE, False)
    assert (careful.verify_mode, careful.check_hostname) == (ssl.CERT_REQUIRED, True)


async def test_inline_data_wins_over_a_file_and_may_be_wrapped(tmp_path: Path, authority: trustme.CA) -> None:
    inline = data(authority.cert_pem.bytes().decode())
    wrapped = "\n".join(inline[start : start + 64] for start in range(0, len(inline), 64))
    cluster = {"certificate-authority": "missing.crt", "certificate-authority-data": wrapped}
    client = authority.issue_cert("me@example.com")
    user = {
        "client-certificate": "missing.crt",
        "client-certificate-data": data(client.cert_chain_pems[0].bytes().decode()),
        "client-key": "missing.key",
        "client-key-data": data(client.private_key_pem.bytes().decode()),
    }
    connection = connected(tmp_path, cluster=cluster, user=user)
    context = await connection.tls()
    assert context
    assert len(context.get_ca_certs()) == 1
    assert await connection.tls() is context


async def test_certificate_files_beside_the_kubeconfig_are_found(tmp_path: Path, authority: trustme.CA) -> None:
    client = authority.issue_cert("me@example.com")
    client.private_key_and_cert_chain_pem.write_to_path(str(tmp_path / "me.pem"))
    authority.cert_pem.write_to_path(str(tmp_path / "ca.crt"))
    user = {"client-certificate": "me.pem", "client-key": "me.pem"}
    assert await connected(tmp_path, cluster={"certificate-authority": "ca.crt"}, user=user).tls()
    (tmp_path / "me.pem").unlink()
    sentence = await refusal_of(tmp_path, cluster={"certificate-authority": "ca.crt"}, user=user)
    assert f'client-certificate {tmp_path / "me.pem"} of user "me" in ' in sentence


async def test_a_token_file_wins_over_a_token_while_it_can_be_read(tmp_path: Path) -> None:
    connection = connected(tmp_path, user={"token": "inline", "tokenFile": "token"})
    assert await connection.headers() == {"Authorization": "Bearer inline"}
    (tmp_path / "token").write_text("from the file\n")
    assert await connection.headers() == {"Authorization": "Bearer from the file"}


async def test_proxy_url_wins_over_the_environment(tmp_path: Path) -> None:
    environ = {"HTTPS_PROXY": "http://outer:3128"}
    file = write_kubeconfig(tmp_path / "config")
    assert from_kubeconfig(file, environ=environ).proxy == "http://outer:3128"
    file = write_kubeconfig(tmp_path / "config", cluster={"proxy-url": f"https://me:{TOKEN}@inner:3128"})
    connection = from_kubeconfig(file, environ=environ)
    assert connection.proxy == f"https://me:{TOKEN}@inner:3128"
    assert TOKEN not in repr(connection)


async def test_impersonation_sends_one_header_per_group(tmp_path: Path) -> None:
    user = {
        "token": TOKEN,
        "as": "jane",
        "as-uid": "17",
        "as-groups": ["dev", "ops"],
        "as-user-extra": {"acme.com/team": ["a", "b"], "50%": ["x"]},
    }
    headers = await connected(tmp_path, user=user).headers()
    assert isinstance(headers, CIMultiDictProxy)
    assert sorted(headers.items()) == [
        ("Authorization", f"Bearer {TOKEN}"),
        ("Impersonate-Extra-50%25", "x"),
        ("Impersonate-Extra-acme.com%2Fteam", "a"),
        ("Impersonate-Extra-acme.com%2Fteam", "b"),
        ("Impersonate-Group", "dev"),
        ("Impersonate-Group", "ops"),
        ("Impersonate-Uid", "17"),
        ("Impersonate-User", "jane"),
    ]


@pytest.mark.parametrize(
    ("cluster", "user", "sentence"),
    [
        ({"server": ""}, {}, 'cluster "there" in '),
        ({"server": "ftp://there"}, {}, 'the server "ftp://there" of cluster "there" in '),
        ({"server": "https://there:port"}, {}, "is not a valid URL: write it as https://host:port"),
        ({"server": f"https://me:{TOKEN}@there"}, {}, "has a user in its URL: use a token instead"),
        ({"proxy-url": f"socks5://me:{TOKEN}@proxy"}, {}, "names a SOCKS proxy, which is not supported"),
        (
            {"insecure-skip-tls-verify": True, "certificate-authority": "ca.crt"},
            {},
            "has both a certificate authority and insecure-skip-tls-verify: remove one",
        ),
        ({"certificate-authority-data": "%%%"}, {}, "certificate-authority-data of cluster"),
        ({"certificate-authority-data": data(TOKEN)}, {}, "is not a PEM certificate"),
        ({"certificate-authority": "missing.crt"}, {}, "missing.crt of cluster"),
        ({}, {"client-key-data": f"{TOKEN}!", "client-certificate": "x"}, "client-key-data of user"),
        (
            {},
            {"client-certificate": "x"},
            "has a client certificate without its key: set client-key or client-key-data",
        ),
        (
            {},
            {"client-certificate-data": data("x"), "client-key-data": data(TOKEN)},
            "or its key is not PEM: log in again",
        ),
        ({}, {"tokenFile": "missing"}, "cannot be used: No such file or directory; write the file"),
        ({}, {"token": f"{TOKEN}\nX-Other: header"}, "has a line break or a control character: store it again"),
        ({}, {"username": "me", "password": TOKEN}, "which no API server accepts since Kubernetes 1.19: use a token"),
        (
            {},
            {"auth-provider": {"name": "gcp", "config": {"access-token": TOKEN}}},
            '"gcp", which Kubernetes has removed',
        ),
        ({}, {"as-groups": ["dev"]}, "without a user: set the field as, too"),
        ({}, {"as": "jane\nX-Other: header"}, "impersonates a name with a line break"),
        ({}, {"exec": {"command": "login", "apiVersion": "client.authentication.k8s.io/v1alpha1"}}, "v1alpha1"),
        (
            {},
            make_exec_user("login") | {"client-certificate": "x", "client-key": "y"},
            "and an exec plugin: remove one",
        ),
        ({}, make_exec_user("no-such-login"), 'the exec plugin "no-such-login" of user "me" in '),
    ],
)
async def test_what_cannot_work_is_one_sentence(
    tmp_path: Path, cluster: dict[str, Any], user: dict[str, Any], sentence: str
) -> None:
    assert sentence in await refusal_of(tmp_path, cluster=cluster, user=user)


async def test_a_namespace_that_cannot_exist_is_refused(tmp_path: Path) -> None:
    sentence = await refusal_of(tmp_path, namespace="../secrets")
    assert 'has the namespace "../secrets": use small letters, digits and dashes' in sentence


async def test_password_beside_a_credential_is_ignored(tmp_path: Path) -> None:
    connection = connected(tmp_path, user={"username": "me", "password": "x", "token": TOKEN})
    assert await connection.headers() == {"Authorization": f"Bearer {TOKEN}"}


# With an exec plugin


async def test_plugin_runs_once_for_token_and_certificate(tmp_path: Path, authority: trustme.CA) -> None:
    client = authority.issue_cert("me@example.com")
    certificate, key = client.cert_chain_pems[0].bytes().decode(), client.private_key_pem.bytes().decode()
    program = write_plugin(
        tmp_path / "login", f"answer(token='t', clientCertificateData={certificate!r}, clientKeyData={key!r})"
    )
    connection = connected(tmp_path, user=make_exec_user("./login"))
    first = await connection.tls()
    assert await connection.headers() == {"Authorization": "Bearer t"}
    assert await connection.tls() is first
    assert count_runs(program) == 1


async def test_a_plugin_that_asks_is_told_about_the_cluster(tmp_path: Path, authority: trustme.CA) -> None:
    authority.cert_pem.write_to_path(str(tmp_path / "ca.crt"))
    write_plugin(tmp_path / "login", "answer(token=json.dumps(asked['spec']['cluster']))")
    extension = {"name": "client.authentication.k8s.io/exec", "extension": {"audience": "x"}}
    cluster = {"certificate-authority": "ca.crt", "tls-server-name": "kubernetes", "extensions": [extension]}
    connection = connected(tmp_path, cluster=cluster, user=make_exec_user("./login", provideClusterInfo=True))
    told = msgspec.json.decode((await connection.headers())["Authorization"].removeprefix("Bearer "))
    assert base64.b64decode(told.pop("certificate-authority-data")).strip() == authority.cert_pem.bytes().strip()
    assert told == {"server": "https://there:6443", "tls-server-name": "kubernetes", "config": {"audience": "x"}}


async def test_a_token_beside_a_plugin_saves_its_run(tmp_path: Path) -> None:
    connection = connected(tmp_path, user=make_exec_user("no-such-login") | {"token": TOKEN})
    assert await connection.headers() == {"Authorization": f"Bearer {TOKEN}"}


async def test_many_refusals_of_one_token_rerun_the_plugin_once(tmp_path: Path) -> None:
    program = write_plugin(tmp_path / "login", "answer(token=str(run))")
    connection = connected(tmp_path, user=make_exec_user("./login"))
    all_have_the_first, first_had_its_second = asyncio.Barrier(10), asyncio.Event()

    async def request(number: int) -> str:
        await connection.headers()
        await all_have_the_first.wait()
        if number == 9:  # the slowest is refused when another has long had its second try
            await first_had_its_second.wait()
        assert await connection.renew()
        second = await connection.headers()
        first_had_its_second.set()
        return second["Authorization"]

    assert set(await asyncio.gather(*map(request, range(10)))) == {"Bearer 2"}
    assert count_runs(program) == 2


async def test_plugin_reruns_after_each_refusal_of_its_newest_token(tmp_path: Path) -> None:
    write_plugin(tmp_path / "login", "answer(token=str(run))")
    connection = connected(tmp_path, user=make_exec_user("./login"))
    for run in (1, 2, 3):
        assert await connection.headers() == {"Authorization": f"Bearer {run}"}
        assert await connection.renew()
