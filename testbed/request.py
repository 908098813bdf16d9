"""Sends one HTTP request to a server on loopback. The test bed uses it so as not to depend on the client under test."""

import http.client
import json
import ssl
import urllib.error
import urllib.request
from dataclasses import dataclass
from typing import Any

TIMEOUT_SECONDS = 60.0  # a busy machine has stalls of 10 s


class RequestError(RuntimeError):
    """A server or kubectl did not do what the test bed needs; the message has its response."""


@dataclass(frozen=True)
class HTTPResponse:
    """A response; status 0 means that the server did not respond."""

    status: int
    body: bytes

    @property
    def ok(self) -> bool:
        return 200 <= self.status < 300

    def json(self) -> Any:
        return json.loads(self.body)


def send(
    method: str,
    url: str,
    *,
    body: object = None,
    token: str = "",
    trust: ssl.SSLContext | None = None,
    content_type: str = "application/json",
) -> HTTPResponse:
    """Send one request on a new connection; an unreachable server is status 0 and not an exception."""
    headers = {"Content-Type": content_type} | ({"Authorization": f"Bearer {token}"} if token else {})
    data = None if body is None else json.dumps(body).encode()
    request = urllib.request.Request(url, data=data, headers=headers, method=method)
    handlers: list[urllib.request.BaseHandler] = [urllib.request.ProxyHandler({})]  # a proxy cannot reach our loopback
    if trust is not None:
        handlers.append(urllib.request.HTTPSHandler(context=trust))
    try:
        with urllib.request.build_opener(*handlers).open(request, timeout=TIMEOUT_SECONDS) as response:
            return HTTPResponse(response.status, response.read())
    except urllib.error.HTTPError as error:
        with error:
            return HTTPResponse(error.code, error.read())
    except (OSError, http.client.HTTPException) as error:
        return HTTPResponse(0, str(error).encode())
