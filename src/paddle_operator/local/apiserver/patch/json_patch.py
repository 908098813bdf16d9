"""What is an object after a JSON merge patch (RFC 7396) or a JSON patch (RFC 6902)?

Not the library jsonpatch: kube-apiserver's Go library deviates from the RFC (negative indices, replace adds).
"""

from collections.abc import Callable
from typing import Any

from paddle_operator.kube.errors import Cause
from paddle_operator.local.apiserver.api_errors import StatusError, bad_request
from paddle_operator.local.apiserver.scheme.kind import Manifest

MERGE_PATCH = "application/merge-patch+json"
JSON_PATCH = "application/json-patch+json"
STRATEGIC_MERGE_PATCH = "application/strategic-merge-patch+json"
SERVER_SIDE_APPLY = ("application/apply-patch+yaml", "application/apply-patch+cbor")

MAX_OPERATIONS = 10_000  # as kube-apiserver


def apply_merge_patch(original: Any, patch: Any) -> Any:
    """RFC 7396. Returns a copy that shares its unchanged parts with the original."""
    if not isinstance(patch, dict):
        return patch
    result = dict(original) if isinstance(original, dict) else {}
    for name, value in patch.items():
        if value is None:
            result.pop(name, None)
        else:
            result[name] = apply_merge_patch(result.get(name), value)
    return result


class _InvalidOperation(Exception):
    """An operation does not apply to the object; str() is the reason."""


def apply_json_patch(original: Manifest, operations: Any) -> Manifest:
    """RFC 6902. Raises StatusError: 400 if it is no JSON patch, 422 if an operation does not apply."""
    if not isinstance(operations, list):
        raise bad_request('a JSON patch must be a list of operations: [{"op": …, "path": …}, …]')
    if len(operations) > MAX_OPERATIONS:
        raise StatusError(
            413, f"The allowed maximum operations in a JSON patch is {MAX_OPERATIONS}, got {len(operations)}"
        )
    document: Any = original
    for operation in operations:
        if not isinstance(operation, dict) or not isinstance(operation.get("path"), str):
            raise bad_request(f"an operation of a JSON patch needs an op and a path: {operation!r}")
        perform = _OPERATIONS.get(str(operation.get("op")))
        try:
            if perform is None:
                raise _InvalidOperation(
                    f"unknown op {operation.get('op')!r} of a JSON patch: use one of {', '.join(_OPERATIONS)}"
                )
            document = perform(document, operation)
        except _InvalidOperation as problem:
            raise _unprocessable(str(problem)) from None
    if not isinstance(document, dict):
        raise _unprocessable("the patch does not result in an object")
    return document


def _unprocessable(problem: str) -> StatusError:
    return StatusError(
        422,
        "the server rejected our request due to an error in our request",
        causes=[Cause(message=problem, reason="UnexpectedServerResponse")],
    )


def _parse_pointer(path: str) -> list[str]:
    if not path:
        return []
    if not path.startswith("/"):
        raise _InvalidOperation(f"path {path!r} does not start with /")
    return [step.replace("~1", "/").replace("~0", "~") for step in path[1:].split("/")]


def _index(step: str, last: int) -> int:
    """The list index of a step; negative ones count from the end, as in Kubernetes' Go library."""
    if step.lstrip("-").isdigit() and step.isascii():
        index = int(step)
        if -last - 1 <= index < 0:
            index += last + 1
        if 0 <= index <= last:
            return index
    raise _InvalidOperation(f"{step!r} is no valid index of a list of {last + 1}")


def _value_at(document: Any, path: str) -> Any:
    value = document
    for step in _parse_pointer(path):
        if isinstance(value, dict) and step in value:
            value = value[step]
        elif isinstance(value, list):
            value = value[_index(step, len(value) - 1)]
        else:
            raise _InvalidOperation(f"path {path} does not exist")
    return value


def _change_parent(document: Any, steps: list[str], path: str, change: Callable[[Any, str], Any]) -> Any:
    """Apply `change` to a copy of the last step's parent; the returned document shares all other parts."""
    if len(steps) == 1:
        if not isinstance(document, dict | list):
            raise _InvalidOperation(f"path {path} does not exist")
        return change(document.copy(), steps[0])
    step = steps[0]
    if isinstance(document, dict) and step in document:
        return document | {step: _change_parent(document[step], steps[1:], path, change)}
    if isinstance(document, list):
        copy, index = document.copy(), _index(step, len(document) - 1)
        copy[index] = _change_parent(copy[index], steps[1:], path, change)
        return copy
    raise _InvalidOperation(f"path {path} does not exist")


def _required_member(operation: Manifest, name: str) -> Any:
    if name not in operation or (name == "from" and not isinstance(operation[name], str)):
        raise _InvalidOperation(f"the operation {operation.get('op')} at {operation.get('path')} has no {name}")
    return operation[name]


def _insert(document: Any, path: str, value: Any) -> Any:
    if not (steps := _parse_pointer(path)):
        return value

    def change(parent: Any, step: str) -> Any:
        if isinstance(parent, dict):
            parent[step] = value
        else:
            parent.insert(len(parent) if step == "-" else _index(step, len(parent)), value)
        return parent

    return _change_parent(document, steps, path, change)


def _delete(document: Any, path: str) -> Any:
    if not (steps := _parse_pointer(path)):
        return None

    def change(parent: Any, step: str) -> Any:
        if isinstance(parent, dict):
            if step not in parent:
                raise _InvalidOperation(f"remove operation does not apply: doc is missing key: {path}: missing value")
            del parent[step]
        else:
            del parent[_index(step, len(parent) - 1)]
        return parent

    return _change_parent(document, steps, path, change)


def _add(document: Any, operation: Manifest) -> Any:
    return _insert(document, operation["path"], _required_member(operation, "value"))


def _remove(document: Any, operation: Manifest) -> Any:
    return _delete(document, operation["path"])


def _replace(document: Any, operation: Manifest) -> Any:
    path, value = operation["path"], _required_member(operation, "value")
    if not (steps := _parse_pointer(path)):
        return value

    def change(parent: Any, step: str) -> Any:
        if isinstance(parent, dict):
            parent[step] = value  # adds a missing key, too, as Kubernetes does
        else:
            parent[_index(step, len(parent) - 1)] = value
        return parent

    return _change_parent(document, steps, path, change)


def _move(document: Any, operation: Manifest) -> Any:
    source = _required_member(operation, "from")
    value = _value_at(document, source)
    return _insert(_delete(document, source), operation["path"], value)


def _copy(document: Any, operation: Manifest) -> Any:
    return _insert(document, operation["path"], _value_at(document, _required_member(operation, "from")))


def _test(document: Any, operation: Manifest) -> Any:
    path, expected = operation["path"], operation.get("value")
    try:
        actual = _value_at(document, path)
    except _InvalidOperation:
        actual = None  # Kubernetes' library compares a missing value as null
    if actual != expected or isinstance(actual, bool) is not isinstance(expected, bool):
        raise _InvalidOperation(f"testing value {path} failed: test failed")
    return document


_OPERATIONS: dict[str, Callable[[Any, Manifest], Any]] = {
    "add": _add,
    "remove": _remove,
    "replace": _replace,
    "move": _move,
    "copy": _copy,
    "test": _test,
}
