"""Objects as a test reads them, with undecoded fields."""

from typing import Any

from paddle_operator.kube.objects import Object


class FullObject(Object, frozen=True):
    """An object with spec, status and data undecoded."""

    spec: Any = None
    status: Any = None
    data: Any = None
    binary_data: Any = None

    @property
    def phase(self) -> str:
        return str((self.status or {}).get("phase", ""))

    @property
    def node(self) -> str:
        return str(self.spec.get("nodeName", ""))

    def condition(self, kind: str) -> dict[str, Any]:
        """One of its conditions. Raises LookupError."""
        return next(iter(each for each in (self.status or {}).get("conditions", ()) if each["type"] == kind))
