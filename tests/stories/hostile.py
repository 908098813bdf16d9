"""What somebody hostile, or a careless program, would send: fuzzed from the CRD's own schema, and made by hand.

The same seed gives the same objects. `about` has the fields that were tampered with, so that a refusal can be asked
whether it names one.
"""

import copy
import random
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from paddle_operator.api.crd import object_schema
from paddle_operator.api.paddlejob import PADDLE_JOB
from tests.stories.jobs import Job, make_job, make_template

SEED = 20260
FUZZED = 190

Path = tuple[str | int, ...]
Schema = dict[str, Any]
Values = tuple[Any, ...]


@dataclass(frozen=True)
class Hostile:
    manifest: Job
    about: tuple[str, ...]
    status: Any = None  # written through /status

    @property
    def name(self) -> str:
        return str(self.manifest["metadata"]["name"])


def nested(depth: int) -> Any:
    value: Any = "bottom"
    for _ in range(depth):
        value = {"deeper": value}
    return value


NASTY: Values = (
    *(None, True, False, -1, 0, 1, 65536, 2**31, 2**63, 2**80, 1.5, -0.5, 1e300),
    *(
        "",
        " ",
        "x",
        "X_y",
        "-",
        "0",
        "true",
        "\n",
        "\u0000",
        "字" * 300,
        "💥\u202e",
        "x" * 70_000,
        "$(POD_IP)",
        "../..",
    ),
    *([], [[]], [None], [0, "a"], ["x", "x"], {}, {"": ""}, {"x": None}, {"name": "x"}, [{}], [{"name": "x"}] * 2),
    *(nested(30), nested(400)),
)


# From the schema


def fuzzed(seed: int = SEED, count: int = FUZZED) -> Iterator[Hostile]:
    """A right job each, in which one to three fields hold something else."""
    chance = random.Random(seed)
    schema = object_schema(PADDLE_JOB)["properties"]["spec"]
    places = [(path, found) for path, found in fields_of(schema)]
    ours = [each for each in places if "template" not in each[0]]
    theirs = [each for each in places if "template" in each[0]]
    for number in range(count):
        job = chance.choice(SOUND)(f"fuzzed-{number}")
        chosen = [chance.choice(chance.choice((ours, theirs))) for _ in range(chance.choice((1, 1, 1, 2, 3)))]
        for path, found in chosen:
            put(job["spec"], schema, path, hostile_value(found, chance))
        yield Hostile(job, tuple(f"spec.{path[0]}" for path, _ in chosen))


SOUND = (
    lambda name: make_job(name, workers=1),
    lambda name: make_job(name, workers=2, cleanPodPolicy="Never"),
    lambda name: make_job(name, ps=1, workers=1, intranet="Service"),
    lambda name: make_job(name, ps=1, workers=1, heter=1),
    lambda name: make_job(name, workers=1, intranet="Host"),
    lambda name: make_job(name, workers=2, elastic=1),
)


def fields_of(schema: Schema, path: Path = ()) -> Iterator[tuple[Path, Schema]]:
    """Every place of the schema; of a list the first item, of a free map one key."""
    for name, found in schema.get("properties", {}).items():
        yield (*path, name), found
        yield from fields_of(found, (*path, name))
    for step, part in ((0, "items"), ("key", "additionalProperties")):
        if part in schema:
            yield (*path, step), schema[part]
            yield from fields_of(schema[part], (*path, step))


def hostile_value(schema: Schema, chance: random.Random) -> Any:
    """Mostly of the wrong type; sometimes of the right one, and odd."""
    kind = schema.get("type")
    right = {"integer": int, "string": str, "boolean": bool, "array": list, "object": dict}.get(kind or "", object)
    of_the_type = [each for each in NASTY if isinstance(each, right)]
    return copy.deepcopy(chance.choice(of_the_type if of_the_type and chance.random() < 0.4 else NASTY))


def put(target: Any, schema: Schema, path: Path, value: Any) -> None:
    """Set what is at a path; what is missing on the way is made as small as the schema allows."""
    for step, following in zip(path, (*path[1:], None), strict=True):
        found = schema["properties"][step] if step in schema.get("properties", {}) else part_of(schema, step)
        if following is None:
            _set(target, step, value)
            return
        if not isinstance(_at(target, step), (dict, list)):
            _set(target, step, least(found))
        target, schema = _at(target, step), found


def part_of(schema: Schema, step: str | int) -> Schema:
    found: Schema = schema["items" if isinstance(step, int) else "additionalProperties"]
    return found


def least(schema: Schema) -> Any:
    """The smallest value that keeps the schema, types at least."""
    if "enum" in schema:
        return schema["enum"][0]
    match schema.get("type"):
        case "object":
            return {name: least(schema["properties"][name]) for name in schema.get("required", ())}
        case "array":
            return [least(schema["items"])]
        case "string":
            return "x"
        case "boolean":
            return True
    return max(1, schema.get("minimum", 1))


def _at(target: Any, step: str | int) -> Any:
    if isinstance(target, list):
        return target[0] if target else None
    return target.get(str(step))


