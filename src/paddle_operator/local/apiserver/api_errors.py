"""Which errors does the API server return? Status objects with kube-apiserver's code, reason and message.

kubectl prints the message, and clients decide by code and reason: these three are the contract.
"""

from collections.abc import Iterable, Mapping, Sequence

from paddle_operator.kube.errors import Cause
from paddle_operator.local.apiserver.scheme.kind import Kind, Manifest

REASONS = {
    400: "BadRequest",
    401: "Unauthorized",
    403: "Forbidden",
    404: "NotFound",
    405: "MethodNotAllowed",
    406: "NotAcceptable",
    409: "Conflict",
    410: "Expired",
    413: "RequestEntityTooLarge",
    415: "UnsupportedMediaType",
    422: "Invalid",
    500: "InternalError",
    504: "Timeout",
}


class StatusError(Exception):
    """A failed request. The response is a Status object; str() is its message."""

    def __init__(
        self,
        code: int,
        message: str,
        *,
        reason: str | None = None,
        details: Mapping[str, object] | None = None,
        causes: Iterable[Cause] = (),
    ) -> None:
        super().__init__(message)
        self.code = code
        self.reason = REASONS.get(code, "") if reason is None else reason
        self.details = dict(details or {})
        if status_causes := [_status_cause(cause) for cause in causes]:
            self.details["causes"] = status_causes

    @property
    def status(self) -> Manifest:
        status: Manifest = {
            "kind": "Status",
            "apiVersion": "v1",
            "metadata": {},
            "status": "Failure",
            "message": str(self),
        }
        if self.reason:
            status["reason"] = self.reason
        if self.details:
            status["details"] = self.details
        return status | {"code": self.code}


def _status_cause(cause: Cause) -> dict[str, str]:
    parts = {"reason": cause.reason, "message": cause.message, "field": cause.field}
    return {name: text for name, text in parts.items() if text}


def status_details(kind: Kind, name: str, **extra: object) -> dict[str, object]:
    """The details of a Status that identify the object."""
    parts = {"name": name, "group": kind.group, "kind": kind.plural}
    return {key: value for key, value in (parts | extra).items() if value}


class MalformedObject(StatusError):
    """The body cannot be decoded as an object of its kind."""

    def __init__(self, kind: Kind, sent: str, why: str) -> None:
        super().__init__(400, f'{sent} in version "{kind.version}" cannot be handled as a {kind.kind}: {why}')


def bad_request(message: str) -> StatusError:
    return StatusError(400, message)


def not_found(kind: Kind, name: str) -> StatusError:
    return StatusError(404, f'{kind.group_resource} "{name}" not found', details=status_details(kind, name))


def already_exists(kind: Kind, name: str) -> StatusError:
    message = f'{kind.group_resource} "{name}" already exists'
    return StatusError(409, message, reason="AlreadyExists", details=status_details(kind, name))


def conflict(kind: Kind, name: str, why: str, subresource: str = "") -> StatusError:
    resource = kind.group_resource + (f"/{subresource}" if subresource else "")
    return StatusError(
        409, f'Operation cannot be fulfilled on {resource} "{name}": {why}', details=status_details(kind, name)
    )


def modified_conflict(kind: Kind, name: str) -> StatusError:
    why = "the object has been modified; please apply your changes to the latest version and try again"
    return conflict(kind, name, why)


def forbidden(kind: Kind, name: str, why: str, causes: Iterable[Cause] = ()) -> StatusError:
    resource = f'{kind.group_resource} "{name}"' if name else kind.group_resource
    return StatusError(403, f"{resource} is forbidden: {why}", details=status_details(kind, name), causes=causes)


def invalid(kind: Kind, name: str, causes: Sequence[Cause]) -> StatusError:
    errors = [f"{cause.field}: {cause.message}" if cause.field else cause.message for cause in causes]
    messages = list(dict.fromkeys(errors))
    message = messages[0] if len(messages) == 1 else f"[{', '.join(messages)}]"
    details = {key: value for key, value in {"name": name, "group": kind.group, "kind": kind.kind}.items() if value}
    return StatusError(422, f'{kind.group_kind} "{name}" is invalid: {message}', details=details, causes=causes)


def expired(message: str, reason: str = "Expired") -> StatusError:
    return StatusError(410, message, reason=reason)


def too_large_version(requested: int, current: int) -> StatusError:
    cause = Cause(message="Too large resource version", reason="ResourceVersionTooLarge")
    message = f"Too large resource version: {requested}, current: {current}"
    return StatusError(504, message, details={"retryAfterSeconds": 1}, causes=[cause])
