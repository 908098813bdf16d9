"""Which objects match a label selector or a field selector? Parsed as kube-apiserver parses them."""

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass

from paddle_operator.local.apiserver.api_errors import bad_request
from paddle_operator.local.apiserver.scheme.kind import Manifest
from paddle_operator.local.apiserver.scheme.unstructured import nested_value

StringMap = Mapping[str, str]
Predicate = Callable[[StringMap], bool]

_TOKEN = re.compile(r"\s*(?:(==|!=|[=!(),<>])|([^\s=!(),<>]+))")
_LABEL_VALUE = re.compile(r"([A-Za-z0-9]([A-Za-z0-9_.-]{0,61}[A-Za-z0-9])?)")
_KEY_PREFIX = re.compile(r"[a-z0-9]([a-z0-9.-]{0,251}[a-z0-9])?")
_END = ""


def parse_label_selector(text: str) -> Predicate | None:
    """The predicate on labels of a labelSelector; None if it is empty. Raises StatusError."""
    tokens = _tokenize(text)
    if tokens == [_END]:
        return None
    predicates = []
    while True:
        predicates.append(_parse_requirement(tokens, text))
        separator = tokens.pop(0)
        if separator == _END:
            break
        if separator != ",":
            raise _parse_error(text, f"found '{separator}', expected: ',' or 'end of string'")
    return _all_of(predicates)


def _all_of(predicates: list[Predicate]) -> Predicate:
    if len(predicates) == 1:
        return predicates[0]
    return lambda values: all(predicate(values) for predicate in predicates)


def _tokenize(text: str) -> list[str]:
    # Every character matches one of the two groups of _TOKEN.
    return [*(match[1] or match[2] for match in _TOKEN.finditer(text.rstrip())), _END]


def _parse_requirement(tokens: list[str], text: str) -> Predicate:
    is_negated = tokens[0] == "!"
    if is_negated:
        tokens.pop(0)
    key = _check_key(tokens.pop(0), text)
    operator = tokens[0]
    if is_negated or operator in (",", _END):
        return (lambda labels: key not in labels) if is_negated else (lambda labels: key in labels)
    tokens.pop(0)
    if operator in ("in", "notin"):
        values = _parse_values(tokens, text)
        if operator == "in":
            return lambda labels: labels.get(key) in values
        return lambda labels: labels.get(key) not in values
    value = _parse_value(tokens, text)
    if operator in ("=", "=="):
        return lambda labels: labels.get(key) == value
    if operator == "!=":
        return lambda labels: labels.get(key) != value
    if operator in ("<", ">"):
        return _number_predicate(key, operator, value, text)
    raise _parse_error(text, f"found '{operator}', expected: in, notin, =, ==, !=, gt, lt")


def _number_predicate(key: str, operator: str, value: str, text: str) -> Predicate:
    if not re.fullmatch(r"[+-]?\d+", value):
        raise _parse_error(text, f"for 'Gt', 'Lt' operators, the value must be an integer, not {value!r}")
    bound = int(value)

    def predicate(labels: StringMap) -> bool:
        number = labels.get(key, "")
        if not re.fullmatch(r"[+-]?\d+", number):
            return False
        return int(number) < bound if operator == "<" else int(number) > bound

    return predicate


def _parse_values(tokens: list[str], text: str) -> frozenset[str]:
    if tokens.pop(0) != "(":
        raise _parse_error(text, "expected: '(' after 'in' or 'notin'")
    values = set()
    while True:
        values.add(_parse_value(tokens, text))
        separator = tokens.pop(0) if tokens else _END
        if separator == ")":
            return frozenset(values)
        if separator != ",":
            raise _parse_error(text, f"found '{separator}', expected: ',' or ')'")


def _parse_value(tokens: list[str], text: str) -> str:
    if not tokens or tokens[0] in (",", ")", _END):
        return ""
    value = tokens.pop(0)
    if not _LABEL_VALUE.fullmatch(value):
        raise _parse_error(text, f'"{value}" is no valid label value')
    return value


def _check_key(key: str, text: str) -> str:
    prefix, slash, name = key.rpartition("/")
    if not _LABEL_VALUE.fullmatch(name) or (slash and not _KEY_PREFIX.fullmatch(prefix)):
        raise _parse_error(text, f"found '{key}', expected: !, identifier, or 'end of string'")
    return key


def _parse_error(text: str, why: str) -> Exception:
    return bad_request(f'unable to parse requirement: {why} (in the labelSelector "{text}")')


# Fields

_METADATA = ("metadata.name", "metadata.namespace")


@dataclass(frozen=True)
class SelectableFields:
    """The field labels of a kind besides name and namespace, and how their values are extracted from an object."""

    paths: tuple[str, ...] = ()
    extract: Callable[[Manifest], dict[str, str]] = lambda _: {}


