"""YAML files, and the changes of the command line."""

from typing import Any

import pytest

from paddle_operator.client.manifests import (
    UsageError,
    apply_settings,
    devices_of,
    images_of,
    read_documents,
    split_job,
    without_devices,
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


def make_job() -> dict[str, Any]:
    return split_job(read_documents(JOB, "job.yaml"), "job.yaml")[0]


def error_message(text: str) -> str:
    with pytest.raises(UsageError) as error:
        split_job(read_documents(text, "job.yaml"), "job.yaml")
    return str(error.value)


def test_job_and_other_documents_are_split() -> None:
    job, others = split_job(read_documents(f"{CLAIM}---{JOB}", "job.yaml"), "job.yaml")
    assert (job["metadata"]["name"], [each["kind"] for each in others]) == ("mnist", ["PersistentVolumeClaim"])


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "job.yaml is empty: write a PaddleJob, such as deploy/examples/wide_and_deep.yaml"),
        ("a: [1", "job.yaml line 1, column 6 is not valid YAML: expected ',' or ']', but got '<stream end>'"),
        ("a: 1\nb: 2\na: 3\n", 'job.yaml line 3, column 1 is not valid YAML: duplicate key "a"'),
        ("a: b: c", "job.yaml line 1, column 5 is not valid YAML: mapping values are not allowed here"),
        ("- 1\n", "job.yaml is a list, but must be an object with apiVersion and kind"),
        ("kind: PaddleJob\n", "job.yaml: apiVersion is not set, but is needed: add it"),
        (JOB.replace("{name: mnist}", "{}"), "job.yaml: metadata.name is not set, but is needed: add it"),
    ],
)
def test_invalid_document_is_refused_with_its_place(text: str, message: str) -> None:
    assert error_message(text) == message


def test_file_without_a_job_lists_its_kinds() -> None:
    assert error_message(CLAIM).startswith(
        "job.yaml has 0 PaddleJobs (v1 PersistentVolumeClaim), but paddlejob run needs exactly one"
    )


def test_setting_changes_one_field_of_a_copy() -> None:
    job = make_job()
    changed = apply_settings(job, ["worker.replicas=4", "withGloo=1", "metadata.name=other"])
    assert (changed["spec"]["worker"]["replicas"], changed["spec"]["withGloo"]) == (4, 1)
    assert changed["metadata"]["name"] == "other"
    assert job == make_job()


def test_setting_indexes_lists() -> None:
    changed = apply_settings(make_job(), ["worker.template.spec.containers.0.image=mine:v2"])
    assert images_of(changed) == ["mine:v2"]


@pytest.mark.parametrize(
    ("setting", "message"),
    [
        ("worker.replicas", "--set worker.replicas is not of the form FIELD=VALUE, such as worker.replicas=4"),
        (
            "worker.template.spec.containers.7.image=x",
            "--set worker.template.spec.containers.7.image=x: 7 does not exist in a list of 1",
        ),
        ("worker.replicas.more=1", "--set worker.replicas.more=1: worker.replicas is 2 and has no fields"),
    ],
)
def test_setting_of_a_missing_field_is_refused(setting: str, message: str) -> None:
    with pytest.raises(UsageError) as error:
        apply_settings(make_job(), [setting])
    assert str(error.value) == message


def test_devices_are_summed_over_all_pods() -> None:
    assert devices_of(make_job()) == {"nvidia.com/gpu": 2}


def test_without_devices_removes_devices_and_node_selectors() -> None:
    job, removed = without_devices(make_job())
    pod = job["spec"]["worker"]["template"]["spec"]
    assert removed == ["2 nvidia.com/gpu", "nodeSelector"]
    assert pod == {"containers": [{"name": "paddle", "image": "demo:v1", "resources": {"limits": {"cpu": 2}}}]}


def test_invalid_spec_is_left_to_the_api_server() -> None:
    job = {**make_job(), "spec": {"worker": {"replicas": "many", "template": 7}}}
    assert (devices_of(job), images_of(job), without_devices(job)) == ({}, [], (job, []))
