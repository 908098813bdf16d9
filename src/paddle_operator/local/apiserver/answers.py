"""What the API server gives back, before it is HTTP: a code, bytes of JSON, and warnings."""

from dataclasses import dataclass

import msgspec

from paddle_operator.local.apiserver.scheme.kind import Manifest

_encode = msgspec.json.Encoder().encode


@dataclass(frozen=True)
class Answer:
    body: bytes
    code: int = 200
    warnings: tuple[str, ...] = ()


def told(manifest: Manifest, code: int = 200, warnings: tuple[str, ...] = ()) -> Answer:
    return Answer(_encode(manifest), code, warnings)


def success(code: int = 200, details: Manifest | None = None) -> Answer:
    status: Manifest = {"kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Success"}
    if details:
        status["details"] = details
    if code != 200:
        status["code"] = code
    return told(status, code)