def _to_text(value: object) -> str:
    if value is None:
        return ""
    return str(value).lower() if isinstance(value, bool) else str(value)


def _pod_fields(pod: Manifest) -> dict[str, str]:
    spec, status = pod.get("spec") or {}, pod.get("status") or {}
    addresses = status.get("podIPs") or [{"ip": status.get("podIP")}]
    return {
        "spec.nodeName": _to_text(spec.get("nodeName")),
        "spec.restartPolicy": _to_text(spec.get("restartPolicy")),
        "spec.schedulerName": _to_text(spec.get("schedulerName")),
        "spec.serviceAccountName": _to_text(spec.get("serviceAccountName")),
        "spec.hostNetwork": _to_text(bool(spec.get("hostNetwork"))),
        "status.phase": _to_text(status.get("phase")),
        "status.podIP": _to_text(addresses[0].get("ip")),
        "status.nominatedNodeName": _to_text(status.get("nominatedNodeName")),
    }


def _event_fields(event: Manifest) -> dict[str, str]:
    """Of a stored event, which has core v1's form."""
    source = event.get("source") or {}
    involved = event.get("involvedObject") or {}
    fields = {f"involvedObject.{name}": _to_text(involved.get(name)) for name in _INVOLVED_OBJECT_FIELDS}
    component = _to_text(source.get("component")) or _to_text(event.get("reportingComponent"))
    reporting = _to_text(event.get("reportingComponent"))
    return fields | {
        "reason": _to_text(event.get("reason")),
        "reportingComponent": reporting,
        "source": component,
        "type": _to_text(event.get("type")),
    }


_INVOLVED_OBJECT_FIELDS = ("kind", "namespace", "name", "uid", "apiVersion", "resourceVersion", "fieldPath")


def _fields_at(*paths: str) -> SelectableFields:
    return SelectableFields(
        paths, lambda manifest: {path: _to_text(nested_value(manifest, *path.split("."))) for path in paths}
    )


def _node_fields(node: Manifest) -> dict[str, str]:
    return {"spec.unschedulable": _to_text(bool((node.get("spec") or {}).get("unschedulable")))}


# The field labels of events.k8s.io and the fields of the stored core v1 form.
_EVENTS_V1_FIELDS = {"reportingController": "reportingComponent"} | {
    f"regarding.{name}": f"involvedObject.{name}" for name in _INVOLVED_OBJECT_FIELDS
}

_NO_FIELDS = SelectableFields()
_BY_RESOURCE: dict[tuple[str, str], SelectableFields] = {
    ("", "pods"): SelectableFields(tuple(_pod_fields({})), _pod_fields),
    ("", "events"): SelectableFields(tuple(_event_fields({})), _event_fields),
    ("events.k8s.io", "events"): SelectableFields(("reason", "type", *_EVENTS_V1_FIELDS), _event_fields),
    ("", "secrets"): _fields_at("type"),
    ("", "nodes"): SelectableFields(("spec.unschedulable",), _node_fields),
    ("", "namespaces"): _fields_at("status.phase"),
    ("", "services"): _fields_at("spec.clusterIP", "spec.type"),
}


def selectable_fields(group: str, plural: str) -> SelectableFields:
    return _BY_RESOURCE.get((group, plural), _NO_FIELDS)


def parse_field_selector(text: str, group: str, plural: str) -> Predicate | None:
    """The predicate on a record's fields of a fieldSelector; None if it is empty. Raises StatusError."""
    supported = (*_METADATA, *selectable_fields(group, plural).paths)
    predicates = []
    for term in _split_terms(text):
        match = re.fullmatch(r"(.*?)(!=|==|=)(.*)", term, re.DOTALL)
        if match is None:
            raise bad_request(f"invalid selector: '{text}'; can't understand '{term}'")
        path, operator, value = match[1], match[2], _unescape(match[3], text)
        if path not in supported:
            raise bad_request(f"field label not supported: {path} (here: {', '.join(supported)})")
        if group == "events.k8s.io":
            path = _EVENTS_V1_FIELDS.get(path, path)
        predicates.append(_field_predicate(path, value, negated=operator == "!="))
    return _all_of(predicates) if predicates else None


def _field_predicate(path: str, value: str, *, negated: bool) -> Predicate:
    if negated:
        return lambda fields: fields.get(path, "") != value
    return lambda fields: fields.get(path, "") == value


def _split_terms(text: str) -> list[str]:
    r"""Split at commas; `\,` is a comma in a value."""
    return [term for term in re.split(r"(?<!\\),", text) if term]


def _unescape(value: str, text: str) -> str:
    if re.search(r"(?<!\\)(\\\\)*\\([^\\,=]|$)", value):
        raise bad_request(f"invalid field selector: invalid escape sequence in '{text}'")
    return re.sub(r"\\([\\,=])", r"\1", value)
