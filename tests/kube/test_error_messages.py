"""A troubleshooting page: whatever stands between a person and the server is one sentence with place and fix."""

import asyncio
import os
import re
import socket
import subprocess
import sys
from collections.abc import AsyncIterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
import trustme
from aiohttp import web

from paddle_operator.kube.client import Client
from paddle_operator.kube.config.load import from_kubeconfig
from paddle_operator.kube.errors import KubeError
from paddle_operator.kube.objects import CONFIG_MAPS, Key
from testbed.clock import FakeClock
from testbed.control_plane import ControlPlane
from tests.support.kubeconfigs import TOKEN, make_exec_user, write_kubeconfig, write_plugin

OTHER_AUTHORITY = trustme.CA().cert_pem.bytes()


@dataclass(frozen=True)
class Trouble:
    """A kubeconfig that does not work, and what a person is told; `…` stands for words that are not ours."""

    what: str
    says: str
    user: dict[str, Any] = field(default_factory=dict)
    cluster: dict[str, Any] = field(default_factory=dict)
    plugin: str = ""  # the program that the user section runs
    context: str | None = None
    file: str = "config"

    def __str__(self) -> str:
        return self.what


TROUBLES = [
    # The kubeconfig
    Trouble(
        "the kubeconfig is not there",
        "no kubeconfig found (tried {directory}/missing): set KUBECONFIG, or name the file",
        file="missing",
    ),
    Trouble(
        "the context is not there",
        'there is no context "prod" in {config}: name one of its contexts (here)',
        context="prod",
    ),
    Trouble(
        "the token's file is not there",
        'tokenFile {directory}/token of user "me" in {config} cannot be used: No such file or directory; '
        "write the file, or name the right one",
        user={"tokenFile": "token"},
    ),
    Trouble(
        "the certificate authority's file holds something else",
        'certificate-authority {directory}/other of cluster "there" in {config} is not a PEM certificate: '
        "put the server's CA there",
        cluster={"certificate-authority": "other"},
    ),
    # The exec plugin
    Trouble(
        "the plugin is not installed",
        'the exec plugin "no-such-login" of user "me" in {config} was not found: brew install no-such-login',
        user=make_exec_user("no-such-login", installHint="brew install\n  no-such-login"),
    ),
    Trouble(
        "the plugin fails",
        'the exec plugin "{directory}/login" of user "me" in {config} exited 1: no session / expired yesterday; '
        "log in again, or run it by hand",
        plugin="sys.exit('no session\\nexpired yesterday')",
    ),
    Trouble(
        "the plugin fails without a word",
        'the exec plugin "{directory}/login" of user "me" in {config} exited 3: run it by hand to see why',
        plugin="sys.exit(3)",
    ),
    Trouble(
        "the plugin is killed",
        'the exec plugin "{directory}/login" of user "me" in {config} was ended by signal 9: run it by hand to see why',
        plugin="os.kill(os.getpid(), 9)",
    ),
    Trouble(
        "the plugin hangs",
        'the exec plugin "{directory}/login" of user "me" in {config} was killed, since it had not finished after '
        "60 s: run it by hand to see why",
        plugin="open(sys.argv[0] + '.hangs', 'w').close(); time.sleep(600)",
    ),
    Trouble(
        "the plugin prints rubbish",
        'the exec plugin "{directory}/login" of user "me" in {config} printed 13 bytes that are not JSON: '
        "run it by hand to see them",
        plugin=f"print('{TOKEN}')",
    ),
    Trouble(
        "the plugin has nothing to give",
        'the exec plugin "{directory}/login" of user "me" in {config} printed neither a token nor a certificate: '
        "log in again",
        plugin="answer()",
    ),
    Trouble(
        "the plugin's credential has expired",
        'the exec plugin "{directory}/login" of user "me" in {config} printed a credential that expired at '
        "2025-12-31 23:00:00+00:00, and the server refused it: log in again",
        plugin=f"answer(token='{TOKEN}', expirationTimestamp='2025-12-31T23:00:00Z')",
    ),
    Trouble(
        "the plugin's certificate is none",
        'the client certificate from the exec plugin "{directory}/login" of user "me" in {config} or its key is '
        "not PEM: log in again, or correct the kubeconfig",
        plugin=f"answer(clientCertificateData='{TOKEN}', clientKeyData='{TOKEN}')",
    ),
    # The way to the server
    Trouble(
        "nobody listens",
        'get configmaps default/a: cannot reach https://127.0.0.1:1 (context "here" of {config}): Connection refused; '
        "check the address and that the server is up",
        cluster={"server": "https://127.0.0.1:1"},
    ),
    Trouble(
        "the name does not resolve",
        'get configmaps default/a: cannot reach https://api.invalid:6443 (context "here" of {config}): '
        "Name or service not known; check the address and that the server is up",
        cluster={"server": "https://api.invalid:6443"},
    ),
    Trouble(
        "the name cannot exist",
        'the server "https://{long_name}:6443" of cluster "there" in {config} is not a valid URL: '
        "write it as https://host:port",
        cluster={"server": "https://{long_name}:6443"},
    ),
    Trouble(
        "the proxy is not there",
        "get configmaps default/a: cannot reach the proxy http://127.0.0.1:1 for {server} "
        '(context "here" of {config}): Connection refused; check proxy-url or HTTPS_PROXY, and that the proxy is up',
        cluster={"proxy-url": f"http://me:{TOKEN}@127.0.0.1:1"},
    ),
    Trouble(
        "the proxy wants a password",
        "get configmaps default/a: the proxy http://{website} refused the connection to {server} "
        '(context "here" of {config}): Proxy Authentication Required (407); '
        "check proxy-url or HTTPS_PROXY, or name the host in NO_PROXY",
        cluster={"proxy-url": f"http://me:{TOKEN}@{{website}}"},
    ),
    # Who answers there
    Trouble(
        "the server's authority is another",
        'get configmaps default/a: TLS verification of {server} (context "here" of {config}) failed: '
        "…; check the certificate authority, or fetch a new kubeconfig",
        cluster={"certificate-authority": "other-ca.crt"},
    ),
    Trouble(
        "the server's certificate is for another name",
        'get configmaps default/a: TLS verification of {server} (context "here" of {config}) failed: '
        "Hostname mismatch, certificate is not valid for 'prod.example'; "
        "check the address, or set tls-server-name to a name in the certificate",
        cluster={"tls-server-name": "prod.example"},
    ),
    Trouble(
        "the port does not speak TLS",
        'get configmaps default/a: TLS handshake with https://{website} (context "here" of {config}) failed: '
        "…; check the address, and that the port serves TLS",
        cluster={"server": "https://{website}"},
    ),
    Trouble(
        "the port speaks TLS, and the address says http",
        "get configmaps default/a: the response is not from an API server, check the address http://{address} "
        '(context "here" of {config}): Client sent an HTTP request to an HTTPS server. (400)',
        cluster={"server": "http://{address}"},
    ),
    Trouble(
        "the address has a path too many",
        'get configmaps default/a: {server}/dashboard (context "here" of {config}) does not serve this kind; '
        "install its CustomResourceDefinition, or check the address (404)",
        cluster={"server": "{server}/dashboard"},
        user={"token": "{tester}"},
    ),
    Trouble(
        "the address is that of a website",
        'get configmaps default/a: http://{website} (context "here" of {config}) responded 200 with text/html instead '
        "of JSON, so it is not an API server; check the address",
        cluster={"server": "http://{website}"},
    ),
    # What the server says
    Trouble(
        "the token is wrong",
        'get configmaps default/a: Unauthorized (401); the credentials of context "here" of {config} are missing, '
        "wrong or expired: log in again or renew the token",
        user={"token": TOKEN},
    ),
    Trouble(
        "the user has no right",
        'get configmaps default/a: configmaps "a" is forbidden: User "nobody-0" cannot get resource "configmaps" in '
        'API group "" in the namespace "default" (403); the credentials of context "here" of {config} do not '
        "grant this right: ask for a Role that does",
        user={"token": "{nobody}"},
    ),
]


