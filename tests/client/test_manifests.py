"""What the user wrote, and what the command line changes of it."""

from typing import Any

import pytest

from paddle_operator.client.manifests import (
    CannotBeUsed,
    devices_of,
    images_of,
    on_cpu,
    parted,
    read,
    with_settings,
)

JOB = """
apiVersion: batch.paddlepaddle.org/v1
kind: PaddleJob
metadata: {name: mnist}
spec:
  worker:
    replicas: 2
    template:
      spec:
        nodeSelector: {accelerator: p100}
        containers:
        - name: paddle
          image: demo:v1
          resources: {limits: {nvidia.com/gpu: 1, cpu: 2}}
"""
CLAIM = "apiVersion: v1\nkind: PersistentVolumeClaim\nmetadata: {name: data}\n"


def the_job() -> dict[str, Any]:
    return parted(read(JOB, "job.yaml"), "job.yaml")[0]


def refused(text: str) -> str:
    with pytest.raises(CannotBeUsed) as told:
        parted(read(text, "job.yaml"), "job.yaml")
    return str(told.value)


def test_a_job_and_what_stands_beside_it_are_told_apart() -> None:
    job, beside = parted(read(f"{CLAIM}---{JOB}", "job.yaml"), "job.yaml")
    assert (job["metadata"]["name"], [each["kind"] for each in beside]) == ("mnist", ["PersistentVolumeClaim"])


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ("", "job.yaml is empty: write a PaddleJob, such as deploy/examples/wide_and_deep.yaml"),
        ("a: [1", "job.yaml line 1, column 6 is no YAML: expected ',' or ']', but got '<stream end>'"),
        ("a: 1\nb: 2\na: 3\n", 'job.yaml line 3, column 1 is no YAML: the key "a" stands twice'),
        ("a: b: c", "job.yaml line 1, column 5 is no YAML: mapping values are not allowed here"),
        ("- 1\n", "job.yaml is a list, but must be an object with apiVersion and kind"),
        ("kind: PaddleJob\n", "job.yaml: apiVersion is not set, but is needed: add it"),
        (JOB.replace("{name: mnist}", "{}"), "job.yaml: metadata.name is not set, but is needed: add it"),
    ],
)
def test_what_is_no_job_is_refused_with_its_place(text: str, sentence: str) -> None:
    assert refused(text) == sentence


def test_a_yaml_without_a_job_says_what_it_has_instead() -> None:
    assert refused(CLAIM).startswith("job.yaml has 0 PaddleJobs (v1 PersistentVolumeClaim), but exactly one can be run")


def test_a_setting_changes_one_field_and_leaves_the_file_as_it_is() -> None:
    job = the_job()
    changed = with_settings(job, ["worker.replicas=4", "withGloo=1", "metadata.name=other"])
    assert (changed["spec"]["worker"]["replicas"], changed["spec"]["withGloo"]) == (4, 1)
    assert changed["metadata"]["name"] == "other"
    assert job == the_job()


def test_a_setting_reaches_into_lists_by_number() -> None:
    changed = with_settings(the_job(), ["worker.template.spec.containers.0.image=mine:v2"])
    assert images_of(changed) == ["mine:v2"]


@pytest.mark.parametrize(
    ("setting", "sentence"),
    [
        ("worker.replicas", "--set worker.replicas is not of the form FIELD=VALUE, such as worker.replicas=4"),
        (
            "worker.template.spec.containers.7.image=x",
            "--set worker.template.spec.containers.7.image=x: 7 names nothing in a list of 1",
        ),
        ("worker.replicas.more=1", "--set worker.replicas.more=1: there is no field below worker.replicas, which is 2"),
    ],
)
def test_a_setting_that_leads_nowhere_is_refused(setting: str, sentence: str) -> None:
    with pytest.raises(CannotBeUsed) as told:
        with_settings(the_job(), [setting])
    assert str(told.value) == sentence


def test_devices_are_counted_over_all_pods() -> None:
    assert devices_of(the_job()) == {"nvidia.com/gpu": 2}


def test_on_the_cpu_devices_and_the_wish_for_nodes_are_left_out_and_the_rest_stays() -> None:
    job, left_out = on_cpu(the_job())
    pod = job["spec"]["worker"]["template"]["spec"]
    assert left_out == ["2 nvidia.com/gpu", "nodeSelector"]
    assert pod == {"containers": [{"name": "paddle", "image": "demo:v1", "resources": {"limits": {"cpu": 2}}}]}


def test_what_is_no_job_inside_is_left_to_the_api_server() -> None:
    job = {**the_job(), "spec": {"worker": {"replicas": "many", "template": 7}}}
    assert (devices_of(job), images_of(job), on_cpu(job)) == ({}, [], (job, []))