def _set(target: Any, step: str | int, value: Any) -> None:
    if isinstance(target, list):
        target[:1] = [value]
    else:
        target[str(step)] = value


# By hand


def by_hand() -> Iterator[Hostile]:
    for number, (job, about) in enumerate(_every()):
        job["metadata"].setdefault("name", f"by-hand-{number}")
        yield Hostile(job, (about,))
    for number, (status, job) in enumerate(_lies()):
        yield Hostile(job | {"metadata": {"name": f"lie-{number}"}}, ("status",), status)


def _every() -> Iterator[tuple[Job, str]]:
    yield from _whole()
    yield from _roles()
    yield from _templates()
    yield from _metadata()
    yield from _fields()


def nameless(job: Job) -> Job:
    return copy.deepcopy(job) | {"metadata": {}}


def of(template: Any, role: str = "worker", **spec: Any) -> Job:
    """A job with this template in a role; the API server's and our own rules judge the rest."""
    job = nameless(make_job(workers=1))
    job["spec"] |= {role: {"replicas": 1, "template": template}} | spec
    return job


def _whole() -> Iterator[tuple[Job, str]]:
    specs: Values = (
        *(None, [], "text", 5, True, {}, {"workers": {}}, {"worker": None}, {"x" * 1000: 1}),
        *(nested(900), nested(5000), {"withGloo": nested(5000)}),
    )
    for spec in specs:
        yield nameless(make_job()) | {"spec": spec}, "spec"
    job = nameless(make_job())
    del job["spec"]
    yield job, "spec"


def _roles() -> Iterator[tuple[Job, str]]:
    parts: Values = ([], "x", {}, {"replicas": 1}, {"template": make_template()})
    numbers: Values = (0, -1, 10_001, 2**31, 2**63, 2**80, 1.5, "3", True, None, [], {})
    for role in ("ps", "worker", "heter"):
        for part in parts:
            job = nameless(make_job())
            job["spec"][role] = part
            yield job, f"spec.{role}"
    for replicas in numbers:
        job = nameless(make_job())
        job["spec"]["worker"]["replicas"] = replicas
        yield job, "spec.worker.replicas"
    for intranet in ("PodIP", "Service", "Host"):  # far more than the quota of the namespace allows
        yield nameless(make_job(workers=10_000, intranet=intranet)), "spec.worker.replicas"
    yield nameless(make_job(ps=10_000, workers=10_000, heter=10_000, intranet="Service")), "spec.ps.replicas"


SOUND_CONTAINER: Job = make_template()["spec"]["containers"][0]
TEMPLATES: Values = (None, [], "x", {}, {"spec": None}, {"spec": []}, {"spec": {}}, {"spec": {"containers": None}})
CONTAINERS: Values = (
    *([], {}, "x", [None], ["x"], [5, SOUND_CONTAINER], [{}], [[SOUND_CONTAINER]]),
    *([SOUND_CONTAINER, SOUND_CONTAINER], [SOUND_CONTAINER, {"name": "b"}]),
)
OUR_VARIABLES = [
    {"name": name, "value": "mine"}
    for name in ("POD_IP", "PADDLE_TRAINER_ID", "PADDLE_MASTER", "TRAINING_ROLE", "PADDLE_JOB_ID", "PYTHONUNBUFFERED")
]
MANY_VARIABLES = [{"name": f"V{number}", "value": "x" * 10} for number in range(5000)]
OF_A_CONTAINER: dict[str, Values] = {
    "name": ("", "UPPER", "x" * 64, 5, None, "a.b", "字"),
    "env": (
        *(5, "x", {}, [None], ["x"], [{}], [{"value": "x"}], [{"name": 5}], [{"name": ""}]),
        *(OUR_VARIABLES, OUR_VARIABLES * 2, MANY_VARIABLES, [{"name": "X", "value": "x" * 900_000}]),
    ),
    "ports": (
        *(5, [5], [{}], [{"containerPort": "x"}], [{"containerPort": 80}] * 2),
        *([{"containerPort": port}] for port in (0, 65536, -1, 2379)),
    ),
    "envFrom": (5, [5], [{}], [{"configMapRef": {"name": ""}}]),
    "volumeMounts": (5, [5], [{}], [{"name": "paddle-hosts", "mountPath": "/etc/hosts"}]),
    "resources": (
        *(5, [], {"limits": 5}, {"limits": {"nvidia.com/gpu": -1}}, {"claims": 5}),
        *({"requests": {"cpu": []}}, {"requests": {"cpu": "2"}, "limits": {"cpu": "1"}}),
    ),
    "command": (5, "python", [5]),
    "image": ("", 5, " ", "UPPER/x:y:z"),
}
HOSTS = {"name": "paddle-hosts", "emptyDir": {}}
OF_A_POD: dict[str, Values] = {
    "restartPolicy": ("Sometimes", 5, [], ""),
    "volumes": (5, [5], [{}], [HOSTS], [HOSTS, HOSTS]),
    "initContainers": (5, [5], [{}], [{"name": "paddle", "image": "x"}], [SOUND_CONTAINER]),
    "hostAliases": (
        *(5, [5], [{}], [{"ip": 5}], [{"ip": "x", "hostnames": 5}]),
        [{"ip": "1.2.3.4", "hostnames": [5]}],
    ),
    "activeDeadlineSeconds": (-1, 0, "x"),
    "terminationGracePeriodSeconds": (-1, 2**62),
    "hostNetwork": (True, "x"),
    "nodeName": ("nowhere", "NO WHERE"),
    "serviceAccountName": ("nobody", 5),
    "priorityClassName": ("nobody",),
    "schedulerName": ("", "nobody"),
    "hostname": ("UPPER", "x" * 64),
    "dnsPolicy": ("Nope",),
    "tolerations": (5, [{}], [{"operator": "Nope"}]),
}