async def answer_as_website(request: web.BaseRequest) -> web.StreamResponse:
    if request.method == "CONNECT":
        return web.Response(status=407)
    return web.Response(text="<h1>Log in</h1>", content_type="text/html")


class Scene:
    """A control plane, a website that is none, and kubeconfigs that lead to them or astray."""

    def __init__(self, control_plane: ControlPlane, directory: Path, website: str) -> None:
        self._directory = directory
        self._right = {"server": control_plane.server, "certificate-authority": "ca.crt"}
        self._facts = {
            "directory": str(directory),
            "config": str(directory / "config"),
            "server": control_plane.server,
            "address": control_plane.server.removeprefix("https://"),
            "website": website,
            "nobody": control_plane.credentials.token_of("nobody-0"),
            "tester": control_plane.credentials.token_of("tester-0"),
            "long_name": "a" * 64,
        }
        (directory / "ca.crt").write_bytes(control_plane.credentials.authority_file.read_bytes())
        (directory / "other-ca.crt").write_bytes(OTHER_AUTHORITY)
        (directory / "other").write_text("no certificate\n")

    def kubeconfig(self, trouble: Trouble) -> Path:
        cluster = {name: self.filled(value) for name, value in trouble.cluster.items()}
        user = {name: self.filled(value) if isinstance(value, str) else value for name, value in trouble.user.items()}
        if trouble.plugin:
            user = make_exec_user(write_plugin(self._directory / "login", trouble.plugin))
        write_kubeconfig(self._directory / "config", cluster=self._right | cluster, user=user)
        return self._directory / trouble.file

    def filled(self, text: str) -> str:
        return text.format_map(self._facts)

    @property
    def plugin_hangs(self) -> bool:
        return (self._directory / "login.hangs").exists()

    def check(self, trouble: Trouble, sentence: str) -> None:
        expected = re.escape(self.filled(trouble.says)).replace("…", ".+")
        assert re.fullmatch(expected, sentence), sentence
        assert "\n" not in sentence
        for secret in (TOKEN, self._facts["nobody"], self._facts["tester"], "PRIVATE KEY"):
            assert secret not in sentence


