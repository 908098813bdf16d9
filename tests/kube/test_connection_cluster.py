"""Every way to be somebody to a real API server, and what becomes of a running client when the proof is exchanged."""

import asyncio
import base64
import json
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import aiohttp
import msgspec
import pytest
import trustme
from aiohttp import test_utils, web

from paddle_operator.kube.client import Client, Scope
from paddle_operator.kube.config.load import from_kubeconfig, load
from paddle_operator.kube.config.server import ServerConfig
from paddle_operator.kube.errors import Unauthorized, Untrusted
from paddle_operator.kube.informer import Informer
from paddle_operator.kube.objects import CONFIG_MAPS, Key, Object, Resource, View
from testbed.clock import FakeClock
from testbed.control_plane import ControlPlane
from testbed.credentials import TESTERS_GROUP
from testbed.faults import FaultProxy
from tests.kube.objects import make_config_map
from tests.support.kubeconfigs import count_runs, make_exec_user, write_kubeconfig, write_plugin


class UserInfo(View, frozen=True):
    username: str = ""
    uid: str = ""
    groups: tuple[str, ...] = ()
    extra: Mapping[str, tuple[str, ...]] = msgspec.field(default_factory=dict)


class ReviewStatus(View, frozen=True):
    user_info: UserInfo = UserInfo()


class SelfSubjectReview(Object, frozen=True):
    status: ReviewStatus = ReviewStatus()


class TokenStatus(View, frozen=True):
    token: str = ""


class TokenRequest(Object, frozen=True):
    status: TokenStatus = TokenStatus()


REVIEWS = Resource("apis/authentication.k8s.io/v1", "selfsubjectreviews", SelfSubjectReview, namespaced=False)
TOKENS = Resource("api/v1", "serviceaccounts/default/token", TokenRequest)
SECRETS = Resource("api/v1", "secrets", Object)


async def who_is(client: Client) -> UserInfo:
    """Whom the API server takes this client for."""
    manifest = {"apiVersion": "authentication.k8s.io/v1", "kind": "SelfSubjectReview", "metadata": {"name": "me"}}
    return (await client.create(REVIEWS, manifest)).status.user_info


async def who_comes_by(connection: ServerConfig) -> str:
    async with Client(connection) as client:
        return (await who_is(client)).username


async def account_token(client: Client, namespace: str, bound_to: Object | None = None) -> str:
    """A token of the default ServiceAccount; one that is bound to a Secret dies with it."""
    reference = (
        {"apiVersion": "v1", "kind": "Secret", "name": bound_to.key.name, "uid": bound_to.uid} if bound_to else {}
    )
    manifest = {
        "apiVersion": "authentication.k8s.io/v1",
        "kind": "TokenRequest",
        "metadata": {"namespace": namespace, "name": "default"},
        "spec": {"expirationSeconds": 600} | ({"boundObjectRef": reference} if reference else {}),
    }
    return (await client.create(TOKENS, manifest)).status.token


def data(path: Path) -> str:
    return base64.b64encode(path.read_bytes()).decode()


class Here:
    """Builds kubeconfigs for the running control plane; the CA file is beside them."""

    def __init__(self, control_plane: ControlPlane, directory: Path) -> None:
        self.clock = FakeClock()  # files are looked at again only when a test says so
        self.directory = directory
        self.authority = directory / "ca.crt"
        self._control_plane = control_plane
        self.authority.write_bytes(control_plane.credentials.authority_file.read_bytes())

    def token(self, user: str) -> str:
        return self._control_plane.credentials.token_of(user)

    def connection(self, user: dict[str, Any], **cluster: str) -> ServerConfig:
        known = {"server": self._control_plane.server, "certificate-authority": "ca.crt"}
        path = write_kubeconfig(self.directory / "config", cluster=known | cluster, user=user)
        return from_kubeconfig(path, clock=self.clock)


@pytest.fixture
def here(control_plane: ControlPlane, tmp_path: Path) -> Here:
    return Here(control_plane, tmp_path)


# Ways to be somebody


async def test_a_token_is_believed_whether_inline_or_in_a_file(here: Here) -> None:
    assert await who_comes_by(here.connection({"token": here.token("tester-1")})) == "tester-1"
    (here.directory / "token").write_text(here.token("tester-2") + "\n")
    assert await who_comes_by(here.connection({"tokenFile": "token"})) == "tester-2"


