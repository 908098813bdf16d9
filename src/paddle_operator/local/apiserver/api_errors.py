"""How does the embedded API server say no? With a Status, in the words of kube-apiserver wherever it has some.

kubectl prints the message and clients decide by code and reason, so that these three are the contract.
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


class Refusal(Exception):
    """A request that is answered with a Status; str() is its message."""

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
        if told := [_told(cause) for cause in causes]:
            self.details["causes"] = told

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


def _told(cause: Cause) -> dict[str, str]:
    parts = {"reason": cause.reason, "message": cause.message, "field": cause.field}
    return {name: text for name, text in parts.items() if text}


def resource_name(kind: Kind) -> str:
    """`pods`, `paddlejobs.batch.paddlepaddle.org`: how sentences spell a kind's collection."""
    return f"{kind.plural}.{kind.group}" if kind.group else kind.plural


def about(kind: Kind, name: str, **more: object) -> dict[str, object]:
    """The details that say whom a refusal is about."""
    parts = {"name": name, "group": kind.group, "kind": kind.plural}
    return {key: value for key, value in (parts | more).items() if value}


class Malformed(Refusal):
    """What was sent does not even have the form of its kind."""

    def __init__(self, kind: Kind, sent: str, why: str) -> None:
        super().__init__(400, f'{sent} in version "{kind.version}" cannot be handled as a {kind.kind}: {why}')


def bad_request(sentence: str) -> Refusal:
    return Refusal(400, sentence)


def not_found(kind: Kind, name: str) -> Refusal:
    return Refusal(404, f'{resource_name(kind)} "{name}" not found', details=about(kind, name))


def already_exists(kind: Kind, name: str) -> Refusal:
    sentence = f'{resource_name(kind)} "{name}" already exists'
    return Refusal(409, sentence, reason="AlreadyExists", details=about(kind, name))


def conflict(kind: Kind, name: str, why: str, subresource: str = "") -> Refusal:
    resource = resource_name(kind) + (f"/{subresource}" if subresource else "")
    return Refusal(409, f'Operation cannot be fulfilled on {resource} "{name}": {why}', details=about(kind, name))


def stale(kind: Kind, name: str) -> Refusal:
    why = "the object has been modified; please apply your changes to the latest version and try again"
    return conflict(kind, name, why)


def forbidden(kind: Kind, name: str, why: str, causes: Iterable[Cause] = ()) -> Refusal:
    whom = f'{resource_name(kind)} "{name}"' if name else resource_name(kind)
    return Refusal(403, f"{whom} is forbidden: {why}", details=about(kind, name), causes=causes)


def invalid(kind: Kind, name: str, causes: Sequence[Cause]) -> Refusal:
    told = list(dict.fromkeys(f"{cause.field}: {cause.message}" if cause.field else cause.message for cause in causes))
    words = told[0] if len(told) == 1 else f"[{', '.join(told)}]"
    spelled = f"{kind.kind}.{kind.group}" if kind.group else kind.kind
    details = {key: value for key, value in {"name": name, "group": kind.group, "kind": kind.kind}.items() if value}
    return Refusal(422, f'{spelled} "{name}" is invalid: {words}', details=details, causes=causes)


def expired(sentence: str, reason: str = "Expired") -> Refusal:
    return Refusal(410, sentence, reason=reason)


def too_large_version(asked: int, newest: int) -> Refusal:
    cause = Cause(message="Too large resource version", reason="ResourceVersionTooLarge")
    sentence = f"Too large resource version: {asked}, current: {newest}"
    return Refusal(504, sentence, details={"retryAfterSeconds": 1}, causes=[cause])
