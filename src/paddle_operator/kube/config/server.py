"""How to reach one API server and be believed by it; where these facts come from is config.py's story."""

import ssl
from collections.abc import Mapping
from typing import Protocol


class Connection(Protocol):
    """Everything the client asks before each request, so that a token, certificate or CA that rotates is picked up."""

    @property
    def server(self) -> str:
        """The base URL, without a slash at its end."""

    @property
    def namespace(self) -> str:
        """The namespace meant where a user names none."""

    @property
    def source(self) -> str:
        """Where this connection is configured, for error messages: 'context "prod" of ~/.kube/config'."""

    @property
    def proxy(self) -> str | None: ...

    @property
    def server_name(self) -> str | None:
        """The name to expect in the server's certificate where it is not the URL's host."""

    async def tls(self) -> ssl.SSLContext | None:
        """The same context as long as the files behind it are the same; None for plain HTTP. Raises Misconfigured."""

    async def headers(self) -> Mapping[str, str]:
        """What proves who we are. Raises Misconfigured."""

    async def renew(self) -> bool:
        """After a 401: forget what can be had anew, and say whether another try makes sense."""


class PlainConnection:
    """A server that asks for nothing or for a fixed token: tests, and the embedded server."""

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
