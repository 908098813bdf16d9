"""What does an object look like after a patch? JSON merge patch (RFC 7396) and JSON patch (RFC 6902)."""

from collections.abc import Callable
from typing import Any

from paddle_operator.kube.errors import Cause
from paddle_operator.local.apiserver.api_errors import Refusal, bad_request
from paddle_operator.local.apiserver.scheme.kind import Manifest

MERGE = "application/merge-patch+json"
JSON = "application/json-patch+json"
STRATEGIC = "application/strategic-merge-patch+json"
APPLY = ("application/apply-patch+yaml", "application/apply-patch+cbor")

MOST_OPERATIONS = 10_000  # as kube-apiserver: a patch's cost is the number of its operations


def merged(original: Any, patch: Any) -> Any:
    """RFC 7396; shares what the patch does not touch with the original, which is left as it is."""
    if not isinstance(patch, dict):
        return patch
    result = dict(original) if isinstance(original, dict) else {}
    for name, value in patch.items():
        if value is None:
            result.pop(name, None)
        else:
            result[name] = merged(result.get(name), value)
    return result


class _Unfit(Exception):
    """An operation that cannot be done on this object; str() is a part of a sentence."""


def patched(original: Manifest, operations: Any) -> Manifest:
    """RFC 6902. Raises Refusal: 400 for what is no JSON patch, 422 for an operation that does not fit the object."""
    if not isinstance(operations, list):
        raise bad_request('a JSON patch is a list of operations: send [{"op": …, "path": …}, …]')
    if len(operations) > MOST_OPERATIONS:
        raise Refusal(
            413, f"The allowed maximum operations in a JSON patch is {MOST_OPERATIONS}, got {len(operations)}"
        )
    document: Any = original
    for operation in operations:
        if not isinstance(operation, dict) or not isinstance(operation.get("path"), str):
            raise bad_request(f"an operation of a JSON patch has an op and a path, and {operation!r} has not")
        perform = _OPERATIONS.get(str(operation.get("op")))
        try:
            if perform is None:
                raise _Unfit(f"a JSON patch knows {', '.join(_OPERATIONS)}, and not {operation.get('op')!r}")
            document = perform(document, operation)
        except _Unfit as problem:
            raise _unprocessable(str(problem)) from None
    if not isinstance(document, dict):
        raise _unprocessable("what the patch leaves is no object")
    return document


def _unprocessable(problem: str) -> Refusal:
    return Refusal(
        422,
        "the server rejected our request due to an error in our request",
        causes=[Cause(message=problem, reason="UnexpectedServerResponse")],
    )


def _steps(path: str) -> list[str]:
    if not path:
        return []
    if not path.startswith("/"):
        raise _Unfit(f"path {path!r} does not begin with /")
    return [step.replace("~1", "/").replace("~0", "~") for step in path[1:].split("/")]


def _index(step: str, last: int) -> int:
    """The place in a list that a step names; negative ones count from the end, as in Kubernetes' own library."""
    if step.lstrip("-").isdigit() and step.isascii():
        place = int(step)
        if -last - 1 <= place < 0:
            place += last + 1
        if 0 <= place <= last:
            return place
    raise _Unfit(f"{step!r} is no place in a list of {last + 1}")


def _value_at(document: Any, path: str) -> Any:
    here = document
    for step in _steps(path):
        if isinstance(here, dict) and step in here:
            here = here[step]
        elif isinstance(here, list):
            here = here[_index(step, len(here) - 1)]
        else:
            raise _Unfit(f"there is nothing at {path}")
    return here


def _changed(document: Any, steps: list[str], path: str, change: Callable[[Any, str], Any]) -> Any:
    """A copy of the document in which the last step's parent went through `change`; the rest is shared."""
    if len(steps) == 1:
        if not isinstance(document, dict | list):
            raise _Unfit(f"there is nothing at {path}")
        return change(document.copy(), steps[0])
    step = steps[0]
    if isinstance(document, dict) and step in document:
        return document | {step: _changed(document[step], steps[1:], path, change)}
    if isinstance(document, list):
        copy, place = document.copy(), _index(step, len(document) - 1)
        copy[place] = _changed(copy[place], steps[1:], path, change)
        return copy
    raise _Unfit(f"there is nothing at {path}")


def _needed(operation: Manifest, name: str) -> Any:
    if name not in operation or (name == "from" and not isinstance(operation[name], str)):
        raise _Unfit(f"the operation {operation.get('op')} at {operation.get('path')} lacks {name}")
    return operation[name]


def _added(document: Any, path: str, value: Any) -> Any:
    if not (steps := _steps(path)):
        return value

    def change(parent: Any, step: str) -> Any:
        if isinstance(parent, dict):
            parent[step] = value
        else:
            parent.insert(len(parent) if step == "-" else _index(step, len(parent)), value)
        return parent

    return _changed(document, steps, path, change)


def _removed(document: Any, path: str) -> Any:
    if not (steps := _steps(path)):
        return None

    def change(parent: Any, step: str) -> Any:
        if isinstance(parent, dict):
            if step not in parent:
                raise _Unfit(f"remove operation does not apply: doc is missing key: {path}: missing value")
            del parent[step]
        else:
            del parent[_index(step, len(parent) - 1)]
        return parent

    return _changed(document, steps, path, change)


def _add(document: Any, operation: Manifest) -> Any:
    return _added(document, operation["path"], _needed(operation, "value"))


def _remove(document: Any, operation: Manifest) -> Any:
    return _removed(document, operation["path"])


def _replace(document: Any, operation: Manifest) -> Any:
    path, value = operation["path"], _needed(operation, "value")
    if not (steps := _steps(path)):
        return value

    def change(parent: Any, step: str) -> Any:
        if isinstance(parent, dict):
            parent[step] = value  # also where there is nothing to replace: Kubernetes is more generous than the RFC
        else:
            parent[_index(step, len(parent) - 1)] = value
        return parent

    return _changed(document, steps, path, change)


def _move(document: Any, operation: Manifest) -> Any:
    source = _needed(operation, "from")
    value = _value_at(document, source)
    return _added(_removed(document, source), operation["path"], value)


def _copy(document: Any, operation: Manifest) -> Any:
    return _added(document, operation["path"], _value_at(document, _needed(operation, "from")))


def _test(document: Any, operation: Manifest) -> Any:
    path, wanted = operation["path"], operation.get("value")
    try:
        found = _value_at(document, path)
    except _Unfit:
        found = None  # Kubernetes' library takes a missing value for null
    if found != wanted or isinstance(found, bool) is not isinstance(wanted, bool):
        raise _Unfit(f"testing value {path} failed: test failed")
    return document


_OPERATIONS: dict[str, Callable[[Any, Manifest], Any]] = {
    "add": _add,
    "remove": _remove,
    "replace": _replace,
    "move": _move,
    "copy": _copy,
    "test": _test,
}
