"""Which objects does a request mean? Label selectors and field selectors, read as kube-apiserver reads them."""

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from paddle_operator.local.apiserver.api_errors import bad_request
from paddle_operator.local.apiserver.scheme.kind import Manifest

Texts = Mapping[str, str]
Test = Callable[[Texts], bool]

_TOKEN = re.compile(r"\s*(?:(==|!=|[=!(),<>])|([^\s=!(),<>]+))")
_NAME = re.compile(r"([A-Za-z0-9]([A-Za-z0-9_.-]{0,61}[A-Za-z0-9])?)")
_PREFIX = re.compile(r"[a-z0-9]([a-z0-9.-]{0,251}[a-z0-9])?")
_END = ""


def label_test(text: str) -> Test | None:
    """What `labelSelector=text` asks of an object's labels; None where it asks nothing. Raises Refusal."""
    tokens = _tokens(text)
    if tokens == [_END]:
        return None
    tests = []
    while True:
        tests.append(_requirement(tokens, text))
        separator = tokens.pop(0)
        if separator == _END:
            break
        if separator != ",":
            raise _unreadable(text, f"found '{separator}', expected: ',' or 'end of string'")
    return tests[0] if len(tests) == 1 else lambda labels: all(test(labels) for test in tests)


def _tokens(text: str) -> list[str]:
    found, at, rest = [], 0, text.rstrip()
    while at < len(rest):
        match = _TOKEN.match(rest, at)
        if match is None:  # cannot be: every character is of one of the two sorts
            raise _unreadable(text, f"found '{rest[at:]}'")
        found.append(match[1] or match[2])
        at = match.end()
    return [*found, _END]


def _requirement(tokens: list[str], text: str) -> Test:
    absent = tokens[0] == "!"
    if absent:
        tokens.pop(0)
    key = _key(tokens.pop(0), text)
    operator = tokens[0]
    if absent or operator in (",", _END):
        return (lambda labels: key not in labels) if absent else (lambda labels: key in labels)
    tokens.pop(0)
    if operator in ("in", "notin"):
        among = _values(tokens, text)
        if operator == "in":
            return lambda labels: labels.get(key) in among
        return lambda labels: labels.get(key) not in among
    value = _value(tokens, text)
    if operator in ("=", "=="):
        return lambda labels: labels.get(key) == value
    if operator == "!=":
        return lambda labels: labels.get(key) != value
    if operator in ("<", ">"):
        return _compared(key, operator, value, text)
    raise _unreadable(text, f"found '{operator}', expected: in, notin, =, ==, !=, gt, lt")


def _compared(key: str, operator: str, value: str, text: str) -> Test:
    if not re.fullmatch(r"[+-]?\d+", value):
        raise _unreadable(text, f"for 'Gt', 'Lt' operators, the value must be an integer, and {value!r} is none")
    bound = int(value)

    def test(labels: Texts) -> bool:
        number = labels.get(key, "")
        if not re.fullmatch(r"[+-]?\d+", number):
            return False
        return int(number) < bound if operator == "<" else int(number) > bound

    return test


def _values(tokens: list[str], text: str) -> frozenset[str]:
    if tokens.pop(0) != "(":
        raise _unreadable(text, "found no '(' after 'in' or 'notin'")
    values = set()
    while True:
        values.add(_value(tokens, text))
        separator = tokens.pop(0) if tokens else _END
        if separator == ")":
            return frozenset(values)
        if separator != ",":
            raise _unreadable(text, f"found '{separator}', expected: ',' or ')'")


def _value(tokens: list[str], text: str) -> str:
    if not tokens or tokens[0] in (",", ")", _END):
        return ""
    value = tokens.pop(0)
    if not _NAME.fullmatch(value):
        raise _unreadable(text, f'the value "{value}" is no valid label value')
    return value


def _key(key: str, text: str) -> str:
    prefix, slash, name = key.rpartition("/")
    if not _NAME.fullmatch(name) or (slash and not _PREFIX.fullmatch(prefix)):
        raise _unreadable(text, f"found '{key}', expected: !, identifier, or 'end of string'")
    return key


def _unreadable(text: str, why: str) -> Exception:
    return bad_request(f'unable to parse requirement: {why} (in the labelSelector "{text}")')


# Fields

_METADATA = ("metadata.name", "metadata.namespace")


@dataclass(frozen=True)
class Fields:
    """The fields that can be selected by, apart from name and namespace, and how they are read off an object."""

    paths: tuple[str, ...] = ()
    texts: Callable[[Manifest], dict[str, str]] = lambda _: {}


def _text(value: object) -> str:
    if value is None:
        return ""
    return str(value).lower() if isinstance(value, bool) else str(value)