async def test_a_kubeconfig_that_stands_alone_is_enough(control_plane: ControlPlane) -> None:
    assert await who_comes_by(load(control_plane.write_kubeconfig("tester-3"))) == "tester-3"


async def test_client_certificate_inline_or_in_files(here: Here, control_plane: ControlPlane) -> None:
    jane = control_plane.issue_client_certificate("jane", TESTERS_GROUP)
    inline = {"client-certificate-data": data(jane.certificate), "client-key-data": data(jane.key)}
    files = {"client-certificate": str(jane.certificate), "client-key": str(jane.key)}
    for user in (inline, files):
        async with Client(here.connection(user)) as client:
            who = await who_is(client)
            assert (who.username, TESTERS_GROUP in who.groups) == ("jane", True)


@pytest.mark.parametrize("version", ["v1", "v1beta1"])
async def test_a_plugins_token_is_believed(here: Here, version: str) -> None:
    plugin = write_plugin(here.directory / "login", f"answer(token={here.token('tester-4')!r})")
    api_version = f"client.authentication.k8s.io/{version}"
    assert await who_comes_by(here.connection(make_exec_user(plugin, apiVersion=api_version))) == "tester-4"
    assert count_runs(plugin) == 1


@pytest.mark.parametrize("version", ["v1", "v1beta1"])
async def test_a_plugins_certificate_is_believed(here: Here, control_plane: ControlPlane, version: str) -> None:
    john = control_plane.issue_client_certificate("john")
    status = {"clientCertificateData": john.certificate.read_text(), "clientKeyData": john.key.read_text()}
    plugin = write_plugin(here.directory / "login", f"answer(**json.loads({json.dumps(status)!r}))")
    api_version = f"client.authentication.k8s.io/{version}"
    assert await who_comes_by(here.connection(make_exec_user(plugin, apiVersion=api_version))) == "john"
    assert count_runs(plugin) == 1


async def test_plugin_reruns_when_its_token_is_refused(here: Here) -> None:
    tokens = ["stale", here.token("tester-5")]
    plugin = write_plugin(here.directory / "login", f"answer(token={tokens!r}[run - 1])")
    assert await who_comes_by(here.connection(make_exec_user(plugin))) == "tester-5"
    assert count_runs(plugin) == 2


async def test_an_impersonated_user_is_who_the_server_sees(here: Here) -> None:
    user = {
        "token": here.token("tester-1"),
        "as": "jane",
        "as-uid": "007",
        "as-groups": ["devs", "system:masters"],
        "as-user-extra": {"example.com/project": ["a", "b"]},
    }
    async with Client(here.connection(user)) as client:
        who = await who_is(client)
    assert (who.username, who.uid) == ("jane", "007")
    assert set(who.groups) == {"devs", "system:masters", "system:authenticated"}
    assert who.extra["example.com/project"] == ("a", "b")


# Ways to the server


async def test_a_server_may_be_known_by_another_name_than_its_address(here: Here) -> None:
    user = {"token": here.token("tester-1")}
    named = here.connection(user, **{"tls-server-name": "kubernetes.default.svc"})
    assert await who_comes_by(named) == "tester-1"
    with pytest.raises(Untrusted, match=r"certificate is not valid for 'another\.example'"):
        await who_comes_by(here.connection(user, **{"tls-server-name": "another.example"}))


async def test_a_server_may_live_below_a_path_as_behind_a_gateway(here: Here, control_plane: ControlPlane) -> None:
    async def pass_on(request: web.BaseRequest) -> web.StreamResponse:
        url = control_plane.server + request.raw_path.removeprefix("/k8s/clusters/c-1")
        headers = {"Authorization": request.headers["Authorization"], "Content-Type": "application/json"}
        async with (
            aiohttp.ClientSession() as session,
            session.post(url, data=await request.read(), headers=headers, ssl=control_plane.trust) as reply,
        ):
            return web.Response(body=await reply.read(), content_type=reply.content_type, status=reply.status)

    async with test_utils.RawTestServer(pass_on) as gateway:
        connection = here.connection(
            {"token": here.token("tester-1")}, server=str(gateway.make_url("/k8s/clusters/c-1"))
        )
        assert await who_comes_by(connection) == "tester-1"


