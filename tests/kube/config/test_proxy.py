import pytest

from paddle_operator.kube.config.proxy import environment_proxy, validate_proxy
from paddle_operator.kube.errors import Misconfigured

PROXY = "http://proxy:3128"


@pytest.mark.parametrize(
    ("server", "no_proxy", "used"),
    [
        ("https://api.example.com", "", True),
        ("https://localhost:6443", "", False),
        ("https://127.0.0.1:6443", "", False),
        ("https://[::1]:6443", "", False),
        ("https://api.example.com", "*", False),
        ("https://api.example.com", "example.com", False),
        ("https://api.example.com", ".example.com", False),
        ("https://api.example.com", "*.example.com", False),
        ("https://API.example.com", "EXAMPLE.COM", False),
        ("https://api.example.com", "other.com, example.com", False),
        ("https://badexample.com", "example.com", True),
        ("https://example.com", ".example.com", True),
        ("https://api.example.com:6443", "api.example.com:6443", False),
        ("https://api.example.com:6443", "api.example.com:443", True),
        ("https://api.example.com", "api.example.com:443", False),
        ("https://10.96.0.1:443", "10.0.0.0/8", False),
        ("https://11.96.0.1:443", "10.0.0.0/8", True),
        ("https://10.96.0.1:443", "10.96.0.1", False),
        ("https://10.96.0.1:443", "96.0.1", True),
        ("https://10.96.0.1:443", "rubbish/8", True),
        ("https://[fd00::1]:443", "fd00::/8", False),
        ("https://[fd00::1]:443", "fd00::1", False),
        ("https://[fd00::1]:443", "[fd00::1]:443", False),
    ],
)
def test_no_proxy_is_read_as_go_reads_it(server: str, no_proxy: str, used: bool) -> None:
    assert environment_proxy(server, {"HTTPS_PROXY": PROXY, "NO_PROXY": no_proxy}) == (PROXY if used else None)


def test_proxy_variable_follows_the_scheme() -> None:
    assert environment_proxy("http://api:8080", {"HTTPS_PROXY": PROXY}) is None
    assert environment_proxy("http://api:8080", {"http_proxy": "proxy:3128"}) == PROXY
    assert environment_proxy("https://api", {"https_proxy": PROXY, "no_proxy": "api"}) is None


@pytest.mark.parametrize(
    ("url", "sentence"),
    [
        (
            "socks5://me:s3cr3t@proxy:1080",
            "X names a SOCKS proxy, which is not supported: name an http:// or https:// proxy",
        ),
        ("ftp://me:s3cr3t@proxy", "X is not the URL of a proxy: write it as http://host:port"),
        ("http://me:s3cr3t@proxy:port", "X is not the URL of a proxy: write it as http://host:port"),
        ("http://[me:s3cr3t", "X is not the URL of a proxy: write it as http://host:port"),
        ("http://", "X is not the URL of a proxy: write it as http://host:port"),
    ],
)
def test_invalid_proxy_is_refused_without_its_password(url: str, sentence: str) -> None:
    with pytest.raises(Misconfigured) as raised:
        validate_proxy(url, "X")
    assert str(raised.value) == sentence
