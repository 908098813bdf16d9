"""The certificate of the loopback address is one that TLS takes, with nothing switched off."""

import asyncio
import ssl
from datetime import UTC, datetime
from pathlib import Path

import pytest

from paddle_operator.local.apiserver import serving_cert

NOW = datetime.now(UTC)


async def greeting(server: ssl.SSLContext, client: ssl.SSLContext, name: str) -> str:
    """What a client hears that trusts only the certificate, and expects this name."""

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


def contexts(folder: Path) -> tuple[ssl.SSLContext, ssl.SSLContext]:
    path = serving_cert.kept(folder, NOW)
    server = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    server.load_cert_chain(path)
    client = ssl.create_default_context(cadata=serving_cert.public_part(path))
    client.verify_flags |= ssl.VERIFY_X509_STRICT  # as Python 3.13 has it by itself
    return server, client


@pytest.mark.parametrize("name", ["127.0.0.1", "localhost"])
async def test_a_client_that_trusts_it_is_served(tmp_path: Path, name: str) -> None:
    assert await greeting(*contexts(tmp_path), name) == "hello"


async def test_a_client_that_trusts_another_is_not(tmp_path: Path) -> None:
    other = tmp_path / "other"
    other.mkdir()
    server, _ = contexts(tmp_path)
    _, client = contexts(other)
    with pytest.raises(ssl.SSLCertVerificationError):
        await greeting(server, client, "127.0.0.1")


async def test_it_is_for_no_other_name(tmp_path: Path) -> None:
    with pytest.raises(ssl.SSLCertVerificationError, match=r"example\.com"):
        await greeting(*contexts(tmp_path), "example.com")


def test_it_stays_the_same_and_is_for_its_owner_only(tmp_path: Path) -> None:
    path = serving_cert.kept(tmp_path, NOW)
    before = path.read_text()
    assert serving_cert.kept(tmp_path, NOW).read_text() == before
    assert path.stat().st_mode & 0o777 == 0o600
    assert "PRIVATE KEY" in before
    assert "PRIVATE KEY" not in serving_cert.public_part(path)
    assert [each.name for each in tmp_path.iterdir()] == [serving_cert.FILE]


def test_every_one_is_another() -> None:
    assert serving_cert.made(NOW) != serving_cert.made(NOW)