@pytest.fixture
async def scene(control_plane: ControlPlane, tmp_path: Path) -> AsyncIterator[Scene]:
    runner = web.ServerRunner(web.Server(answer_as_website, access_log=None))
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", 0)
    await site.start()
    host, port = runner.addresses[0]
    yield Scene(control_plane, tmp_path, f"{host}:{port}")
    await runner.cleanup()


@pytest.fixture
def no_name_service(monkeypatch: pytest.MonkeyPatch) -> None:
    """Names that end with `invalid` are nobody's; here no server far away is asked about that."""
    real = socket.getaddrinfo

    def getaddrinfo(host: str, *arguments: Any, **options: Any) -> Any:
        if host.endswith(".invalid"):
            raise socket.gaierror(socket.EAI_NONAME, "Name or service not known")
        return real(host, *arguments, **options)

    monkeypatch.setattr(socket, "getaddrinfo", getaddrinfo)


async def first_request(scene: Scene, trouble: Trouble) -> None:
    """Ask for an object; pauses between tries cost nothing, and a plugin's time passes only while it hangs."""
    pauses, patience = FakeClock(), FakeClock()

    async def ask() -> None:
        connection = from_kubeconfig(scene.kubeconfig(trouble), trouble.context, clock=patience)
        async with Client(connection, clock=pauses) as client:
            await client.get(CONFIG_MAPS, Key("default", "a"))

    asking = asyncio.ensure_future(ask())
    while not asking.done():
        await pauses.advance(1)
        if scene.plugin_hangs:
            await patience.advance(60)
        await asyncio.sleep(0.001)  # what is waited for is a process or a socket
    await asking


@pytest.mark.usefixtures("no_name_service")
@pytest.mark.parametrize("trouble", TROUBLES, ids=str)
async def test_a_trouble_is_one_sentence_with_its_place_and_its_fix(scene: Scene, trouble: Trouble) -> None:
    with pytest.raises(KubeError) as told:
        await first_request(scene, trouble)
    scene.check(trouble, str(told.value))


PROGRAM = """
import asyncio, sys
from paddle_operator.kube.client import Client
from paddle_operator.kube.config.load import load
from paddle_operator.kube.errors import KubeError
from paddle_operator.kube.objects import CONFIG_MAPS, Key

async def main():
    async with Client(load()) as client:
        await client.get(CONFIG_MAPS, Key("default", "a"))

try:
    asyncio.run(main())
except KubeError as error:
    sys.exit(str(error))
"""


@pytest.mark.parametrize(
    "what",
    ["the plugin fails", "nobody listens", "the server's authority is another", "the token is wrong"],
)
async def test_a_program_that_prints_the_error_prints_nothing_else(scene: Scene, what: str) -> None:
    trouble = next(trouble for trouble in TROUBLES if trouble.what == what)
    environ = {"KUBECONFIG": str(scene.kubeconfig(trouble)), "PATH": os.environ["PATH"]}
    command = [sys.executable, "-W", "always", "-c", PROGRAM]  # a socket that is left open would be told, too
    done = await asyncio.to_thread(subprocess.run, command, env=environ, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout) == (1, "")
    scene.check(trouble, done.stderr.removesuffix("\n"))
