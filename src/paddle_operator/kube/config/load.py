"""The server and credentials to use: from inside a pod or from a kubeconfig, as kubectl would choose.

The order is controller-runtime's: what the caller names, KUBECONFIG, the pod's service account, ~/.kube/config.
"""

import asyncio
import base64
import binascii
import os
import re
import ssl
from collections.abc import Mapping
from pathlib import Path
from urllib.parse import quote
from weakref import WeakKeyDictionary

from multidict import CIMultiDict, CIMultiDictProxy

from paddle_operator.kube.clock import Clock, SystemClock
from paddle_operator.kube.config import kubeconfig
from paddle_operator.kube.config.credentials import (
    CredentialProvider,
    Credentials,
    InlineSecret,
    Secret,
    SecretSource,
    StaticCredentials,
    WatchedFile,
    is_printable,
)
from paddle_operator.kube.config.exec_plugin import EXEC_GROUP, ExecPlugin
from paddle_operator.kube.config.kubeconfig import Cluster, Entry, ResolvedContext, User
from paddle_operator.kube.config.proxy import environment_proxy, is_http_url, validate_proxy
from paddle_operator.kube.config.server import ServerConfig
from paddle_operator.kube.config.tls import InsecureSkipVerify, SSLContexts, Trust
from paddle_operator.kube.errors import Misconfigured

SERVICE_ACCOUNT = Path("/var/run/secrets/kubernetes.io/serviceaccount")

_CLOCK = SystemClock()
_NAMESPACE = re.compile(r"[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?")
_HEADER_NAME = "!#$&'*+-.^_`|~"  # what a header's name may hold besides letters and digits


def load(
    path: Path | None = None,
    context: str | None = None,
    *,
    directory: Path = SERVICE_ACCOUNT,
    environ: Mapping[str, str] = os.environ,
    clock: Clock = _CLOCK,
) -> ServerConfig:
    """The configuration for where this program runs. Raises Misconfigured."""
    if path or context or environ.get("KUBECONFIG"):
        return from_kubeconfig(path, context, environ=environ, clock=clock)
    in_pod = bool(environ.get("KUBERNETES_SERVICE_HOST"))
    has_file = kubeconfig.default_path(environ).is_file()
    if in_pod and (not has_file or (directory / "token").exists()):
        return in_cluster(directory, environ=environ, clock=clock)
    return from_kubeconfig(environ=environ, clock=clock)


def in_cluster(
    directory: Path = SERVICE_ACCOUNT, *, environ: Mapping[str, str] = os.environ, clock: Clock = _CLOCK
) -> ServerConfig:
    """The configuration of a pod's service account; a token and CA renewed by kubelet are picked up."""
    host, port = environ.get("KUBERNETES_SERVICE_HOST"), environ.get("KUBERNETES_SERVICE_PORT")
    if not host or not port:
        raise Misconfigured(
            "this process is not in a pod of a cluster, "
            "since KUBERNETES_SERVICE_HOST or KUBERNETES_SERVICE_PORT is not set: "
            "name a kubeconfig instead"
        )
    token = WatchedFile(f"the service account's token {directory / 'token'}", directory / "token", clock)
    authority = WatchedFile(f"the service account's CA {directory / 'ca.crt'}", directory / "ca.crt", clock)
    for source in (token, authority):
        try:
            source.content()
        except Misconfigured as problem:
            raise Misconfigured(f"{problem} (is automountServiceAccountToken false?)") from None
    server = f"https://[{host}]:{port}" if ":" in host else f"https://{host}:{port}"
    return LoadedServerConfig(
        server=server,
        namespace=environ.get("POD_NAMESPACE") or _read_text(directory / "namespace") or "default",
        source="the service account of this pod",
        proxy=environment_proxy(server, environ),
        server_name=None,
        contexts=SSLContexts(Trust(authority)),
        credential=StaticCredentials(token),
    )


