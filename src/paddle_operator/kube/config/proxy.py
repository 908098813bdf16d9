"""The proxy of a server: the kubeconfig's proxy-url, else HTTPS_PROXY and NO_PROXY as Go parses them.

Python's own parser of NO_PROXY does not support networks (10.0.0.0/8), which clusters use.
"""

import ipaddress
from collections.abc import Mapping
from urllib.parse import SplitResult, urlsplit

from paddle_operator.kube.errors import Misconfigured


def validate_proxy(url: str, origin: str) -> str:
    """The URL of an HTTP proxy. Raises Misconfigured, without the URL: it may hold a password."""
    if "://" not in url:
        url = f"http://{url}"
    if url.startswith("socks5"):
        raise Misconfigured(f"{origin} names a SOCKS proxy, which is not supported: name an http:// or https:// proxy")
    if not is_http_url(url):
        raise Misconfigured(f"{origin} is not the URL of a proxy: write it as http://host:port")
    return url


def is_http_url(url: str) -> bool:
    """Whether a URL has a supported scheme, a host and, if any, a valid port."""
    try:
        parts = urlsplit(url)
        (parts.hostname or "").encode("idna")
        return parts.scheme in ("http", "https") and bool(parts.hostname) and parts.port != 0
    except ValueError:  # an invalid port or IPv6 address, or a label that is empty or too long
        return False


def environment_proxy(server: str, environ: Mapping[str, str]) -> str | None:
    """The proxy that the environment sets for this server, if any. Raises Misconfigured."""
    parts = urlsplit(server)
    name = f"{parts.scheme.upper()}_PROXY"
    url = _variable(environ, name)
    if not url or _excluded(parts, _variable(environ, "NO_PROXY")):
        return None
    return validate_proxy(url, f"the environment variable {name}")


def _variable(environ: Mapping[str, str], name: str) -> str:
    return environ.get(name) or environ.get(name.lower()) or ""


def _excluded(server: SplitResult, no_proxy: str) -> bool:
    host = server.hostname or ""
    address = _address(host)
    if host == "localhost" or (address is not None and address.is_loopback):
        return True
    port = server.port or (443 if server.scheme == "https" else 80)
    entries = (entry.strip().lower() for entry in no_proxy.split(","))
    return any(_matches(entry, host, address, port) for entry in entries if entry)


_Address = ipaddress.IPv4Address | ipaddress.IPv6Address


def _matches(entry: str, host: str, address: _Address | None, port: int) -> bool:
    if entry == "*":
        return True
    if "/" in entry:
        try:
            return address is not None and address in ipaddress.ip_network(entry, strict=False)
        except ValueError:
            return False
    name, colon, entry_port = entry.rpartition(":")
    if colon and entry_port.isdigit() and _address(entry) is None:  # a bare IPv6 address has colons, but no port
        if int(entry_port) != port:
            return False
        entry = name
    entry = entry.strip("[]").removeprefix("*")
    if address is not None:
        return _address(entry) == address
    return host == entry or host.endswith(entry if entry.startswith(".") else f".{entry}")


def _address(host: str) -> _Address | None:
    try:
        return ipaddress.ip_address(host)
    except ValueError:
        return None