class ConnectProxy:
    """Knows one verb, CONNECT, and counts."""

    def __init__(self) -> None:
        self.tunnels: list[str] = []

    @asynccontextmanager
    async def serving(self) -> AsyncIterator[str]:
        async with await asyncio.start_server(self._serve, "127.0.0.1", 0) as server:
            yield "http://127.0.0.1:{1}".format(*server.sockets[0].getsockname())

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        head = await reader.readuntil(b"\r\n\r\n")
        verb, target, *_ = head.decode().split(" ")
        assert verb == "CONNECT"
        self.tunnels.append(target)
        host, _, port = target.rpartition(":")
        far_reader, far_writer = await asyncio.open_connection(host, int(port))
        writer.write(b"HTTP/1.1 200 OK\r\n\r\n")
        await asyncio.gather(_pump(reader, far_writer), _pump(far_reader, writer))


async def _pump(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    try:
        while some := await reader.read(65536):
            writer.write(some)
    except ConnectionError:
        pass  # one side has left without a word
    finally:
        writer.close()


async def test_a_proxy_is_passed_by_every_way_of_proof(here: Here, control_plane: ControlPlane) -> None:
    jane = control_plane.issue_client_certificate("jane")
    proxy = ConnectProxy()
    async with proxy.serving() as url:
        assert (
            await who_comes_by(here.connection({"token": here.token("tester-1")}, **{"proxy-url": url})) == "tester-1"
        )
        through = {"proxy-url": url, "tls-server-name": "localhost"}
        by_certificate = {"client-certificate": str(jane.certificate), "client-key": str(jane.key)}
        assert await who_comes_by(here.connection(by_certificate, **through)) == "jane"
    assert proxy.tunnels == [control_plane.server.removeprefix("https://")] * 2


# In a pod


async def test_a_pod_is_its_service_account(here: Here, client: Client, namespace: str) -> None:
    directory = here.directory / "serviceaccount"
    directory.mkdir()
    (directory / "ca.crt").write_bytes(here.authority.read_bytes())
    (directory / "token").write_text(await account_token(client, namespace))
    (directory / "namespace").write_text(namespace)
    host, _, port = client.config.server.removeprefix("https://").rpartition(":")
    environ = {"KUBERNETES_SERVICE_HOST": host, "KUBERNETES_SERVICE_PORT": port, "HOME": str(here.directory)}
    connection = load(directory=directory, environ=environ)
    assert (connection.namespace, connection.source) == (namespace, "the service account of this pod")
    assert await who_comes_by(connection) == f"system:serviceaccount:{namespace}:default"


# What is exchanged under a running client


async def test_a_token_that_is_rotated_in_time_is_used_from_then_on(here: Here, control_plane: ControlPlane) -> None:
    file = here.directory / "token"
    file.write_text(here.token("tester-6"))
    async with Client(here.connection({"tokenFile": "token"})) as client, control_plane.audit.recording() as writes:
        assert (await who_is(client)).username == "tester-6"
        file.write_text(here.token("tester-7"))
        await here.clock.advance(1)
        assert (await who_is(client)).username == "tester-7"
    assert [write.user for write in writes.by("tester-6", "tester-7")] == ["tester-6", "tester-7"]


async def test_revoked_token_is_replaced_from_its_file(
    here: Here, proxy: FaultProxy, client: Client, namespace: str
) -> None:
    file = here.directory / "token"
    manifest = {"apiVersion": "v1", "kind": "Secret", "metadata": {"namespace": namespace, "name": "life"}}
    life = await client.create(SECRETS, manifest)
    # The server goes on believing a token for ten seconds once it has believed it: each is shown to it only once.
    living, dying, *probes = [await account_token(client, namespace, bound_to=life) for _ in range(30)]
    file.write_text(living)
    async with Client(here.connection({"tokenFile": "token"}, server=proxy.url)) as running:
        assert (await who_is(running)).username == f"system:serviceaccount:{namespace}:default"
        file.write_text(dying)
        await here.clock.advance(1)
        await running.config.headers()  # looks at the file, asks nobody
        await client.delete(SECRETS, life.key)
        await until_refused(here, probes)
        file.write_text(here.token("tester-8"))
        assert (await who_is(running)).username == "tester-8"
    assert [seen.code for seen in proxy.requests] == [201, 401, 201]


async def until_refused(here: Here, tokens: list[str]) -> None:
    """Return when the server has heard of the end of the Secret that these tokens are bound to."""
    for number, token in enumerate(tokens):
        try:
            await who_comes_by(here.connection({"token": token}))
        except Unauthorized:
            return
        await asyncio.sleep(0.1 * number)  # the tokens are few, and a busy server may hear of it late: 38 s in all
    raise AssertionError("every one of the tokens was believed")


async def test_a_dead_token_in_an_unchanged_file_is_shown_once(here: Here, proxy: FaultProxy) -> None:
    (here.directory / "token").write_text("dead")
    async with Client(here.connection({"tokenFile": "token"}, server=proxy.url)) as client:
        with pytest.raises(Unauthorized):
            await who_is(client)
    assert [seen.code for seen in proxy.requests] == [401]


async def noticed_in_time(here: Here, proxy: FaultProxy, old: str) -> None:
    """The file is looked at again before the server is asked again."""
    await here.clock.advance(1)


async def refused_first(here: Here, proxy: FaultProxy, old: str) -> None:
    """The file is not looked at again: the client learns from the server that its token is dead."""
    proxy.when(token=old).respond_with(401)


@pytest.mark.parametrize("how", [noticed_in_time, refused_first], ids=lambda how: how.__name__)
async def test_an_informer_goes_on_with_the_new_token(
    here: Here,
    proxy: FaultProxy,
    client: Client,
    namespace: str,
    how: Callable[[Here, FaultProxy, str], Awaitable[None]],
) -> None:
    file = here.directory / "token"
    old, new = here.token("tester-9"), here.token("tester-10")
    file.write_text(old)
    first_watch = proxy.when(verb="watch").delay(0, times=1)
    async with Client(here.connection({"tokenFile": "token"}, server=proxy.url)) as running:
        informer: Informer[Object, Object] = Informer(running, CONFIG_MAPS, Scope(namespace))
        following = asyncio.ensure_future(informer.run())
        seen = asyncio.Event()
        informer.store.listen(lambda *_: seen.set() if informer.store.get(Key(namespace, "late")) else None)
        await asyncio.wait_for(first_watch.wait_fired(), 100)
        file.write_text(new)
        await how(here, proxy, old)
        proxy.when(verb="watch").end_watch(times=1)
        await client.create(CONFIG_MAPS, make_config_map(Key(namespace, "late")))
        await asyncio.wait_for(seen.wait(), 100)
        following.cancel()
        await asyncio.wait((following,))
    assert len(proxy.find_requests(verb="list")) == 1
    assert len(proxy.find_requests(verb="watch", token=new)) == 1
    assert len(proxy.find_requests(verb="watch", token=old)) == (1 if how is noticed_in_time else 2)


async def test_a_rotated_client_certificate_is_shown_from_then_on(here: Here, control_plane: ControlPlane) -> None:
    def install(user: str) -> None:
        issued = control_plane.issue_client_certificate(user)
        (here.directory / "tls.crt").write_bytes(issued.certificate.read_bytes())
        (here.directory / "tls.key").write_bytes(issued.key.read_bytes())

    install("jane")
    async with Client(here.connection({"client-certificate": "tls.crt", "client-key": "tls.key"})) as client:
        assert (await who_is(client)).username == "jane"
        install("john")
        assert (await who_is(client)).username == "jane"
        await here.clock.advance(1)
        assert (await who_is(client)).username == "john"


async def test_a_rotated_authority_is_trusted_from_then_on(here: Here) -> None:
    right = here.authority.read_bytes()
    wrong = trustme.CA().cert_pem.bytes()
    here.authority.write_bytes(wrong)
    async with Client(here.connection({"token": here.token("tester-1")})) as client:
        with pytest.raises(Untrusted):
            await who_is(client)
        here.authority.write_bytes(wrong + right)
        await here.clock.advance(1)
        assert (await who_is(client)).username == "tester-1"
        here.authority.write_bytes(b"half-way through being written")
        await here.clock.advance(1)
        assert (await who_is(client)).username == "tester-1"
