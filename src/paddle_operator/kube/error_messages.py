"""The errors of a failed request: what happened, to which server, what to do.

The messages of asyncio and OpenSSL are for programmers, and a proxy's URL may contain a password.
"""

import ssl
from urllib.parse import urlsplit

import msgspec

from paddle_operator.kube.config.server import ServerConfig
from paddle_operator.kube.connection_pool import ConnectError, ProxyConnectError, ProxyRefused
from paddle_operator.kube.errors import (
    APIStatusError,
    ReadTimeout,
    Status,
    Unreachable,
    Untrusted,
    describe_os_error,
    error_of_status,
    one_line,
)
from paddle_operator.kube.http_connection import HTTPResponse

_NAME_MISMATCH = (62, 64)  # OpenSSL's X509_V_ERR_HOSTNAME_MISMATCH and X509_V_ERR_IP_ADDRESS_MISMATCH
_NOT_VALID_NOW = (9, 10)  # X509_V_ERR_CERT_NOT_YET_VALID and X509_V_ERR_CERT_HAS_EXPIRED


def status_error(about: str, config: ServerConfig, response: HTTPResponse, body: bytes) -> APIStatusError:
    try:
        status = msgspec.json.decode(body, type=Status)
    except (msgspec.MsgspecError, UnicodeDecodeError):
        status = Status(message=_message_without_status(config, response.status, body))
    if not status.code:
        status = msgspec.structs.replace(status, code=response.status)
    retry_after = response.header("retry-after")
    retry_after = retry_after or (str(status.details.retry_after_seconds or "") if status.details else "")
    return error_of_status(about, status, float(retry_after) if retry_after.isdigit() else None, config.source)


def _message_without_status(config: ServerConfig, code: int, body: bytes) -> str:
    if code == 404:  # an API server answers "404 page not found" for a group that it does not serve
        return f"{_server(config)} does not serve this kind; install its CustomResourceDefinition, or check the address"
    text = body[:200].decode(errors="replace")  # of a load balancer, or of a TLS port that was sent plain HTTP
    return f"the response is not from an API server, check the address {_server(config)}: {text or 'empty body'}"


def not_json(about: str, config: ServerConfig, response: HTTPResponse) -> Untrusted:
    """A success that is no API server's: a login page, a dashboard."""
    return Untrusted(
        f"{about}: {_server(config)} responded {response.status} with {response.content_type} instead of JSON, "
        "so it is not an API server; check the address",
        sent=True,
    )


def unreachable(about: str, config: ServerConfig, error: BaseException) -> Unreachable:
    where = _server(config)
    if isinstance(error, ssl.SSLError):
        why, fix = _explain_tls(error)
        verified = "TLS verification of" if isinstance(error, ssl.SSLCertVerificationError) else "TLS handshake with"
        return Untrusted(f"{about}: {verified} {where} failed: {why}; {fix}")
    if isinstance(error, ProxyConnectError | ProxyRefused):
        return Unreachable(f"{about}: {_describe_proxy_failure(where, config, error)}", sent=False)
    if isinstance(error, ConnectError):
        why = describe_os_error(error.reason) if error.reason else "timed out"
        return Unreachable(
            f"{about}: cannot reach {where}: {why}; check the address and that the server is up", sent=False
        )
    timed_out = isinstance(error, TimeoutError)
    why = "no data before the read timeout" if timed_out else one_line(str(error)) or type(error).__name__
    message = f"{about}: lost the connection to {where}: {why}; check the network and that the server is up"
    return (ReadTimeout if timed_out else Unreachable)(message, sent=True)


def _server(config: ServerConfig) -> str:
    return config.server + (f" ({config.source})" if config.source != config.server else "")


def _explain_tls(error: ssl.SSLError) -> tuple[str, str]:
    """Why a TLS handshake failed, and what to do."""
    if not isinstance(error, ssl.SSLCertVerificationError):
        reason = error.reason or str(error)
        return one_line(reason.replace("_", " ").lower()), "check the address, and that the port serves TLS"
    why = error.verify_message.rstrip(".")
    if error.verify_code in _NAME_MISMATCH:
        return why, "check the address, or set tls-server-name to a name in the certificate"
    if error.verify_code in _NOT_VALID_NOW:
        return why, "renew the server's certificate, or correct this machine's clock"
    return why, "check the certificate authority, or fetch a new kubeconfig"


def _describe_proxy_failure(where: str, config: ServerConfig, error: ProxyConnectError | ProxyRefused) -> str:
    parts = urlsplit(config.proxy or "")
    proxy = f"{parts.scheme}://{parts.netloc.rpartition('@')[2]}"  # without user and password
    if isinstance(error, ProxyConnectError):
        why = describe_os_error(error.reason) if error.reason else "timed out"
        why = f"{why}; check proxy-url or HTTPS_PROXY, and that the proxy is up"
        return f"cannot reach the proxy {proxy} for {where}: {why}"
    why = f"{one_line(error.reason)} ({error.status}); check proxy-url or HTTPS_PROXY, or name the host in NO_PROXY"
    return f"the proxy {proxy} refused the connection to {where}: {why}"