def from_kubeconfig(
    path: Path | None = None,
    context: str | None = None,
    *,
    environ: Mapping[str, str] = os.environ,
    clock: Clock = _CLOCK,
) -> ServerConfig:
    """The configuration of one context, by default the current one. Raises Misconfigured. Runs no plugin yet."""
    chosen = kubeconfig.read(path, environ).choose(context)
    namespace = chosen.context.value.namespace or "default"
    if not _NAMESPACE.fullmatch(namespace):
        raise Misconfigured(f'{chosen.context} has the namespace "{namespace}": use small letters, digits and dashes')
    server = _server(chosen)
    authority = _authority(chosen.cluster, clock)
    proxy_url = chosen.cluster.value.proxy_url.reveal()
    proxy = (
        validate_proxy(proxy_url, f"proxy-url of {chosen.cluster}") if proxy_url else environment_proxy(server, environ)
    )
    trust = InsecureSkipVerify() if chosen.cluster.value.insecure_skip_tls_verify else Trust(authority)
    return LoadedServerConfig(
        server=server,
        namespace=namespace,
        source=f'context "{chosen.context.name}" of {kubeconfig.home_relative(chosen.context.file)}',
        proxy=proxy,
        server_name=chosen.cluster.value.tls_server_name or None,
        contexts=SSLContexts(trust),
        credential=_credential(chosen, server, authority, environ, clock),
        impersonation=_impersonation(chosen.user),
    )


class LoadedServerConfig:
    """A ServerConfig from files, variables or a plugin; its repr shows none of them."""

    def __init__(
        self,
        *,
        server: str,
        namespace: str,
        source: str,
        proxy: str | None,
        server_name: str | None,
        contexts: SSLContexts,
        credential: CredentialProvider,
        impersonation: tuple[tuple[str, str], ...] = (),
    ) -> None:
        self.server = server
        self.namespace = namespace
        self.source = source
        self.proxy = proxy
        self.server_name = server_name
        self._contexts = contexts
        self._credential = credential
        self._impersonation = impersonation
        self._headers: tuple[Credentials, CIMultiDictProxy[str]] | None = None
        # Many requests may be refused at once, and a new token may exist before the last of them renews. What a task
        # sent tells whether the newest credentials were refused, or only older ones.
        self._credentials_of_task: WeakKeyDictionary[asyncio.Task[object], Credentials] = WeakKeyDictionary()

    async def tls(self) -> ssl.SSLContext | None:
        if self.server.startswith("http://"):
            return None
        credentials = await self._credential.credentials()
        return self._contexts.context(credentials.pair)

    async def headers(self) -> Mapping[str, str]:
        """A multidict: an impersonated user's groups are one header each."""
        credentials = await self._credential.credentials()
        if task := asyncio.current_task():
            self._credentials_of_task[task] = credentials
        if self._headers is None or self._headers[0] is not credentials:
            self._headers = (credentials, CIMultiDictProxy(self._headers_for(credentials)))
        return self._headers[1]

    async def renew(self) -> bool:
        task = asyncio.current_task()
        return await self._credential.renew(self._credentials_of_task.get(task) if task else None)

    def _headers_for(self, credentials: Credentials) -> CIMultiDict[str]:
        headers = CIMultiDict(self._impersonation)
        if credentials.token:
            token = credentials.token.reveal()
            if not is_printable(token):
                raise Misconfigured(
                    f"the token for {self.source} has a line break or a control character: store it again"
                )
            headers["Authorization"] = f"Bearer {token}"
        return headers


def _server(chosen: ResolvedContext) -> str:
    cluster = chosen.cluster.value
    url = cluster.server
    if not url:
        raise Misconfigured(f"{chosen.cluster} has no server: set it to the API server's URL")
    if "://" not in url:  # as kubectl: a bare host is accepted, with TLS if a TLS field is set
        uses_tls = (
            cluster.certificate_authority or cluster.certificate_authority_data or cluster.insecure_skip_tls_verify
        )
        url = f"{'https' if uses_tls else 'http'}://{url}"
    if "@" in url:
        raise Misconfigured(f"the server of {chosen.cluster} has a user in its URL: use a token instead")
    if not is_http_url(url):
        raise Misconfigured(f'the server "{url}" of {chosen.cluster} is not a valid URL: write it as https://host:port')
    return url.rstrip("/")


def _authority(entry: Entry[Cluster], clock: Clock) -> SecretSource | None:
    cluster = entry.value
    data = Secret(cluster.certificate_authority_data)
    authority = _source("certificate-authority", entry, data, cluster.certificate_authority, clock)
    if authority and cluster.insecure_skip_tls_verify:
        raise Misconfigured(f"{entry} has both a certificate authority and insecure-skip-tls-verify: remove one")
    return authority


