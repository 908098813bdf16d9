"""Which certificate does the local API server present? One signed by itself for the loopback address, on P-256.

A stock kubectl sends its token only over TLS (client-go, clientcmd: "only try to read the auth information if we are
secure"). Importing `cryptography` costs 44 ms, so it is imported only to generate a certificate: once a directory.
"""

from datetime import datetime, timedelta
from ipaddress import IPv4Address
from pathlib import Path

from paddle_operator.local.atomic_file import write_atomic

CERTIFICATE_FILE = "server.pem"
CERTIFICATE_VALIDITY = timedelta(days=3650)
COMMON_NAME = "paddle-operator local cluster"


def ensure_certificate(directory: Path, now: datetime) -> Path:
    """The file with certificate and key, generated if missing; only its owner can read it. Raises OSError."""
    path = directory / CERTIFICATE_FILE
    if not path.exists():
        write_atomic(path, generate_certificate(now))
    return path


def certificate_pem(path: Path) -> str:
    """The certificate without its key, for a kubeconfig. Raises OSError."""
    begin, end = "-----BEGIN CERTIFICATE-----", "-----END CERTIFICATE-----\n"
    text = path.read_text()
    return text[text.index(begin) : text.index(end) + len(end)]


def generate_certificate(now: datetime) -> str:
    """A new certificate and its new key, as PEM."""
    from cryptography import x509
    from cryptography.hazmat.primitives import hashes, serialization
    from cryptography.hazmat.primitives.asymmetric import ec
    from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, COMMON_NAME)])
    addresses = [x509.DNSName("localhost"), x509.IPAddress(IPv4Address("127.0.0.1"))]
    usages = dict.fromkeys(
        ("content_commitment", "key_encipherment", "data_encipherment", "key_agreement", "crl_sign"), False
    )
    key_usage = x509.KeyUsage(
        digital_signature=True, key_cert_sign=True, encipher_only=False, decipher_only=False, **usages
    )
    # VERIFY_X509_STRICT, Python 3.13's default, demands the key identifiers and the usage of an authority.
    certificate = (
        x509.CertificateBuilder(name, name, key.public_key(), x509.random_serial_number())
        .not_valid_before(now - timedelta(days=1))
        .not_valid_after(now + CERTIFICATE_VALIDITY)
        .add_extension(x509.SubjectKeyIdentifier.from_public_key(key.public_key()), critical=False)
        .add_extension(x509.AuthorityKeyIdentifier.from_issuer_public_key(key.public_key()), critical=False)
        .add_extension(x509.BasicConstraints(ca=True, path_length=None), critical=True)
        .add_extension(key_usage, critical=True)
        .add_extension(x509.ExtendedKeyUsage([ExtendedKeyUsageOID.SERVER_AUTH]), critical=False)
        .add_extension(x509.SubjectAlternativeName(addresses), critical=False)
        .sign(key, hashes.SHA256())
    )
    pem = serialization.Encoding.PEM
    key_format = serialization.PrivateFormat.TraditionalOpenSSL
    private = key.private_bytes(pem, key_format, serialization.NoEncryption())
    return (certificate.public_bytes(pem) + private).decode()
