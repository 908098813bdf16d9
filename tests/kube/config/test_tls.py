import logging
import ssl
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path

import aiohttp
import pytest
import trustme
from aiohttp import web
from cryptography.hazmat.primitives.serialization import (
    BestAvailableEncryption,
    Encoding,
    PrivateFormat,
    load_pem_private_key,
)

from paddle_operator.kube.config.credentials import InlineSecret, KeyPair, Secret, WatchedFile
from paddle_operator.kube.config.tls import InsecureSkipVerify, SSLContexts, Trust
from paddle_operator.kube.errors import Misconfigured
from testbed.clock import FakeClock


@pytest.fixture(scope="module")
def authority() -> trustme.CA:
    return trustme.CA()


def anchor(authority: trustme.CA) -> InlineSecret:
    return InlineSecret("certificate-authority-data of cluster x", Secret(authority.cert_pem.bytes().decode()))


def pair_of(certificate: trustme.LeafCert) -> KeyPair:
    chain = b"".join(blob.bytes() for blob in certificate.cert_chain_pems).decode()
    return KeyPair(Secret(chain), Secret(certificate.private_key_pem.bytes().decode()), "client-certificate of user x")


@asynccontextmanager
async def serving(authority: trustme.CA, *names: str) -> AsyncIterator[str]:
    """A TLS server that tells the common name of its client's certificate, if it shows one."""

    async def who(request: web.Request) -> web.Response:
        assert request.transport
        shown = request.transport.get_extra_info("peercert")
        fields = [pair for name in (shown or {}).get("subject", ()) for pair in name]
        return web.Response(text=dict(fields).get("commonName", "nobody"))

    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    context.verify_mode = ssl.CERT_OPTIONAL
    authority.configure_trust(context)
    authority.issue_cert(*names).configure_cert(context)
    application = web.Application()
    application.router.add_get("/", who)
    runner = web.AppRunner(application)
    await runner.setup()
    try:
        site = web.TCPSite(runner, "127.0.0.1", 0, ssl_context=context)
        await site.start()
        yield f"https://127.0.0.1:{runner.addresses[0][1]}/"
    finally:
        await runner.cleanup()


async def answer(url: str, context: ssl.SSLContext, server_name: str | None = None) -> str:
    async with aiohttp.ClientSession() as session, session.get(url, ssl=context, server_hostname=server_name) as reply:
        return await reply.text()


async def test_trusted_server_sees_the_client_certificate(authority: trustme.CA) -> None:
    client = authority.issue_cert("me@example.com", common_name="me")
    contexts = SSLContexts(Trust(anchor(authority)))
    async with serving(authority, "127.0.0.1") as url:
        assert await answer(url, contexts.context(None)) == "nobody"
        assert await answer(url, contexts.context(pair_of(client))) == "me"


async def test_untrusted_server_is_refused_unless_skipping(authority: trustme.CA) -> None:
    async with serving(trustme.CA(), "127.0.0.1") as url:
        for trust in (Trust(anchor(authority)), Trust()):
            with pytest.raises(aiohttp.ClientConnectorCertificateError):
                await answer(url, SSLContexts(trust).context(None))
        assert await answer(url, SSLContexts(InsecureSkipVerify()).context(None)) == "nobody"


async def test_the_name_in_the_certificate_counts(authority: trustme.CA) -> None:
    context = SSLContexts(Trust(anchor(authority))).context(None)
    async with serving(authority, "kubernetes.default.svc") as url:
        with pytest.raises(aiohttp.ClientConnectorCertificateError):
            await answer(url, context)
        assert await answer(url, context, "kubernetes.default.svc") == "nobody"


async def test_an_intermediate_authority_is_an_anchor_as_in_go(authority: trustme.CA) -> None:
    intermediate = authority.create_child_ca()
    async with serving(intermediate, "127.0.0.1") as url:
        assert await answer(url, SSLContexts(Trust(anchor(intermediate))).context(None)) == "nobody"


