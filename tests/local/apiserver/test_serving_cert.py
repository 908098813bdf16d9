"""TLS clients accept the certificate of the loopback address, with no check switched off."""

import asyncio
import ssl
from datetime import UTC, datetime
from pathlib import Path

import pytest

from paddle_operator.local.apiserver import serving_cert

NOW = datetime.now(UTC)


async def receive_greeting(server: ssl.SSLContext, client: ssl.SSLContext, name: str) -> str:
    """The line that `client` receives when it connects to `server` and expects `name` in the certificate."""

    async def greet(_reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(b"hello\n")
        writer.close()

    async with await asyncio.start_server(greet, "127.0.0.1", 0, ssl=server) as listening:
        port = listening.sockets[0].getsockname()[1]
        reader, writer = await asyncio.open_connection("127.0.0.1", port, ssl=client, server_hostname=name)
        line = await reader.readline()
        writer.close()
        await writer.wait_closed()
    return line.decode().strip()


def ssl_contexts(directory: Path) -> tuple[ssl.SSLContext, ssl.SSLContext]:
    """A server with the directory's certificate, and a client that trusts only this certificate."""
    path = serving_cert.ensure_certificate(directory, NOW)
    server = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    server.load_cert_chain(path)
    client = ssl.create_default_context(cadata=serving_cert.certificate_pem(path))
    client.verify_flags |= ssl.VERIFY_X509_STRICT  # the default of Python 3.13
    return server, client


@pytest.mark.parametrize("name", ["127.0.0.1", "localhost"])
async def test_client_that_trusts_the_certificate_connects(tmp_path: Path, name: str) -> None:
    assert await receive_greeting(*ssl_contexts(tmp_path), name) == "hello"


async def test_client_that_trusts_another_certificate_fails(tmp_path: Path) -> None:
    other = tmp_path / "other"
    other.mkdir()
    server, _ = ssl_contexts(tmp_path)
    _, client = ssl_contexts(other)
    with pytest.raises(ssl.SSLCertVerificationError):
        await receive_greeting(server, client, "127.0.0.1")


async def test_certificate_covers_no_other_name(tmp_path: Path) -> None:
    with pytest.raises(ssl.SSLCertVerificationError, match=r"example\.com"):
        await receive_greeting(*ssl_contexts(tmp_path), "example.com")


def test_certificate_file_is_reused_and_private(tmp_path: Path) -> None:
    path = serving_cert.ensure_certificate(tmp_path, NOW)
    before = path.read_text()
    assert serving_cert.ensure_certificate(tmp_path, NOW).read_text() == before
    assert path.stat().st_mode & 0o777 == 0o600
    assert "PRIVATE KEY" in before
    assert "PRIVATE KEY" not in serving_cert.certificate_pem(path)
    assert [each.name for each in tmp_path.iterdir()] == [serving_cert.CERTIFICATE_FILE]


def test_each_certificate_has_a_new_key() -> None:
    assert serving_cert.generate_certificate(NOW) != serving_cert.generate_certificate(NOW)
