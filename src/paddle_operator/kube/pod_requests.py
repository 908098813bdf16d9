"""What does a pod ask for? Kubernetes' own rule, by which its scheduler and its quotas count.

What a namespace's LimitRange or a RuntimeClass would add when the pod is made is not in the template, so not in here.
"""

from paddle_operator.kube.objects import Manifest
from paddle_operator.kube.quantities import MILLI, Amounts, amount, binary, decimal, effective_requests, rounded, total

HUGE_PAGES = "hugepages-"


def pod_requests(spec: Manifest) -> Amounts:
    """By resource, of a pod with this spec. Raises ValueError with the field, the value and the fix."""
    containers = [_asked(each, f"containers[{place}]") for place, each in enumerate(spec["containers"])]
    init_containers = [
        (_asked(each, f"initContainers[{place}]"), each.get("restartPolicy") == "Always")
        for place, each in enumerate(spec.get("initContainers") or ())
    ]
    asked = effective_requests(containers, init_containers)
    return total((asked | _asked_as_a_whole(spec, asked), _read(spec.get("overhead"), "overhead")))


def as_quantities(amounts: Amounts) -> dict[str, str]:
    """As Kubernetes writes them: bytes with the suffixes of two's powers, all else with those of ten's."""
    return {resource: (binary if _in_bytes(resource) else decimal)(value) for resource, value in amounts.items()}


def _asked(container: Manifest, field: str) -> Amounts:
    """A limit without a request is a request."""
    resources = container.get("resources") or {}
    limits = _read(resources.get("limits"), f"{field}.resources.limits")
    return limits | _read(resources.get("requests"), f"{field}.resources.requests")


def _asked_as_a_whole(spec: Manifest, asked: Amounts) -> Amounts:
    """What `spec.resources` says instead of the containers; its limits only where no container asks for anything.

    Huge pages cannot be promised twice: of them the limit counts in any case.
    """
    resources = spec.get("resources") or {}
    limits = _read(resources.get("limits"), "resources.limits")
    instead = {name: value for name, value in limits.items() if name not in asked or name.startswith(HUGE_PAGES)}
    instead |= _read(resources.get("requests"), "resources.requests")
    return {name: value for name, value in instead.items() if name in ("cpu", "memory") or name.startswith(HUGE_PAGES)}


def _read(quantities: Manifest | None, field: str) -> Amounts:
    """In thousandths, to which the API server rounds up whatever a pod asks for."""
    read: Amounts = {}
    for resource, quantity in (quantities or {}).items():
        try:
            read[resource] = rounded(amount(quantity), MILLI)
        except ValueError as error:
            raise ValueError(f"{field}.{resource}: {error}") from None
    return read


def _in_bytes(resource: str) -> bool:
    return resource in ("memory", "ephemeral-storage") or resource.startswith(HUGE_PAGES)
