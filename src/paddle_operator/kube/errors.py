"""Everything that can go wrong between us and an API server.

KubeError
├── Misconfigured        a kubeconfig, token or plugin that cannot be used
├── Fenced               we are not the leader (any more): nothing was sent
├── DecodeError          the answer does not have the form that we know
├── Unreachable          no answer: `sent` says whether the server may have acted
│   ├── ReadTimeout      it was asked, and has said nothing for too long
│   └── Untrusted        somebody answered, but not the server we mean
└── APIStatusError       the server answered with a Status
    ├── Unauthorized     401
    ├── Forbidden        403
    ├── NotFound         404
    ├── AlreadyExists    409, a create
    ├── Conflict         409, a stale resourceVersion or another precondition
    ├── Expired          410, a version that is no longer kept
    ├── Invalid          422 and 400
    ├── TooManyRequests  429, also an eviction that a disruption budget forbids
    └── ServerFault      5xx
"""

import os

import msgspec


class KubeError(Exception):
    """Base of all; str() is one sentence for a person."""


class RunnableFailed(Exception):
    """A part of the process ended, though it should run until the process stops; str() is the process's last message."""


class Misconfigured(KubeError):
    pass


class Fenced(KubeError):
    pass


class DecodeError(KubeError):
    pass


class Unreachable(KubeError):
    def __init__(self, sentence: str, *, sent: bool = False) -> None:
        super().__init__(sentence)
        self.sent = sent


class ReadTimeout(Unreachable):
    pass


class Untrusted(Unreachable):
    pass


class Cause(msgspec.Struct, frozen=True):
    field: str = ""
    message: str = ""
    reason: str = ""


class Details(msgspec.Struct, frozen=True, rename="camel"):
    causes: tuple[Cause, ...] = ()
    retry_after_seconds: int = 0
    uid: str = ""


class Status(msgspec.Struct, frozen=True):
    """The API server's own account of a refusal."""

    code: int = 0
    reason: str = ""
    message: str = ""
    details: Details | None = None


class APIStatusError(KubeError):
    """The server said no; `about` is the verb and the object, `status` its own words.

    `source` is where our credentials come from, for those refusals that are about them.
    """

    def __init__(self, about: str, status: Status, retry_after: float | None = None, source: str = "") -> None:
        self.about = about
        self.status = status
        self.retry_after = retry_after
        self.credentials = f"the credentials of {source}" if source else "the credentials"
        super().__init__(f"{about}: {self.words} ({status.code})" + (f"; {self.advice}" if self.advice else ""))

    @property
    def words(self) -> str:
        return one_line(self.status.message or self.status.reason or "no reason given")

    @property
    def advice(self) -> str:
        """What to do about it, where that can be told from the kind of refusal alone."""
        return ""


class Unauthorized(APIStatusError):
    @property
    def advice(self) -> str:
        return f"{self.credentials} are missing, wrong or expired: log in again or renew the token"


class Forbidden(APIStatusError):
    @property
    def advice(self) -> str:
        if " cannot " not in self.words:  # a quota or an admission plugin, which no Role overrules
            return ""
        return f"{self.credentials} are known but lack this right: ask for a Role that grants it"


class NotFound(APIStatusError):
    pass


class AlreadyExists(APIStatusError):
    pass


class Conflict(APIStatusError):
    pass


class Expired(APIStatusError):
    pass


class Invalid(APIStatusError):
    pass


class TooManyRequests(APIStatusError):
    pass


class ServerFault(APIStatusError):
    pass


_BY_CODE: dict[int, type[APIStatusError]] = {
    400: Invalid,
    401: Unauthorized,
    403: Forbidden,
    404: NotFound,
    409: Conflict,
    410: Expired,
    422: Invalid,
    429: TooManyRequests,
}


def refusal(about: str, status: Status, retry_after: float | None = None, source: str = "") -> APIStatusError:
    """The error that fits a Status."""
    kind = AlreadyExists if status.reason == "AlreadyExists" else _BY_CODE.get(status.code)
    if kind is None:
        kind = ServerFault if status.code >= 500 else APIStatusError
    return kind(about, status, retry_after, source)


def one_line(text: str) -> str:
    """Somebody else's words, fit to be part of a sentence."""
    return " ".join(text.split())


def in_words(error: OSError) -> str:
    """`Connection refused`, where asyncio says only that a call failed."""
    return os.strerror(error.errno) if error.errno and error.errno > 0 else (error.strerror or str(error))
