"""Tokens and key pairs, and the kubeconfig fields or files that hold them.

A file is checked again while it is used: kubelet, cert-manager or a login tool rotate it without notice.
"""

from dataclasses import dataclass, field
from pathlib import Path
from typing import Protocol

from paddle_operator.kube.clock import Clock
from paddle_operator.kube.errors import Misconfigured

_STAT_SECONDS = 1.0  # a stat at most this often: kubelet rotates a token with minutes to spare
_REREAD_SECONDS = 60.0  # client-go's period, for file systems with coarse or wrong timestamps


class Secret:
    """Text that is only shown by reveal(): not in repr(), an f-string, a log or a traceback's locals."""

    __slots__ = ("_text",)

    def __init__(self, text: str = "") -> None:
        self._text = text

    def reveal(self) -> str:
        return self._text

    def __bool__(self) -> bool:
        return bool(self._text)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Secret) and self._text == other._text

    def __hash__(self) -> int:
        return hash(self._text)

    def __repr__(self) -> str:
        return "Secret(…)" if self._text else "Secret()"


def decode_secret(kind: type, value: object) -> Secret:
    """A `dec_hook` for msgspec, which decodes fields of type Secret."""
    if kind is Secret and isinstance(value, str):
        return Secret(value)
    raise TypeError(f"Expected `str`, got `{type(value).__name__}`")


class SecretSource(Protocol):
    """Where a token, a key or a certificate is stored."""

    @property
    def origin(self) -> str:
        """For messages: 'certificate-authority /etc/ca.crt of cluster "prod" in ~/.kube/config'."""

    def content(self) -> Secret:
        """The current text, stripped. Raises Misconfigured."""

    def forget(self) -> None:
        """Drop the cached text: the next content() reads again."""


class InlineSecret:
    """Text in the kubeconfig itself, which never changes."""

    def __init__(self, origin: str, text: Secret) -> None:
        self.origin = origin
        self._text = text

    def content(self) -> Secret:
        return self._text

    def forget(self) -> None:
        pass


class WatchedFile:
    """A file that may be replaced at any time.

    While it is missing, unreadable or empty, as in the middle of a non-atomic replacement, the last text is used until
    forget(). If there is none, the `fallback` is used.
    """

    def __init__(self, origin: str, path: Path, clock: Clock, fallback: Secret | None = None) -> None:
        self.origin = origin
        self._path = path
        self._clock = clock
        self._fallback = fallback
        self._text: Secret | None = None
        self._stamp: tuple[int, int, int] | None = None
        self._checked_at = self._read_at = 0.0

    def content(self) -> Secret:
        now = self._clock.monotonic()
        if self._text is None or now - self._checked_at >= _STAT_SECONDS:
            try:
                self._check(now)
            except OSError as problem:
                if self._text is None:
                    return self._fallback_or_raise(problem.strerror or "it cannot be read")
        assert self._text is not None
        return self._text

    def forget(self) -> None:
        self._text = self._stamp = None

    def _check(self, now: float) -> None:
        self._checked_at = now
        stat = self._path.stat()  # before reading: a file replaced in between differs at the next check
        stamp = (stat.st_mtime_ns, stat.st_ino, stat.st_size)
        if stamp == self._stamp and now - self._read_at < _REREAD_SECONDS:
            return
        text = Secret(self._path.read_bytes().decode(errors="replace").strip())
        if not text:
            raise OSError(0, "it is empty")
        self._stamp, self._read_at = stamp, now
        if text != self._text:
            self._text = text

    def _fallback_or_raise(self, problem: str) -> Secret:
        if self._fallback is not None:
            return self._fallback
        raise Misconfigured(f"{self.origin} cannot be used: {problem}; write the file, or name the right one") from None


@dataclass(frozen=True)
class KeyPair:
    """A client certificate and its private key, both PEM."""

    certificate: Secret
    key: Secret
    origin: str = field(default="", compare=False)


@dataclass(frozen=True)
class Credentials:
    """The token or key pair of one request; empty for an anonymous one."""

    token: Secret | None = None
    pair: KeyPair | None = None


class CredentialProvider(Protocol):
    async def credentials(self) -> Credentials:
        """The same object until something changes. Raises Misconfigured."""

    async def renew(self, refused: Credentials | None) -> bool:
        """The server refused these credentials (None: the last ones). Returns whether others may exist."""


class StaticCredentials:
    """Fixed tokens and key pairs, or files that another program renews."""

    def __init__(
        self,
        token: SecretSource | None = None,
        certificate: SecretSource | None = None,
        key: SecretSource | None = None,
    ) -> None:
        self._token = token
        self._certificate = certificate
        self._key = key
        self._last = Credentials()

    async def credentials(self) -> Credentials:
        token, pair = self._token.content() if self._token else None, self._pair()
        if token is not self._last.token or pair != self._last.pair:
            self._last = Credentials(token, pair)
        return self._last

    async def renew(self, refused: Credentials | None) -> bool:
        refused = refused or self._last
        for source in (self._token, self._certificate, self._key):
            if source:
                source.forget()
        try:
            return await self.credentials() != refused
        except Misconfigured:
            return True  # the next credentials() raises it again, which says more than a 401

    def _pair(self) -> KeyPair | None:
        if self._certificate is None or self._key is None:
            return None
        return KeyPair(self._certificate.content(), self._key.content(), self._certificate.origin)


def is_printable(text: str) -> bool:
    """Whether a text can stand in an HTTP header: a line break would start another one."""
    return all(character.isprintable() for character in text)