def _at(manifest: Manifest, path: str) -> str:
    here: Any = manifest
    for part in path.split("."):
        here = here.get(part) if isinstance(here, dict) else None
    return _text(here)


def _pod_texts(pod: Manifest) -> dict[str, str]:
    spec, status = pod.get("spec") or {}, pod.get("status") or {}
    addresses = status.get("podIPs") or [{"ip": status.get("podIP")}]
    return {
        "spec.nodeName": _text(spec.get("nodeName")),
        "spec.restartPolicy": _text(spec.get("restartPolicy")),
        "spec.schedulerName": _text(spec.get("schedulerName")),
        "spec.serviceAccountName": _text(spec.get("serviceAccountName")),
        "spec.hostNetwork": _text(bool(spec.get("hostNetwork"))),
        "status.phase": _text(status.get("phase")),
        "status.podIP": _text(addresses[0].get("ip")),
        "status.nominatedNodeName": _text(status.get("nominatedNodeName")),
    }


def _event_texts(event: Manifest) -> dict[str, str]:
    """Of an event as it is stored, which is core v1's form."""
    source = event.get("source") or {}
    involved = event.get("involvedObject") or {}
    texts = {f"involvedObject.{name}": _text(involved.get(name)) for name in _INVOLVED}
    component = _text(source.get("component")) or _text(event.get("reportingComponent"))
    reporting = _text(event.get("reportingComponent"))
    return texts | {
        "reason": _text(event.get("reason")),
        "reportingComponent": reporting,
        "source": component,
        "type": _text(event.get("type")),
    }


_INVOLVED = ("kind", "namespace", "name", "uid", "apiVersion", "resourceVersion", "fieldPath")


def _plain(*paths: str) -> Fields:
    return Fields(paths, lambda manifest: {path: _at(manifest, path) for path in paths})


def _node_texts(node: Manifest) -> dict[str, str]:
    return {"spec.unschedulable": _text(bool((node.get("spec") or {}).get("unschedulable")))}


# events.k8s.io calls some fields by other names; what is stored is core v1's form.
_NEW_EVENT_NAMES = {"reportingController": "reportingComponent"} | {
    f"regarding.{name}": f"involvedObject.{name}" for name in _INVOLVED
}

_NOTHING = Fields()
_BY_RESOURCE: dict[tuple[str, str], Fields] = {
    ("", "pods"): Fields(tuple(_pod_texts({})), _pod_texts),
    ("", "events"): Fields(tuple(_event_texts({})), _event_texts),
    ("events.k8s.io", "events"): Fields(("reason", "type", *_NEW_EVENT_NAMES), _event_texts),
    ("", "secrets"): _plain("type"),
    ("", "nodes"): Fields(("spec.unschedulable",), _node_texts),
    ("", "namespaces"): _plain("status.phase"),
    ("", "services"): _plain("spec.clusterIP", "spec.type"),
}


def selectable_fields(group: str, plural: str) -> Fields:
    return _BY_RESOURCE.get((group, plural), _NOTHING)


def field_test(text: str, group: str, plural: str) -> Test | None:
    """What `fieldSelector=text` asks of a record's fields; None where it asks nothing. Raises Refusal."""
    known = (*_METADATA, *selectable_fields(group, plural).paths)
    tests = []
    for term in _terms(text):
        match = re.fullmatch(r"(.*?)(!=|==|=)(.*)", term, re.DOTALL)
        if match is None:
            raise bad_request(f"invalid selector: '{text}'; can't understand '{term}'")
        path, operator, value = match[1], match[2], _unescaped(match[3], text)
        if path not in known:
            raise bad_request(f"field label not supported: {path} (here: {', '.join(known)})")
        if group == "events.k8s.io":
            path = _NEW_EVENT_NAMES.get(path, path)
        tests.append(_field_test(path, value, equal=operator != "!="))
    if not tests:
        return None
    return tests[0] if len(tests) == 1 else lambda fields: all(test(fields) for test in tests)


def _field_test(path: str, value: str, *, equal: bool) -> Test:
    if equal:
        return lambda fields: fields.get(path, "") == value
    return lambda fields: fields.get(path, "") != value


def _terms(text: str) -> list[str]:
    r"""Between commas; `\,` is a comma of a value."""
    return [term for term in re.split(r"(?<!\\),", text) if term]


def _unescaped(value: str, text: str) -> str:
    if re.search(r"(?<!\\)(\\\\)*\\([^\\,=]|$)", value):
        raise bad_request(f"invalid field selector: invalid escape sequence in '{text}'")
    return re.sub(r"\\([\\,=])", r"\1", value)
