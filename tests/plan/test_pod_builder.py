"""Pods as the seeds show them, and what the user wrote stays as written."""

from typing import Any

import pytest

from paddle_operator.kube.objects import CONFIG_MAPS, PODS
from paddle_operator.plan.children import Children
from paddle_operator.plan.metadata import replicas_text
from paddle_operator.plan.paddlejob import plan
from tests.support.jobs import ETCD, IMAGE, T0, UID, JSONObject, make_job, make_template, make_waiting_pods, manifest


def made(name: str = "wide-ande-deep-worker-0", job_name: str = "wide-ande-deep", **told: Any) -> JSONObject:
    """The pod of that name as it would be sent."""
    return manifest(plan(make_job(job_name, **{"workers": 2} | told), Children(), T0, ETCD), PODS, name)


def main(pod: JSONObject) -> JSONObject:
    found: JSONObject = next(each for each in pod["spec"]["containers"] if each["name"] == "paddle")
    return found


def test_a_server_looks_as_in_the_documents() -> None:
    pod = made("wide-ande-deep-ps-0", ps=2)
    assert pod["metadata"] == {
        "name": "wide-ande-deep-ps-0",
        "namespace": "paddle-system",
        "labels": {
            "paddle-res-name": "wide-ande-deep-ps-0",
            "paddle-res-type": "ps",
            "batch.paddlepaddle.org/job-uid": UID,
        },
        "annotations": {"paddle-resource": "ps", "batch.paddlepaddle.org/attempt": "0"},
        "ownerReferences": [
            {
                "apiVersion": "batch.paddlepaddle.org/v1",
                "blockOwnerDeletion": True,
                "controller": True,
                "kind": "PaddleJob",
                "name": "wide-ande-deep",
                "uid": UID,
            }
        ],
    }
    container = main(pod)
    assert container["env"][:4] == [
        {"name": "POD_IP", "valueFrom": {"fieldRef": {"apiVersion": "v1", "fieldPath": "status.podIP"}}},
        {"name": "PADDLE_TRAINER_ID", "value": "0"},
        {"name": "TRAINING_ROLE", "value": "PSERVER"},
        {"name": "PADDLE_TRAINING_ROLE", "value": "PSERVER"},
    ]
    assert container["envFrom"] == [{"configMapRef": {"name": "wide-ande-deep"}}]
    assert container["image"] == IMAGE
    assert pod["spec"].keys() == {"containers", "restartPolicy", "enableServiceLinks"}
    assert (pod["apiVersion"], pod["kind"]) == ("v1", "Pod")


def test_a_worker_looks_as_in_the_documents() -> None:
    pod = made("wide-ande-deep-worker-1", ps=2)
    assert main(pod)["env"][1:4] == [
        {"name": "PADDLE_TRAINER_ID", "value": "1"},
        {"name": "TRAINING_ROLE", "value": "TRAINER"},
        {"name": "PADDLE_TRAINING_ROLE", "value": "TRAINER"},
    ]
    assert pod["metadata"]["labels"]["paddle-res-type"] == pod["metadata"]["annotations"]["paddle-resource"] == "worker"


def test_the_attempt_is_on_each_pod() -> None:
    assert made(attempt=3)["metadata"]["annotations"]["batch.paddlepaddle.org/attempt"] == "3"


def test_labels_and_annotations_of_the_template_stay_beside_ours() -> None:
    template = make_template() | {
        "metadata": {
            "name": "not-this",
            "namespace": "nor-this",
            "labels": {"team": "ads", "paddle-res-type": "mine"},
            "annotations": {"note": "hello"},
            "finalizers": ["example.com/keep"],
        }
    }
    metadata = made(template=template)["metadata"]
    assert metadata["labels"]["team"] == "ads"
    assert metadata["labels"]["paddle-res-type"] == "worker"
    assert metadata["annotations"]["note"] == "hello"
    assert metadata["finalizers"] == ["example.com/keep"]
    assert (metadata["namespace"], metadata["name"]) == ("paddle-system", "wide-ande-deep-worker-0")


