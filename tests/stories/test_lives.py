"""Whole lives of jobs, as the documents promise them: applied with kubectl, on a real control plane."""

from testbed.hollow_script import exits
from tests.stories.stage import Stage, environment

WIDE_AND_DEEP = """
apiVersion: batch.paddlepaddle.org/v1
kind: PaddleJob
metadata:
  name: wide-ande-deep
spec:
  withGloo: 1
  intranet: PodIP
  cleanPodPolicy: OnCompletion
  worker:
    replicas: 2
    template:
      spec:
        containers:
          - name: paddle
            image: registry.baidubce.com/paddle-operator/demo-wide-and-deep:v1
  ps:
    replicas: 2
    template:
      spec:
        containers:
          - name: paddle
            image: registry.baidubce.com/paddle-operator/demo-wide-and-deep:v1
"""


async def test_a_parameter_server_job_runs_and_is_completed_when_its_workers_are(stage: Stage) -> None:
    await stage.apply(WIDE_AND_DEEP)
    job = await stage.phase("wide-ande-deep", "Running")
    assert job.status["ready"] == "4/4"
    pods, barrier = await stage.pods(), await stage.barrier("wide-ande-deep")
    assert barrier
    worker = environment(pods["wide-ande-deep-worker-1"], barrier)
    addresses = [pods[f"wide-ande-deep-ps-{index}"].status["podIP"] for index in range(2)]
    assert worker["PADDLE_PSERVERS_IP_PORT_LIST"] == f"{addresses[0]}:2379,{addresses[1]}:2379"
    assert worker["PADDLE_GLOO_HTTP_ENDPOINT"] == f"{addresses[0]}:2397"
    assert worker["PADDLE_TRAINER_ID"] == "1"
    for index in range(2):
        await stage.nodes.exits(f"wide-ande-deep-worker-{index}", 0)
    job = await stage.phase("wide-ande-deep", "Completed")
    assert job.status["ps"]["succeeded"] == 2
    await stage.until_pods(lambda left: not left)


async def test_a_collective_job_fails_with_its_cause_and_what_runs_is_stopped_but_kept(stage: Stage) -> None:
    await stage.apply(WIDE_AND_DEEP.replace("OnCompletion", "Never").split("  ps:")[0])
    await stage.phase("wide-ande-deep", "Running")
    stage.nodes.script("wide-ande-deep-worker-1", exits(139))
    job = await stage.phase("wide-ande-deep", "Failed")
    failed = next(each for each in job.status["conditions"] if each["type"] == "Failed")
    assert failed["message"] == "wide-ande-deep-worker-1 exited 139: it crashed with a segmentation fault"
    pods = await stage.until_pods(lambda pods: all(pod.status["phase"] == "Failed" for pod in pods.values()))
    assert pods["wide-ande-deep-worker-0"].status["reason"] == "DeadlineExceeded"
