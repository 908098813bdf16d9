"""What went wrong with a request, as one of our errors: a sentence with the server, its configuration and the fix.

The words of asyncio and OpenSSL are for programmers, and the URL of a proxy may hold a password.
"""

import ssl
from urllib.parse import urlsplit

import msgspec

from paddle_operator.kube.config.server import Connection
from paddle_operator.kube.connection_pool import CannotConnect, CannotReachProxy, ProxyRefused
from paddle_operator.kube.errors import (
    APIStatusError,
    ReadTimeout,
    Status,
    Unreachable,
    Untrusted,
    in_words,
    one_line,
    refusal,
)
from paddle_operator.kube.http_connection import Reply

_OTHER_NAME = (62, 64)  # OpenSSL's X509_V_ERR_HOSTNAME_MISMATCH and X509_V_ERR_IP_ADDRESS_MISMATCH
_OTHER_TIME = (9, 10)  # X509_V_ERR_CERT_NOT_YET_VALID and X509_V_ERR_CERT_HAS_EXPIRED


def refused(about: str, connection: Connection, reply: Reply, body: bytes) -> APIStatusError:
    try:
        status = msgspec.json.decode(body, type=Status)
    except (msgspec.MsgspecError, UnicodeDecodeError):
        status = Status(message=_without_status(connection, reply.status, body))
    if not status.code:
        status = msgspec.structs.replace(status, code=reply.status)
    waits = reply.header("retry-after")
    waits = waits or (str(status.details.retry_after_seconds or "") if status.details else "")
    return refusal(about, status, float(waits) if waits.isdigit() else None, connection.source)


def _without_status(connection: Connection, code: int, body: bytes) -> str:
    if code == 404:  # all that a real API server says to a group that it does not serve is "404 page not found"
        return f"{_where(connection)} knows no such kind: install its CustomResourceDefinition, or check the address"
    words = body[:200].decode(errors="replace")  # a load balancer, or TLS that is met without TLS
    return f"this is no API server's answer, check the address {_where(connection)}: {words or 'no words'}"


def foreign(about: str, connection: Connection, reply: Reply) -> Untrusted:
    """Somebody answered who is no API server: a login page, a dashboard."""
    return Untrusted(
        f"{about}: {_where(connection)} answered {reply.status} with {reply.content_type} instead of JSON, "
        "as no API server does; check the address",
        sent=True,
    )


def unreachable(about: str, connection: Connection, error: BaseException) -> Unreachable:
    where = _where(connection)
    if isinstance(error, ssl.SSLError):
        why, fix = _distrust(error)
        return Untrusted(f"{about}: {where} did not prove to be the server we mean: {why}; {fix}")
    if isinstance(error, CannotReachProxy | ProxyRefused):
        return Unreachable(f"{about}: {_proxy_trouble(where, connection, error)}", sent=False)
    if isinstance(error, CannotConnect):
        why = in_words(error.reason) if error.reason else "no answer in time"
        return Unreachable(
            f"{about}: cannot reach {where}: {why}; check the address and that the server is up", sent=False
        )
    silent = isinstance(error, TimeoutError)
    why = "no word for too long" if silent else one_line(str(error)) or type(error).__name__
    sentence = f"{about}: lost the connection to {where}: {why}; check the network and that the server is up"
    return (ReadTimeout if silent else Unreachable)(sentence, sent=True)


def _where(connection: Connection) -> str:
    return connection.server + (f" ({connection.source})" if connection.source != connection.server else "")


def _distrust(error: ssl.SSLError) -> tuple[str, str]:
    """Why a handshake failed, and what to do."""
    if not isinstance(error, ssl.SSLCertVerificationError):
        reason = error.reason or str(error)
        return one_line(reason.replace("_", " ").lower()), "check the address, and that its port speaks TLS"
    why = error.verify_message.rstrip(".")
    if error.verify_code in _OTHER_NAME:
        return why, "check the address, or set tls-server-name to a name that the certificate has"
    if error.verify_code in _OTHER_TIME:
        return why, "renew the server's certificate, or correct this machine's clock"
    return why, "check its certificate authority, or fetch the kubeconfig anew"


def _proxy_trouble(where: str, connection: Connection, error: CannotReachProxy | ProxyRefused) -> str:
    parts = urlsplit(connection.proxy or "")
    proxy = f"{parts.scheme}://{parts.netloc.rpartition('@')[2]}"  # without its password
    if isinstance(error, CannotReachProxy):
        why = in_words(error.reason) if error.reason else "no answer in time"
        why = f"{why}; check proxy-url or HTTPS_PROXY, and that the proxy is up"
        return f"cannot reach the proxy {proxy} on the way to {where}: {why}"
    why = f"{one_line(error.reason)} ({error.status}); check proxy-url or HTTPS_PROXY, or name the host in NO_PROXY"
    return f"the proxy {proxy} does not let us through to {where}: {why}"
