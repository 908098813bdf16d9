"""What the API server says about itself, as it goes over the wire: discovery.py and openapi.py write these."""

import hashlib
from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property

import msgspec

JSON = "application/json"


@dataclass(frozen=True)
class Document:
    body: bytes
    media_type: str = JSON
    lasting: bool = False  # its address has its hash in it, so that a client may keep it

    @cached_property
    def mark(self) -> str:
        """A hash of the body, for an ETag."""
        return hashlib.sha256(self.body).hexdigest().upper()

    @property
    def headers(self) -> dict[str, str]:
        """How long a client may keep it, and how it asks whether it has changed."""
        keeping = "public, immutable, max-age=31536000" if self.lasting else "no-cache, private"
        return {"Cache-Control": keeping, "ETag": f'"{self.mark}"', "Vary": "Accept"}


Finder = Callable[[str, str, str], Document | None]
"""The document at a path, for a query (`hash=…`) and an Accept header; None where there is none."""


def as_document(content: object, media_type: str = JSON) -> Document:
    return Document(msgspec.json.encode(content), media_type)
