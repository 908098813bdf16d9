"""The errors of requests to an API server.

KubeError
├── Misconfigured        a kubeconfig, token or plugin that cannot be used
├── Fenced               this process is not the leader: nothing was sent
├── DecodeError          the response does not have the expected form
├── Unreachable          no response: `sent` says whether the server may have acted
│   ├── ReadTimeout      the server sent nothing before the timeout
│   └── Untrusted        the peer is not the configured server, or not an API server
└── APIStatusError       the server responded with a Status
    ├── Unauthorized     401
    ├── Forbidden        403
    ├── NotFound         404
    ├── AlreadyExists    409, a create
    ├── Conflict         409, a stale resourceVersion or another precondition
    ├── Expired          410, a compacted version
    ├── Invalid          422 and 400
    ├── TooManyRequests  429, also an eviction that a disruption budget forbids
    └── ServerFault      5xx
"""

import os

import msgspec


class KubeError(Exception):
    """Base of all; str() is a message for users."""


class RunnableFailed(Exception):
    """A part of the process ended before the process was stopped; str() is the process's last message."""


class Misconfigured(KubeError):
    pass


class Fenced(KubeError):
    pass


class DecodeError(KubeError):
    pass


class Unreachable(KubeError):
    def __init__(self, message: str, *, sent: bool = False) -> None:
        super().__init__(message)
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
    """Kubernetes' meta/v1 Status."""

    code: int = 0
    reason: str = ""
    message: str = ""
    details: Details | None = None


class APIStatusError(KubeError):
    """The server refused a request; `about` is the verb and the object.

    `source` is where the credentials come from, for refusals that are about them.
    """

    def __init__(self, about: str, status: Status, retry_after: float | None = None, source: str = "") -> None:
        self.about = about
        self.status = status
        self.retry_after = retry_after
        self.credentials = f"the credentials of {source}" if source else "the credentials"
        super().__init__(f"{about}: {self.reason_text} ({status.code})" + (f"; {self.advice}" if self.advice else ""))

    @property
    def reason_text(self) -> str:
        return one_line(self.status.message or self.status.reason or "no reason given")

    @property
    def advice(self) -> str:
        """What to do, if that follows from the error class alone."""
        return ""


class Unauthorized(APIStatusError):
    @property
    def advice(self) -> str:
        return f"{self.credentials} are missing, wrong or expired: log in again or renew the token"


class Forbidden(APIStatusError):
    @property
    def advice(self) -> str:
        if " cannot " not in self.reason_text:  # of a quota or an admission plugin: no Role helps
            return ""
        return f"{self.credentials} do not grant this right: ask for a Role that does"


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


def error_of_status(about: str, status: Status, retry_after: float | None = None, source: str = "") -> APIStatusError:
    """The error class that fits a Status."""
    kind = AlreadyExists if status.reason == "AlreadyExists" else _BY_CODE.get(status.code)
    if kind is None:
        kind = ServerFault if status.code >= 500 else APIStatusError
    return kind(about, status, retry_after, source)


def one_line(text: str) -> str:
    """The text without line breaks."""
    return " ".join(text.split())


def describe_os_error(error: OSError) -> str:
    """`Connection refused`, where asyncio only says that a call failed."""
    return os.strerror(error.errno) if error.errno and error.errno > 0 else (error.strerror or str(error))
