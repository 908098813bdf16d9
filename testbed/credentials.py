"""Credentials of a control plane of the tests: a certificate authority, static tokens, kubeconfigs."""

import base64
import json
import secrets
import ssl
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path

import trustme
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import ec

ADMIN = "admin"
CONTROLLER_MANAGER = "system:kube-controller-manager"
SCHEDULER = "system:kube-scheduler"
AUDIT_MARKER = "audit-marker"
TESTERS = tuple(f"tester-{index}" for index in range(24))  # with all rights; one for each client of a test
UNPRIVILEGED_USERS = tuple(f"nobody-{index}" for index in range(4))  # authenticated, without any rights
TESTERS_GROUP = "testers"
MASTERS_GROUP = "system:masters"
SERVER_NAMES = ("127.0.0.1", "localhost", "kubernetes.default.svc")


@dataclass(frozen=True)
class ClientCertificate:
    certificate: Path
    key: Path


class Credentials:
    """Files in one directory, readable by their owner only."""

    def __init__(self, directory: Path) -> None:
        directory.mkdir(mode=0o700, parents=True, exist_ok=True)
        self.authority = trustme.CA()
        self.authority_file = directory / "authority.pem"
        self.serving_certificate = directory / "serving.pem"
        self.serving_key = directory / "serving-key.pem"
        self.service_account_key = directory / "service-account-key.pem"
        self.token_file = directory / "tokens.csv"
        self.tokens: Mapping[str, str] = {user: secrets.token_urlsafe(24) for user in all_users()}
        self.trust = ssl.create_default_context(cadata=self.authority.cert_pem.bytes().decode())
        self._directory = directory
        self._write_files()

    def token_of(self, user: str) -> str:
        """The static token of a user. Raises LookupError for an unknown user."""
        if user not in self.tokens:
            raise LookupError(f"the control plane has no user {user!r}: use one of {', '.join(self.tokens)}")
        return self.tokens[user]

    def issue_client_certificate(self, user: str, group: str = "") -> ClientCertificate:
        """Issue a client certificate for a user of any name; the group is its organization."""
        # Go rejects a certificate without a subject alternative name; this one is not used.
        issued = self.authority.issue_cert("client.testbed", common_name=user, organization_name=group or None)
        name = user.replace(":", "-")
        files = ClientCertificate(self._directory / f"client-{name}.pem", self._directory / f"client-{name}-key.pem")
        write_private(files.certificate, b"".join(part.bytes() for part in issued.cert_chain_pems))
        write_private(files.key, issued.private_key_pem.bytes())
        return files

    def write_kubeconfig(self, server: str, user: str) -> Path:
        """Write a kubeconfig that refers to no other file, so that it can be copied."""
        path = self._directory / f"kubeconfig-{user.replace(':', '-')}"
        authority = {
            "certificate-authority-data": base64.b64encode(self.authority.cert_pem.bytes()).decode(),
            "server": server,
        }
        config = {
            "apiVersion": "v1",
            "kind": "Config",
            "clusters": [{"name": "testbed", "cluster": authority}],
            "users": [{"name": user, "user": {"token": self.token_of(user)}}],
            "contexts": [{"name": "testbed", "context": {"cluster": "testbed", "user": user}}],
            "current-context": "testbed",
        }
        write_private(path, json.dumps(config, indent=2).encode())  # JSON is YAML
        return path

    def _write_files(self) -> None:
        serving = self.authority.issue_cert(*SERVER_NAMES)
        signing = ec.generate_private_key(ec.SECP256R1()).private_bytes(
            serialization.Encoding.PEM, serialization.PrivateFormat.TraditionalOpenSSL, serialization.NoEncryption()
        )
        write_private(self.authority_file, self.authority.cert_pem.bytes())
        write_private(self.serving_certificate, b"".join(part.bytes() for part in serving.cert_chain_pems))
        write_private(self.serving_key, serving.private_key_pem.bytes())
        write_private(self.service_account_key, signing)
        write_private(self.token_file, "".join(token_lines(self.tokens)).encode())


def all_users() -> Iterable[str]:
    return (ADMIN, CONTROLLER_MANAGER, SCHEDULER, AUDIT_MARKER, *TESTERS, *UNPRIVILEGED_USERS)


def user_group(user: str) -> str:
    """The group in addition to system:authenticated, if any.

    The controller manager is in system:masters, since all its controllers share one client here; in a real cluster each
    has its own ServiceAccount. The scheduler has exactly the rights of its bootstrap role.
    """
    if user in (ADMIN, CONTROLLER_MANAGER):
        return MASTERS_GROUP
    return TESTERS_GROUP if user in TESTERS else ""


def token_lines(tokens: Mapping[str, str]) -> Iterable[str]:
    """The lines of --token-auth-file: token, user, UID and optionally the group."""
    for user, token in tokens.items():
        group = user_group(user)
        yield f"{token},{user},{user},{group}\n" if group else f"{token},{user},{user}\n"


def write_private(path: Path, content: bytes) -> None:
    """Replace a file; other users can never read it."""
    path.unlink(missing_ok=True)
    path.touch(mode=0o600)
    path.write_bytes(content)
