"""What proves who we are: tokens and key pairs, and the kubeconfig fields or files that hold them.

Whoever rotates a file (kubelet, cert-manager, a login tool) tells nobody: a file is looked at again while it is used.
"""

from dataclasses import dataclass, field
from pathlib import Path
from typing import Protocol

from paddle_operator.kube.clock import Clock
from paddle_operator.kube.errors import Misconfigured

_LOOK_SECONDS = 1.0  # a stat at most this often: kubelet rotates a token with minutes to spare
_READ_SECONDS = 60.0  # client-go's period: a file system whose stamps are coarse or lie costs a minute, not for ever


class Secret:
    """Text that shows itself to nobody who does not ask: not in repr(), an f-string, a log or a traceback's locals."""

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
    """A `dec_hook` for msgspec: what a Struct declares as Secret is never seen as text."""
    if kind is Secret and isinstance(value, str):
        return Secret(value)
    raise TypeError(f"Expected `str`, got `{type(value).__name__}`")


class Source(Protocol):
    """Where a token, a key or a certificate is kept."""

    @property
    def origin(self) -> str:
        """For messages: 'certificate-authority /etc/ca.crt of cluster "prod" in ~/.kube/config'."""

    def content(self) -> Secret:
        """What it holds now, stripped. Raises Misconfigured."""

    def forget(self) -> None:
        """The next content() trusts nothing that was read before."""


class Inline:
    """Text that stands in the kubeconfig itself, and therefore never changes."""

    def __init__(self, origin: str, text: Secret) -> None:
        self.origin = origin
        self._text = text

    def content(self) -> Secret:
        return self._text

    def forget(self) -> None:
        pass


class WatchedFile:
    """A file that somebody may replace at any time.

    While it is missing, unreadable or empty, which is how a careless replacement looks half-way, the last text counts,
    until forget(). Where there is no text at all, `otherwise` is the answer, if given.
    """

    def __init__(self, origin: str, path: Path, clock: Clock, otherwise: Secret | None = None) -> None:
        self.origin = origin
        self._path = path
        self._clock = clock
        self._otherwise = otherwise
        self._text: Secret | None = None
        self._stamp: tuple[int, int, int] | None = None
        self._looked_at = self._read_at = 0.0

    def content(self) -> Secret:
        now = self._clock.monotonic()
        if self._text is None or now - self._looked_at >= _LOOK_SECONDS:
            try:
                self._look(now)
            except OSError as problem:
                if self._text is None:
                    return self._last_resort(problem.strerror or "it cannot be read")
        assert self._text is not None
        return self._text

    def forget(self) -> None:
        self._text = self._stamp = None

    def _look(self, now: float) -> None:
        self._looked_at = now
        stat = self._path.stat()  # before reading: a file replaced in between has another stamp at the next look
        stamp = (stat.st_mtime_ns, stat.st_ino, stat.st_size)
        if stamp == self._stamp and now - self._read_at < _READ_SECONDS:
            return
        text = Secret(self._path.read_bytes().decode(errors="replace").strip())
        if not text:
            raise OSError(0, "it is empty")
        self._stamp, self._read_at = stamp, now
        if text != self._text:
            self._text = text

    def _last_resort(self, problem: str) -> Secret:
        if self._otherwise is not None:
            return self._otherwise
        raise Misconfigured(f"{self.origin} is of no use: {problem}; write the file, or name the right one") from None


@dataclass(frozen=True)
class KeyPair:
    """A client certificate and its private key, both PEM."""

    certificate: Secret
    key: Secret
    origin: str = field(default="", compare=False)


@dataclass(frozen=True)
class Credentials:
    """What one request shows to the server; empty for an anonymous one."""

    token: Secret | None = None
    pair: KeyPair | None = None


class Credential(Protocol):
    async def proof(self) -> Credentials:
        """The same object as long as nothing has changed. Raises Misconfigured."""

    async def renew(self, refused: Credentials | None) -> bool:
        """The server did not believe `refused` (None: the last proof): is there, or may there be, another one?"""


class StaticCredentials:
    """Fixed tokens and key pairs, or files that somebody else renews."""

    def __init__(
        self, token: Source | None = None, certificate: Source | None = None, key: Source | None = None
    ) -> None:
        self._token = token
        self._certificate = certificate
        self._key = key
        self._last = Credentials()

    async def proof(self) -> Credentials:
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
            return await self.proof() != refused
        except Misconfigured:
            return True  # the next proof() raises it again: a better story than a bare 401

    def _pair(self) -> KeyPair | None:
        if self._certificate is None or self._key is None:
            return None
        return KeyPair(self._certificate.content(), self._key.content(), self._certificate.origin)


def printable(text: str) -> bool:
    """Whether a text can stand in an HTTP header: a line break would start another one."""
    return all(character.isprintable() for character in text)
