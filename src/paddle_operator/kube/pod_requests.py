"""The resource requests of a pod, by the rule of Kubernetes' scheduler and quotas.

What a LimitRange or a RuntimeClass adds when the pod is created is not in the template, and so not counted.
"""

from paddle_operator.kube.objects import Manifest
from paddle_operator.kube.quantities import MILLI, Amounts, amount, binary, decimal, effective_requests, rounded, total

HUGE_PAGES = "hugepages-"


def pod_requests(spec: Manifest) -> Amounts:
    """Requests by resource. Raises ValueError with the field, the value and the fix."""
    containers = [_container_requests(each, f"containers[{index}]") for index, each in enumerate(spec["containers"])]
    init_containers = [
        (_container_requests(each, f"initContainers[{index}]"), each.get("restartPolicy") == "Always")
        for index, each in enumerate(spec.get("initContainers") or ())
    ]
    requested = effective_requests(containers, init_containers)
    return total((requested | _pod_level_requests(spec, requested), _read(spec.get("overhead"), "overhead")))


def as_quantities(amounts: Amounts) -> dict[str, str]:
    """As Kubernetes formats them: bytes with binary suffixes, all else with decimal ones."""
    return {resource: (binary if _in_bytes(resource) else decimal)(value) for resource, value in amounts.items()}


def _container_requests(container: Manifest, field: str) -> Amounts:
    """A limit without a request is a request."""
    resources = container.get("resources") or {}
    limits = _read(resources.get("limits"), f"{field}.resources.limits")
    return limits | _read(resources.get("requests"), f"{field}.resources.requests")


def _pod_level_requests(spec: Manifest, requested: Amounts) -> Amounts:
    """The pod-level `spec.resources`, which override the containers'; limits only where no container requests any.

    Huge pages cannot be overcommitted: their limit counts in any case.
    """
    resources = spec.get("resources") or {}
    limits = _read(resources.get("limits"), "resources.limits")
    overrides = {name: value for name, value in limits.items() if name not in requested or name.startswith(HUGE_PAGES)}
    overrides |= _read(resources.get("requests"), "resources.requests")
    return {
        name: value for name, value in overrides.items() if name in ("cpu", "memory") or name.startswith(HUGE_PAGES)
    }


def _read(quantities: Manifest | None, field: str) -> Amounts:
    """Rounded up to thousandths, as the API server does."""
    read: Amounts = {}
    for resource, quantity in (quantities or {}).items():
        try:
            read[resource] = rounded(amount(quantity), MILLI)
        except ValueError as error:
            raise ValueError(f"{field}.{resource}: {error}") from None
    return read


def _in_bytes(resource: str) -> bool:
    return resource in ("memory", "ephemeral-storage") or resource.startswith(HUGE_PAGES)
