"""How to reach one API server and authenticate to it. load.py builds it from a kubeconfig or a service account."""

import ssl
from collections.abc import Mapping
from typing import Protocol


class ServerConfig(Protocol):
    """Read before each request, so that a rotated token, certificate or CA is used at once."""

    @property
    def server(self) -> str:
        """The base URL, without a trailing slash."""

    @property
    def namespace(self) -> str:
        """The default namespace."""

    @property
    def source(self) -> str:
        """Where this was configured, for error messages: 'context "prod" of ~/.kube/config'."""

    @property
    def proxy(self) -> str | None: ...

    @property
    def server_name(self) -> str | None:
        """The name expected in the server's certificate if it is not the URL's host."""

    async def tls(self) -> ssl.SSLContext | None:
        """The same context until one of its files changes; None for plain HTTP. Raises Misconfigured."""

    async def headers(self) -> Mapping[str, str]:
        """The headers that authenticate a request. Raises Misconfigured."""

    async def renew(self) -> bool:
        """After a 401: drop cached credentials. Returns whether the request is worth repeating."""


class StaticServerConfig:
    """A server with a fixed token or none: the embedded server, and tests."""

    namespace = "default"
    proxy = None
    server_name = None

    def __init__(self, server: str, token: str = "", context: ssl.SSLContext | None = None) -> None:
        self.server = server.rstrip("/")
        self.source = server
        self._headers = {"Authorization": f"Bearer {token}"} if token else {}
        self._context = context or (ssl.create_default_context() if server.startswith("https://") else None)

    async def tls(self) -> ssl.SSLContext | None:
        return self._context

    async def headers(self) -> Mapping[str, str]:
        return self._headers

    async def renew(self) -> bool:
        return False