def _source(
    field: str, entry: Entry[Cluster] | Entry[User], data: Secret, path: str, clock: Clock
) -> SecretSource | None:
    """What `<field>-data` holds, else the file that `<field>` names: data wins, as with kubectl."""
    if not data:
        return WatchedFile(f"{field} {path} of {entry}", Path(path), clock) if path else None
    origin = f"{field}-data of {entry}"
    try:
        text = base64.b64decode("".join(data.reveal().split()), validate=True).decode(errors="replace")
    except (binascii.Error, ValueError):
        raise Misconfigured(f"{origin} is not base64: encode it with base64 -w0") from None
    return InlineSecret(origin, Secret(text))


def _credential(
    chosen: ResolvedContext, server: str, authority: SecretSource | None, environ: Mapping[str, str], clock: Clock
) -> CredentialProvider:
    entry, user = chosen.user, chosen.user.value
    if user.auth_provider:
        raise Misconfigured(
            f'{entry} uses the auth-provider "{user.auth_provider.name}", which Kubernetes has removed: '
            "log in again with your provider's exec plugin"
        )
    token = _token(entry, clock)
    certificate = _source(
        "client-certificate", entry, Secret(user.client_certificate_data), user.client_certificate, clock
    )
    key = _source("client-key", entry, user.client_key_data, user.client_key, clock)
    if certificate and not key:
        raise Misconfigured(f"{entry} has a client certificate without its key: set client-key or client-key-data")
    if user.exec and not token:  # as in client-go: with a token no plugin runs
        if certificate:
            raise Misconfigured(f"{entry} has both a client certificate and an exec plugin: remove one")
        return ExecPlugin(user.exec, str(entry), clock, environ, lambda: _cluster_info(chosen, server, authority))
    if user.username and not token and not certificate:
        raise Misconfigured(
            f"{entry} has a username and a password, which no API server accepts since Kubernetes 1.19: "
            "use a token, a client certificate or an exec plugin"
        )
    return StaticCredentials(token, certificate, key)


def _token(entry: Entry[User], clock: Clock) -> SecretSource | None:
    user = entry.value
    token = Secret(user.token.reveal().strip())
    if user.token_file:  # as in the reference of kubeconfig: the file wins while it can be read
        return WatchedFile(f"tokenFile {user.token_file} of {entry}", Path(user.token_file), clock, token or None)
    return InlineSecret(f"the token of {entry}", token) if token else None


def _cluster_info(chosen: ResolvedContext, server: str, authority: SecretSource | None) -> dict[str, object]:
    """The cluster section for plugins with provideClusterInfo."""
    cluster = chosen.cluster.value
    text = authority.content().reveal() if authority else ""
    config = next((item.extension for item in cluster.extensions if item.name == f"{EXEC_GROUP}/exec"), None)
    info = {
        "server": server,
        "tls-server-name": cluster.tls_server_name,
        "insecure-skip-tls-verify": cluster.insecure_skip_tls_verify,
        "certificate-authority-data": base64.b64encode(text.encode()).decode(),
        "proxy-url": cluster.proxy_url.reveal(),
        "disable-compression": cluster.disable_compression,
        "config": config,
    }
    return {field: value for field, value in info.items() if value}


def _impersonation(entry: Entry[User]) -> tuple[tuple[str, str], ...]:
    user = entry.value
    headers = [("Impersonate-User", user.impersonate)] if user.impersonate else []
    headers += [("Impersonate-Uid", user.impersonate_uid)] if user.impersonate_uid else []
    headers += [("Impersonate-Group", group) for group in user.impersonate_groups]
    for key, values in user.impersonate_extra.items():
        name = quote(key, safe=_HEADER_NAME)
        headers += [(f"Impersonate-Extra-{name}", value) for value in values]
    if headers and not user.impersonate:
        raise Misconfigured(f"{entry} has as-uid, as-groups or as-user-extra without a user: set the field as, too")
    if not all(is_printable(value) for _, value in headers):
        raise Misconfigured(f"{entry} impersonates a name with a line break or a control character: remove that")
    return tuple(headers)


def _read_text(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8").strip()
    except (OSError, ValueError):
        return ""
