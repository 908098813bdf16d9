"""SSL contexts: the trusted authority and the client certificate, rebuilt only when their files change.

Verification is as strict as kubectl's (Go), not as Python 3.13's: kubeadm's own certificate authority fails Python's
strict mode (no authority key identifier), and an intermediate in the CA file is an anchor.
"""

import logging
import os
import ssl
import tempfile
from pathlib import Path
from typing import NoReturn

from paddle_operator.kube.config.credentials import KeyPair, Secret, SecretSource
from paddle_operator.kube.errors import Misconfigured

_log = logging.getLogger(__name__)

_Content = tuple[Secret | None, KeyPair | None]


class Trust:
    """Trust servers with a certificate of this authority; None means the authorities of this system."""

    def __init__(self, authority: SecretSource | None = None) -> None:
        self._authority = authority

    def content(self) -> Secret | None:
        return self._authority.content() if self._authority else None

    def apply(self, context: ssl.SSLContext) -> None:
        context.verify_flags |= ssl.VERIFY_X509_PARTIAL_CHAIN
        if self._authority is None:
            context.load_default_certs()
            return
        text = self._authority.content().reveal()
        try:  # comments in a bundle may be in any script, the certificates are ASCII
            context.load_verify_locations(cadata=text.encode("ascii", "ignore").decode())
        except (ssl.SSLError, ValueError):
            raise Misconfigured(
                f"{self._authority.origin} is not a PEM certificate: put the server's CA there"
            ) from None


class InsecureSkipVerify(Trust):
    """Trust any server: insecure-skip-tls-verify of the kubeconfig."""

    def apply(self, context: ssl.SSLContext) -> None:
        context.check_hostname = False
        context.verify_mode = ssl.CERT_NONE


class SSLContexts:
    """The SSL context for the current content of the files."""

    def __init__(self, trust: Trust) -> None:
        self._trust = trust
        self._context: ssl.SSLContext | None = None
        self._content: _Content | None = None

    def context(self, pair: KeyPair | None) -> ssl.SSLContext:
        """The same object until a certificate changes. Raises Misconfigured."""
        content = (self._trust.content(), pair)
        if self._context is None:
            self._context = self._build(pair)
        elif content != self._content:
            try:
                self._context = self._build(pair)
            except Misconfigured as problem:  # a new certificate without its new key: the next check may find both
                _log.warning("cannot use the new TLS files; using the previous ones", extra={"error": str(problem)})
        self._content = content
        return self._context

    def _build(self, pair: KeyPair | None) -> ssl.SSLContext:
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
        context.minimum_version = ssl.TLSVersion.TLSv1_2
        context.set_alpn_protocols(["http/1.1"])
        self._trust.apply(context)
        if pair is not None:
            _load_key_pair(pair, context)
        return context


def _load_key_pair(pair: KeyPair, context: ssl.SSLContext) -> None:
    """Load a client certificate. OpenSSL reads it only from files, which are deleted at once."""

    def refuse_password() -> NoReturn:
        raise Misconfigured(f"the private key that belongs to {pair.origin} is encrypted: store it decrypted")

    try:
        with tempfile.TemporaryDirectory() as directory:
            certificate = _private_file(Path(directory, "certificate"), pair.certificate)
            key = _private_file(Path(directory, "key"), pair.key)
            context.load_cert_chain(certificate, key, password=refuse_password)
    except ssl.SSLError as problem:
        fault = (
            "and its key do not belong together" if "MISMATCH" in (problem.reason or "") else "or its key is not PEM"
        )
        raise Misconfigured(f"{pair.origin} {fault}: log in again, or correct the kubeconfig") from None
    except OSError as problem:
        raise Misconfigured(
            f"{pair.origin} needs a temporary file: {problem.strerror}; set TMPDIR to a directory that can be written"
        ) from None


def _private_file(path: Path, text: Secret) -> Path:
    with os.fdopen(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w", encoding="utf-8") as file:
        file.write(text.reveal() + "\n")
    return path
