"""One request to one server on the loopback address, for the test bed itself: it leans on no client that it tests."""

import http.client
import json
import ssl
import urllib.error
import urllib.request
from dataclasses import dataclass
from typing import Any

TIMEOUT_SECONDS = 60.0  # a busy machine has stalls of 10 s


class RequestError(RuntimeError):
    """The server did not do what the test bed needs; str() has its words."""


@dataclass(frozen=True)
class HTTPResponse:
    """What came back; status 0 stands for a server that did not answer."""

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
    """The reply to one request on a connection of its own; a server that is not there is no error but status 0."""
    headers = {"Content-Type": content_type} | ({"Authorization": f"Bearer {token}"} if token else {})
    data = None if body is None else json.dumps(body).encode()
    request = urllib.request.Request(url, data=data, headers=headers, method=method)
    handlers: list[urllib.request.BaseHandler] = [urllib.request.ProxyHandler({})]  # a proxy has no way to our loopback
    if trust is not None:
        handlers.append(urllib.request.HTTPSHandler(context=trust))
    try:
        with urllib.request.build_opener(*handlers).open(request, timeout=TIMEOUT_SECONDS) as reply:
            return HTTPResponse(reply.status, reply.read())
    except urllib.error.HTTPError as refusal:
        with refusal:
            return HTTPResponse(refusal.code, refusal.read())
    except (OSError, http.client.HTTPException) as error:
        return HTTPResponse(0, str(error).encode())
