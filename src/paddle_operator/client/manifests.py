"""Reads YAML files and applies the changes of the command line; every error names file, line and field.

Nothing here validates a PaddleJob: the API server does, by the rules in api/.
"""

import copy
from collections.abc import Iterable, Sequence
from typing import Any

import yaml

from paddle_operator.api.paddlejob import GROUP, KIND, Role
from paddle_operator.plan.pod_template import is_device

Document = dict[str, Any]


class UsageError(Exception):
    """The user's input cannot be used; str() names the location and the fix."""


class _StrictLoader(yaml.SafeLoader):
    """Refuses duplicate keys, as the API server does: PyYAML would drop one of them."""


def _construct_mapping(loader: _StrictLoader, node: yaml.MappingNode) -> dict[Any, Any]:
    seen: set[Any] = set()
    for key_node, _ in node.value:
        key = loader.construct_object(key_node, deep=True)
        if isinstance(key, str) and key in seen and key != "<<":
            raise yaml.constructor.ConstructorError(None, None, f'duplicate key "{key}"', key_node.start_mark)
        seen.add(key if isinstance(key, str) else str(key))
    loader.flatten_mapping(node)
    return {
        loader.construct_object(key, deep=True): loader.construct_object(value, deep=True) for key, value in node.value
    }


_StrictLoader.add_constructor(yaml.resolver.BaseResolver.DEFAULT_MAPPING_TAG, _construct_mapping)


def read_documents(text: str, source: str) -> list[Document]:
    """All documents of a file. Raises UsageError with line and column."""
    try:
        found = [each for each in yaml.load_all(text, Loader=_StrictLoader) if each is not None]
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        location = f"{source} line {mark.line + 1}, column {mark.column + 1}" if mark else source
        raise UsageError(f"{location} is not valid YAML: {error.problem or error.context}") from None
    except yaml.YAMLError as error:
        raise UsageError(f"{source} is not valid YAML: {' '.join(str(error).split())}") from None
    if not found:
        raise UsageError(f"{source} is empty: write a PaddleJob, such as deploy/examples/wide_and_deep.yaml")
    for number, each in enumerate(found, 1):
        _check_is_object(each, f"{source}, document {number}" if len(found) > 1 else source)
    return found


def _check_is_object(document: object, location: str) -> None:
    if not isinstance(document, dict):
        description = "a list" if isinstance(document, list) else repr(document)
        raise UsageError(f"{location} is {description}, but must be an object with apiVersion and kind")
    for field in ("apiVersion", "kind"):
        if not isinstance(document.get(field), str):
            raise UsageError(f"{location}: {field} is not set, but is needed: add it")
    metadata = document.get("metadata")
    if not isinstance(metadata, dict) or not isinstance(metadata.get("name"), str):
        raise UsageError(f"{location}: metadata.name is not set, but is needed: add it")


def is_job(document: Document) -> bool:
    return document["kind"] == KIND and str(document["apiVersion"]).partition("/")[0] == GROUP


def split_job(documents: Sequence[Document], source: str) -> tuple[Document, list[Document]]:
    """The PaddleJob and the other documents. Raises UsageError unless there is exactly one PaddleJob."""
    jobs = [each for each in documents if is_job(each)]
    if len(jobs) != 1:
        kinds = ", ".join(dict.fromkeys(f"{each['apiVersion']} {each['kind']}" for each in documents))
        raise UsageError(
            f"{source} has {len(jobs)} PaddleJobs ({kinds}), but paddlejob run needs exactly one: "
            f"one document must have apiVersion {GROUP}/v1 and kind {KIND}"
        )
    return jobs[0], [each for each in documents if not is_job(each)]


def apply_settings(job: Document, settings: Iterable[str]) -> Document:
    """The job with each FIELD=VALUE set in its spec; a number in the path is an index of a list."""
    changed = copy.deepcopy(job)
    for setting in settings:
        path, equals, value = setting.partition("=")
        parts = path.split(".")
        if not equals or not all(parts):
            raise UsageError(f"--set {setting} is not of the form FIELD=VALUE, such as worker.replicas=4")
        root: Any = changed if parts[0] in ("spec", "metadata") else changed.setdefault("spec", {})
        _set_field(root, parts, yaml.safe_load(value), setting)
    return changed


def _set_field(node: Any, parts: list[str], value: object, setting: str) -> None:
    *parents, last = parts
    for part in parents:
        node = node.setdefault(part, {}) if isinstance(node, dict) else _item(node, part, setting)
    if isinstance(node, dict):
        node[last] = value
    elif isinstance(node, list):
        _item(node, last, setting)
        node[int(last)] = value
    else:
        raise UsageError(f"--set {setting}: {'.'.join(parents)} is {node!r} and has no fields")


def _item(node: Any, part: str, setting: str) -> Any:
    if isinstance(node, list) and part.isdigit() and int(part) < len(node):
        return node[int(part)]
    description = f"a list of {len(node)}" if isinstance(node, list) else repr(node)
    raise UsageError(f"--set {setting}: {part} does not exist in {description}")


def templates_of(job: Document) -> Iterable[tuple[Role, int, dict[str, Any]]]:
    """Role, replicas and pod spec of each valid role; the API server reports what is invalid."""
    spec = job.get("spec")
    for role in Role:
        role_spec = spec.get(role) if isinstance(spec, dict) else None
        template = role_spec.get("template") if isinstance(role_spec, dict) else None
        pod = template.get("spec") if isinstance(template, dict) else None
        replicas = role_spec.get("replicas") if isinstance(role_spec, dict) else None
        if isinstance(pod, dict) and isinstance(replicas, int):
            yield role, replicas, pod


def containers_of(pod: dict[str, Any]) -> list[dict[str, Any]]:
    listed = [*(pod.get("initContainers") or ()), *(pod.get("containers") or ())]
    return [each for each in listed if isinstance(each, dict)]


def images_of(job: Document) -> list[str]:
    """The images of the job, without duplicates."""
    named = [each.get("image") for _, _, pod in templates_of(job) for each in containers_of(pod)]
    return list(dict.fromkeys(each for each in named if isinstance(each, str)))


def devices_of(job: Document) -> dict[str, int]:
    """The number of each device that all pods of the job request together."""
    requested: dict[str, int] = {}
    for _, replicas, pod in templates_of(job):
        for container in containers_of(pod):
            for name, number in _devices(container).items():
                requested[name] = requested.get(name, 0) + replicas * number
    return requested


def _devices(container: dict[str, Any]) -> dict[str, int]:
    resources = container.get("resources") or {}
    requests = {**(resources.get("requests") or {}), **(resources.get("limits") or {})}
    return {name: int(number) for name, number in requests.items() if is_device(name) and str(number).isdigit()}


def without_devices(job: Document) -> tuple[Document, list[str]]:
    """The job without devices, nodeSelector and affinity, and a list of what was removed."""
    changed, removed = copy.deepcopy(job), [f"{number} {name}" for name, number in devices_of(job).items()]
    for _, _, pod in templates_of(changed):
        removed += [name for name in ("nodeSelector", "affinity") if pod.pop(name, None)]
        for container in containers_of(pod):
            resources = container.get("resources") or {}
            for part in ("requests", "limits"):
                others = {name: each for name, each in (resources.get(part) or {}).items() if not is_device(name)}
                if part in resources:
                    resources[part] = others
            if resources.pop("claims", None):
                removed.append("resource claims")
    return changed, list(dict.fromkeys(removed))
