"""A wrong job for each thing that is refused, with the sentence that tells of it, and a right job beside it."""

from paddle_operator.api.paddlejob import Role
from tests.api.cases import Case
from tests.api.jobs import Written, a_role, make_template
from tests.api.wrong_policies import POLICY_CASES

__all__ = ["CASES", "Case"]

WORKERS: Written = {"worker": a_role()}
LONG = "a" * 51


def of_role(role: Role) -> list[Case]:
    return [
        Case({role: a_role(0)}, {role: a_role(1)}, f"spec.{role}.replicas is 0, but must be from 1 to 10000"),
        Case({role: a_role(-1)}, {role: a_role(1)}, f"spec.{role}.replicas is -1, but"),
        Case({role: a_role(10001)}, {role: a_role(10000)}, f"spec.{role}.replicas is 10001, but"),
        Case({role: a_role(requests=-1)}, {role: a_role(requests=0)}, f"spec.{role}.requests is -1, but"),
        Case({role: a_role(limits=-1)}, {role: a_role(limits=0)}, f"spec.{role}.limits is -1, but"),
        Case({role: a_role(2, requests=3)}, {role: a_role(2, requests=2)}, f"spec.{role}.requests is 3, but"),
        Case({role: a_role(2, limits=1)}, {role: a_role(2, limits=2)}, f"spec.{role}.limits is 1, but"),
        Case(
            {role: {"template": make_template()}},
            {role: a_role()},
            f"spec.{role}.replicas is not set, but",
            server=f"spec.{role}.replicas: Required value",
        ),
        Case(
            {role: {"replicas": 2}},
            {role: a_role()},
            f"spec.{role}.template is not set, but",
            server=f"spec.{role}.template: Required value",
        ),
        Case(
            {role: a_role(template={})},
            {role: a_role()},
            f"spec.{role}.template.spec.containers is empty, but",
            server=f"spec.{role}.template.spec: Required value",
        ),
        Case(
            {role: a_role(template={"spec": {"containers": []}})},
            {role: a_role()},
            f"spec.{role}.template.spec.containers is empty, but a pod runs something: add a container",
            server=f"spec.{role}.template.spec.containers in body should have at least 1 items",
        ),
        Case(
            {role: a_role(template=make_template(ports=({"containerPort": 65536},)))},
            {role: a_role(template=make_template(ports=({"containerPort": 65535},)))},
            f"spec.{role}.template.spec.containers[0].ports[0].containerPort is 65536, but must be from 1 to 65535",
            server=f"spec.{role}.template.spec.containers[0].ports[0].containerPort: Invalid value: 65536",
        ),
        Case(
            {role: a_role(template=make_template(ports=({"containerPort": 80, "hostPort": -1},)))},
            {role: a_role(template=make_template(ports=({"containerPort": 80, "hostPort": 0},)))},
            f"spec.{role}.template.spec.containers[0].ports[0].hostPort is -1, but must be from 0 to 65535",
            server=f"spec.{role}.template.spec.containers[0].ports[0].hostPort: Invalid value: -1",
        ),
    ]


CASES = [
    Case({}, WORKERS, "spec is without a role, but a job has pods: add spec.worker"),
    *(case for role in Role for case in of_role(role)),
    Case(WORKERS | {"withGloo": 3}, WORKERS | {"withGloo": 2}, "spec.withGloo is 3, but must be 0 (off), 1 (workers)"),
    Case(WORKERS | {"withGloo": -1}, WORKERS | {"withGloo": 0}, "spec.withGloo is -1, but"),
    Case(WORKERS | {"elastic": -1}, WORKERS | {"elastic": 1}, "spec.elastic is -1, but must be 0"),
    Case(
        {"ps": a_role(), "elastic": 1},
        {"ps": a_role(), "elastic": 0},
        "spec.elastic is 1, but only workers can be elastic: add spec.worker, or remove spec.elastic",
    ),
    Case(
        WORKERS | {"ps": a_role(), "elastic": 1},
        WORKERS | {"elastic": 1},
        "spec.elastic is 1, but Paddle's elastic training has workers only: remove spec.ps and spec.heter",
    ),
    Case(
        WORKERS | {"schedulingPolicy": {"minAvailable": 3}},
        WORKERS | {"schedulingPolicy": {"minAvailable": 2}},
        "spec.schedulingPolicy.minAvailable is 3 in a job of 2 pods, but must be from 1 to all pods",
    ),
    Case(
        WORKERS | {"schedulingPolicy": {"minAvailable": 0}},
        WORKERS | {"schedulingPolicy": {"minAvailable": 1}},
        "spec.schedulingPolicy.minAvailable is 0 in a job of 2 pods, but",
    ),
    Case(WORKERS, WORKERS, 'metadata.name is "1mnist", but Services', wrong_name="1mnist", right_name="mnist1"),
    Case(WORKERS, WORKERS, 'metadata.name is "mn.ist", but Services', wrong_name="mn.ist", right_name="mn-ist"),
    Case(
        WORKERS,
        WORKERS,
        f'metadata.name is "{LONG}a" of 52 characters, but with -worker-9999 behind it, it must fit 63: use at most 51',
        wrong_name=f"{LONG}a",
        right_name=LONG,
    ),
    *(
        Case(
            WORKERS | {field: "Nerver"},
            WORKERS | {field: "Never"},
            f'spec.{field} is "Nerver", but must be Always, Never, OnFailure or OnCompletion',
            server=f'spec.{field}: Unsupported value: "Nerver": supported values: "Always", "Never", "OnFailure"',
        )
        for field in ("cleanPodPolicy", "cleanPolicy")
    ),
    Case(
        WORKERS | {"intranet": "HostNetwork"},
        WORKERS | {"intranet": "Host"},
        'spec.intranet is "HostNetwork", but must be PodIP, Service or Host',
        server='spec.intranet: Unsupported value: "HostNetwork": supported values: "PodIP", "Service", "Host"',
    ),
    Case(
        WORKERS | {"withGloo": "1"},
        WORKERS | {"withGloo": 1},
        'spec.withGloo is "1", but must be a whole number',
        server="spec.withGloo in body must be of type integer",
    ),
    *POLICY_CASES,
]