def test_a_template_without_metadata_is_as_good() -> None:
    assert made(template=make_template() | {"metadata": None})["metadata"]["name"] == "wide-ande-deep-worker-0"


# What the user set stays


def test_user_variables_come_before_ours() -> None:
    env = [{"name": "PADDLE_TRAINER_ID", "value": "7"}, {"name": "MINE", "value": "yes"}]
    written = main(made(template=make_template({"env": env})))["env"]
    assert written[:2] == env
    assert [each["name"] for each in written].count("PADDLE_TRAINER_ID") == 1
    assert "POD_IP" in [each["name"] for each in written]


def test_pod_ip_stands_before_the_variable_that_refers_to_it() -> None:
    names = [each["name"] for each in main(made())["env"]]
    assert names.index("POD_IP") < names.index("PADDLE_CURRENT_ENDPOINT")


def test_user_env_from_overrides_the_barrier() -> None:
    """Of two sources the later one counts."""
    theirs = {"secretRef": {"name": "mine"}}
    assert main(made(template=make_template({"envFrom": [theirs]})))["envFrom"] == [
        {"configMapRef": {"name": "wide-ande-deep"}},
        theirs,
    ]


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("restartPolicy", "OnFailure"),
        ("restartPolicy", "Always"),
        ("dnsPolicy", "None"),
        ("enableServiceLinks", True),
        ("hostname", "rank"),
        ("subdomain", "there"),
        ("volumes", [{"name": "data", "emptyDir": {}}]),
        ("schedulerName", "volcano"),
        ("activeDeadlineSeconds", 3600),
        ("nodeSelector", {"accelerator": "nvidia-tesla-p100"}),
    ],
)
def test_a_field_that_the_user_set_stays(field: str, value: Any) -> None:
    assert made(template=make_template(**{field: value}))["spec"][field] == value


def test_default_restart_policy_and_no_service_links() -> None:
    """A Service named paddle would give every container a PADDLE_PORT of its own."""
    spec = made()["spec"]
    assert (spec["restartPolicy"], spec["enableServiceLinks"]) == ("Never", False)
    assert not spec.keys() & {"hostname", "subdomain", "dnsPolicy", "hostNetwork"}


def test_fields_of_the_container_stay() -> None:
    given: JSONObject = {
        "command": ["python"],
        "args": ["-m", "paddle.distributed.launch", "train_fleet.py"],
        "volumeMounts": [{"mountPath": "/dev/shm", "name": "dshm"}],
        "resources": {"limits": {"nvidia.com/gpu": 1}},
        "ports": [{"containerPort": 8080}],
    }
    assert {**main(made(template=make_template(given)))}.items() >= given.items()


def test_other_containers_get_nothing() -> None:
    sidecar = {"name": "logs", "image": "busybox", "env": [{"name": "A", "value": "b"}]}
    pod = made(template=make_template({}, sidecar, initContainers=[sidecar]))
    assert pod["spec"]["containers"][1] == sidecar
    assert pod["spec"]["initContainers"] == [sidecar]


def test_main_container_is_paddle_or_the_first() -> None:
    second = {"spec": {"containers": [{"name": "logs"}, {"name": "paddle"}]}}
    none = {"spec": {"containers": [{"name": "train"}, {"name": "logs"}]}}
    assert ["envFrom" in each for each in made(template=second)["spec"]["containers"]] == [False, True]
    assert ["envFrom" in each for each in made(template=none)["spec"]["containers"]] == [True, False]


def test_building_pods_leaves_the_template_unchanged() -> None:
    template = make_template({"env": [{"name": "A", "value": "b"}], "ports": []}, volumes=[])
    before = repr(template)
    made(template=template, intranet="Host", host_port=35000)
    assert repr(template) == before


# Elastic, Service, Host


@pytest.mark.parametrize("theirs", [{}, {"restartPolicy": "Never"}, {"restartPolicy": "Always"}])
def test_elastic_pod_has_no_barrier_and_restarts(theirs: dict[str, Any]) -> None:
    """With Never, recovery was a race and lost; with Always, the job could not end."""
    pod = made(elastic=1, template=make_template(**theirs))
    assert "envFrom" not in main(pod)
    assert pod["spec"]["restartPolicy"] == "OnFailure"