def _templates() -> Iterator[tuple[Job, str]]:
    about = "spec.worker.template"
    for template in (*TEMPLATES, *({"spec": {"containers": containers}} for containers in CONTAINERS)):
        yield of(template), about
    for field, values in OF_A_CONTAINER.items():
        for value in values:
            yield of(make_template(**{field: value})), about
    for field, values in OF_A_POD.items():
        for value in values:
            template = make_template()
            template["spec"][field] = value
            yield of(template), about
            yield of(template, intranet="Host"), about
    for metadata in OF_A_TEMPLATE:
        yield of({"metadata": metadata} | make_template()), about


MARKS = {"paddle-res-name": "mine", "paddle-res-type": "mine", "batch.paddlepaddle.org/job-uid": "mine"}
OF_A_TEMPLATE: Values = (
    *(5, [], {"labels": 5}, {"labels": {"a": 5}}, {"labels": {"not a label": "x"}}, {"annotations": []}),
    {"labels": MARKS, "annotations": {"paddle-resource": "mine", "batch.paddlepaddle.org/attempt": "99"}},
    {"name": "mine", "namespace": "kube-system", "finalizers": ["example.com/never"]},
    {"finalizers": 5},
    {"annotations": {"batch.paddlepaddle.org/attempt": "x" * 200_000}},
)
NAMES = (
    *("a" * length for length in (51, 52, 63, 253)),
    *("1a", "a.b", "x-worker-0", "x-worker-0-worker-0", "kube-root-ca.crt"),
)


OF_A_JOB: tuple[Job, ...] = (
    {"labels": MARKS},
    {"annotations": {"x": "y" * 200_000}},
    {"finalizers": ["example.com/never"]},
    {"finalizers": ["finalizers.paddlepaddle.org"]},
)


def _metadata() -> Iterator[tuple[Job, str]]:
    for name in NAMES:
        yield make_job(name, workers=1), "metadata.name"
    for number, metadata in enumerate(OF_A_JOB):
        yield make_job(workers=1) | {"metadata": {"name": f"metadata-{number}", **metadata}}, "metadata"


OF_A_SPEC: dict[str, Values] = {
    "cleanPodPolicy": ("Nerver", "", 5, [], "always"),
    "intranet": ("host", "", 5, {}),
    "withGloo": (-1, 3, "1", 1.5, True),
    "elastic": (-1, "1", 2, True),
    "schedulingPolicy": (
        *(5, [], {"minAvailable": -1}, {"minAvailable": 9}, {"queue": 5}),
        {"minResources": {"cpu": "x"}},
    ),
}


def _fields() -> Iterator[tuple[Job, str]]:
    for field, values in OF_A_SPEC.items():
        for value in values:
            job = nameless(make_job(workers=1))
            job["spec"][field] = value
            yield job, f"spec.{field}"
    yield nameless(make_job(ps=1, workers=0, elastic=1)), "spec.elastic"
    yield nameless(make_job(ps=1, workers=1, elastic=1)), "spec.elastic"


STATUSES: Values = (
    *("text", 5, [], {"phase": 5}, {"phase": "Nonsense"}, {"phase": "Running"}, {"phase": "Restarting"}, {"mode": []}),
    *({"conditions": 5}, {"conditions": [5, {}]}, {"conditions": [{"type": "Running", "status": "True"}] * 3}),
    *({"worker": 5}, {"worker": {"running": "x"}}, {"worker": {"succeeded": -7}}, {"worker": {"refs": [5]}}),
    *({"attempt": 10**9}, {"attempt": -1}, {"attempt": "x"}, {"observedGeneration": 99}, {"startTime": "yesterday"}),
    *({"selector": 5}, {"elastic": "x"}, {"unknown": nested(50)}, {"hostPort": "x"}),
)


def _lies() -> Iterator[tuple[Any, Job]]:
    for status in STATUSES:
        yield status, make_job(workers=1)
    for port in (-5, 0, 70_000, 2**40):
        yield {"hostPort": port}, make_job(workers=1, intranet="Host")


def every() -> list[Hostile]:
    return [*by_hand(), *fuzzed()]