async def test_a_bundle_may_have_comments_in_any_script(authority: trustme.CA) -> None:
    bundle = f"# Größe 東京\n{anchor(authority).content().reveal()}"
    context = SSLContexts(Trust(InlineSecret("x", Secret(bundle)))).context(None)
    assert len(context.get_ca_certs()) == 1


async def test_a_context_is_built_again_only_when_a_file_has_changed(authority: trustme.CA, tmp_path: Path) -> None:
    clock, file = FakeClock(), tmp_path / "ca.crt"
    authority.cert_pem.write_to_path(str(file))
    contexts = SSLContexts(Trust(WatchedFile("the CA", file, clock)))
    first = contexts.context(None)
    file.touch()
    await clock.advance(2)
    assert contexts.context(None) is first
    another = trustme.CA()
    another.cert_pem.write_to_path(str(file))
    await clock.advance(2)
    second = contexts.context(None)
    assert second is not first
    async with serving(another, "127.0.0.1") as url:
        assert await answer(url, second) == "nobody"


def test_certificate_without_its_new_key_is_not_used_yet(
    authority: trustme.CA, caplog: pytest.LogCaptureFixture
) -> None:
    contexts = SSLContexts(Trust(anchor(authority)))
    old, new = (pair_of(authority.issue_cert("me@example.com")) for _ in range(2))
    first = contexts.context(old)
    with caplog.at_level(logging.WARNING):
        for _ in range(3):
            assert contexts.context(KeyPair(new.certificate, old.key, new.origin)) is first
    assert [(record.getMessage(), vars(record)["error"]) for record in caplog.records] == [
        (
            "cannot use the new TLS files; using the previous ones",
            "client-certificate of user x and its key do not belong together: log in again, or correct the kubeconfig",
        )
    ]
    assert contexts.context(new) is not first


def test_private_key_is_on_disk_only_while_loaded(
    authority: trustme.CA, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    modes = list[str]()
    load = ssl.SSLContext.load_cert_chain

    def looking(context: ssl.SSLContext, certificate: Path, key: Path, password: Callable[[], str]) -> None:
        modes.extend(oct(path.stat().st_mode & 0o777) for path in (key.parent, certificate, key))
        load(context, certificate, key, password)

    monkeypatch.setattr(ssl.SSLContext, "load_cert_chain", looking)
    SSLContexts(Trust(anchor(authority))).context(pair_of(authority.issue_cert("me@example.com")))
    assert modes == ["0o700", "0o600", "0o600"]
    assert list(tmp_path.iterdir()) == []


def test_files_that_cannot_be_used_are_one_sentence_each(
    authority: trustme.CA, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pair = pair_of(authority.issue_cert("me@example.com"))
    key = load_pem_private_key(pair.key.reveal().encode(), None)
    locked = key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, BestAvailableEncryption(b"word")).decode()
    wrong_pairs = {
        "client-certificate of user x or its key is not PEM: log in again": KeyPair(
            Secret("s3cr3t"), pair.key, pair.origin
        ),
        "or its key is not PEM": KeyPair(pair.certificate, Secret("s3cr3t"), pair.origin),
        "that belongs to client-certificate of user x is encrypted: store it decrypted": KeyPair(
            pair.certificate, Secret(locked), pair.origin
        ),
    }
    for sentence, wrong in wrong_pairs.items():
        with pytest.raises(Misconfigured, match=sentence) as raised:
            SSLContexts(Trust()).context(wrong)
        assert "s3cr3t" not in str(raised.value)
    for text in ("", "s3cr3t", "-----BEGIN CERTIFICATE-----\ns3cr3t\n-----END CERTIFICATE-----"):
        with pytest.raises(Misconfigured, match=r"^the CA is not a PEM certificate: put the server's CA there$"):
            SSLContexts(Trust(InlineSecret("the CA", Secret(text)))).context(None)
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path / "missing"))
    with pytest.raises(Misconfigured, match="needs a temporary file: No such file or directory; set TMPDIR"):
        SSLContexts(Trust()).context(pair)