def test_in_service_mode_the_port_is_declared_once() -> None:
    assert main(made(intranet="Service"))["ports"] == [{"containerPort": 2379, "protocol": "TCP"}]
    theirs = [{"containerPort": 2379, "name": "paddle"}, {"containerPort": 80}]
    assert main(made(intranet="Service", template=make_template({"ports": theirs})))["ports"] == theirs


def test_by_their_addresses_pods_declare_no_port() -> None:
    assert "ports" not in main(made())


def on_host(name: str = "wide-ande-deep-worker-0", **told: Any) -> JSONObject:
    return made(name, intranet="Host", host_port=35000, **told)


def test_host_network_pods_declare_host_ports() -> None:
    assert main(on_host())["ports"] == [{"containerPort": 35001, "hostPort": 35001, "protocol": "TCP"}]
    assert [each["hostPort"] for each in main(on_host("wide-ande-deep-ps-0", ps=1))["ports"]] == [35000, 35018]
    spec = on_host()["spec"]
    assert (spec["hostNetwork"], spec["dnsPolicy"]) == (True, "ClusterFirstWithHostNet")


def test_on_the_host_network_the_users_dns_policy_stays() -> None:
    assert on_host(template=make_template(dnsPolicy="Default"))["spec"]["dnsPolicy"] == "Default"


def test_host_network_mounts_hosts_file_from_barrier() -> None:
    theirs = [{"name": "data", "emptyDir": {}}]
    pod = on_host(template=make_template({"volumeMounts": [{"name": "data", "mountPath": "/data"}]}, volumes=theirs))
    assert pod["spec"]["volumes"] == [
        *theirs,
        {
            "name": "paddle-hosts",
            "configMap": {"name": "wide-ande-deep", "items": [{"key": "hosts", "path": "hosts"}]},
        },
    ]
    assert main(pod)["volumeMounts"] == [
        {"name": "data", "mountPath": "/data"},
        {"name": "paddle-hosts", "mountPath": "/etc/hosts", "subPath": "hosts", "readOnly": True},
    ]


def test_a_hosts_file_that_the_user_mounts_stays() -> None:
    mounts = [{"name": "mine", "mountPath": "/etc/hosts"}]
    pod = on_host(template=make_template({"volumeMounts": mounts}, volumes=[{"name": "mine", "hostPath": {}}]))
    assert main(pod)["volumeMounts"] == mounts
    assert [each["name"] for each in pod["spec"]["volumes"]] == ["mine"]


def test_elastic_host_network_pod_has_no_hosts_file() -> None:
    """There is no barrier that it could come from: the pod would never start."""
    pod = on_host(elastic=1)
    assert "volumes" not in pod["spec"]
    assert "volumeMounts" not in main(pod)


# The barrier


def test_barrier_has_job_name_and_annotations() -> None:
    job = make_job("wide-ande-deep", ps=2, workers=2, attempt=1)
    barrier = manifest(plan(job, Children(make_waiting_pods(job)), T0), CONFIG_MAPS, "wide-ande-deep")
    metadata = barrier["metadata"]
    assert (barrier["apiVersion"], barrier["kind"]) == ("v1", "ConfigMap")
    assert metadata["labels"] == {"paddle-res-name": "wide-ande-deep"}
    assert metadata["ownerReferences"][0]["uid"] == UID
    assert metadata["annotations"]["batch.paddlepaddle.org/attempt"] == "1"
    assert metadata["annotations"]["batch.paddlepaddle.org/replicas"] == "ps=2,worker=2"
    assert len(metadata["annotations"]["batch.paddlepaddle.org/contract"]) == 16
    assert barrier["data"].keys() >= {"TRAINER_PORTS_NUM", "PADDLE_TRAINER_ENDPOINTS", "PADDLE_PSERVERS_IP_PORT_LIST"}


def test_replicas_are_told_by_role_in_order() -> None:
    spec = make_job(heter=3, ps=1, workers=2).spec
    assert spec
    assert replicas_text(spec) == "ps=1,worker=2,heter=3"
