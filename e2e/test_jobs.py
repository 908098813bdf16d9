"""Each mode, each clean policy, a failure, a retry, a suspension, a deletion: on real kubelets, in a few minutes."""

import pytest

from e2e.cluster import MANAGER, Cluster, KubectlError, a_job, operator
from e2e.conftest import AS_PROCESS, CONTROLLER_IMAGE

SERVES = "trap 'exit 143' TERM; while :; do sleep 1; done"
CHECKS = 'test -n "$PADDLE_TRAINER_ENDPOINTS" && test -n "$PADDLE_TRAINER_ID" && sleep 2'


@pytest.mark.parametrize("intranet", ["PodIP", "Service", "Host"])
def test_ps_job_completes_with_its_workers_on_any_cluster(installed: Cluster, image: str, intranet: str) -> None:
    name = f"ps-{intranet.lower()}"
    servers = 'test -n "$PADDLE_PSERVERS_IP_PORT_LIST" || exit 9; ' + SERVES
    # On the host's network each pod of a role needs a node of its own: there may be one node only.
    count = min(2, max(1, installed.nodes_with_room())) if intranet == "Host" else 2
    installed.apply(a_job(name, image, {"ps": (count, servers), "worker": (count, CHECKS)}, intranet=intranet))
    installed.phase(name, "Completed")
    installed.says("delete", "pdj", name)


def test_workers_find_each_other_by_their_names(installed: Cluster, image: str) -> None:
    """With intranet Service every name resolves when a container starts."""
    # Through libc, as programs resolve: busybox' nslookup leaves out the search domains where a name has a dot.
    resolves = 'ping -c 1 -W 1 "$each" 2>&1 | grep -q "bad address" && exit 9'
    names = 'test -n "$PADDLE_TRAINERS" || exit 8; for each in $(echo "$PADDLE_TRAINERS" | tr , " ")'
    asks = f"{names}; do {resolves}; done; sleep 1"
    installed.apply(a_job("names", image, {"worker": (3, asks)}, intranet="Service"))
    installed.phase("names", "Completed")


def test_a_single_worker_trains_alone(installed: Cluster, image: str) -> None:
    installed.apply(a_job("single", image, {"worker": (1, CHECKS)}))
    installed.phase("single", "Completed")


@pytest.mark.parametrize(("policy", "left"), [("Always", 0), ("Never", 2), ("OnCompletion", 2), ("OnFailure", 0)])
def test_what_is_left_of_a_failed_job_is_what_its_policy_says(
    installed: Cluster, image: str, policy: str, left: int
) -> None:
    name = f"clean-{policy.lower()}"
    fails = 'if [ "$PADDLE_TRAINER_ID" = 1 ]; then exit 7; fi; sleep 300'
    installed.apply(a_job(name, image, {"worker": (2, fails)}, cleanPodPolicy=policy))
    installed.phase(name, "Failed")
    assert f"{name}-worker-1 exited 7" in installed.says("describe", "pdj", name)
    if left:
        installed.wait(f"pod/{name}-worker-0", "jsonpath={.status.phase}=Failed")
        assert len(installed.pods_of(name)) == left
    else:
        for index in range(2):
            installed.wait(f"pod/{name}-worker-{index}", "delete")
    installed.says("delete", "pdj", name)


@pytest.mark.parametrize(("policy", "left"), [("Always", 0), ("Never", 1), ("OnCompletion", 0), ("OnFailure", 1)])
def test_what_is_left_of_a_completed_job_is_what_its_policy_says(
    installed: Cluster, image: str, policy: str, left: int
) -> None:
    name = f"done-{policy.lower()}"
    installed.apply(a_job(name, image, {"worker": (1, "true")}, cleanPodPolicy=policy))
    installed.phase(name, "Completed")
    if not left:
        installed.wait(f"pod/{name}-worker-0", "delete")
    assert len(installed.pods_of(name)) == left
    installed.says("delete", "pdj", name)


def test_a_failure_is_tried_again_and_then_told(installed: Cluster, image: str) -> None:
    installed.apply(a_job("retried", image, {"worker": (1, "exit 7")}, backoffLimit=1))
    installed.phase("retried", "Failed")
    assert installed.says("get", "pdj", "retried", "--output=jsonpath={.status.restarts}") == "1"


def test_a_job_is_suspended_and_resumed(installed: Cluster, image: str) -> None:
    installed.apply(a_job("rests", image, {"worker": (2, "sleep 5")}, suspend=True))
    installed.phase("rests", "Suspended")
    assert installed.pods_of("rests") == {}
    installed.says("patch", "pdj", "rests", "--type=merge", '--patch={"spec":{"suspend":false}}')
    installed.phase("rests", "Completed")


def test_a_deleted_job_takes_its_pods_along(installed: Cluster, image: str) -> None:
    installed.apply(a_job("deleted", image, {"worker": (2, SERVES)}))
    installed.phase("deleted", "Running")
    installed.says("delete", "pdj", "deleted")
    for index in range(2):
        installed.wait(f"pod/deleted-worker-{index}", "delete")


@pytest.mark.skipif(
    AS_PROCESS, reason="the operator is a process beside the cluster: there is no Deployment to upgrade"
)
def test_a_running_job_goes_on_while_the_operator_is_upgraded(installed: Cluster, image: str) -> None:
    installed.apply(a_job("upgraded", image, {"worker": (2, SERVES)}))
    installed.phase("upgraded", "Running")
    before = {name: pod["metadata"]["uid"] for name, pod in installed.pods_of("upgraded").items()}
    installed.apply(*operator(installed.namespace, CONTROLLER_IMAGE, "--log-level=debug"))
    installed.says("rollout", "status", f"deployment/{MANAGER}", f"--timeout={installed.patience_seconds}s")
    assert {name: pod["metadata"]["uid"] for name, pod in installed.pods_of("upgraded").items()} == before
    installed.says("patch", "pdj", "upgraded", "--type=merge", '--patch={"spec":{"suspend":true}}')
    installed.phase("upgraded", "Suspended")  # the new one looks after it


def test_a_typo_in_a_template_is_refused_with_its_path(installed: Cluster, image: str) -> None:
    job = a_job("typo", image, {"worker": (1, "true")})
    job["spec"]["worker"]["template"]["spec"]["containers"][0]["imagee"] = "x"
    with pytest.raises(KubectlError, match="imagee"):
        installed.apply(job)


def test_uninstalled_it_leaves_jobs_that_nothing_holds(installed: Cluster, image: str) -> None:
    """The last one: after it nobody looks after jobs."""
    installed.apply(a_job("left", image, {"worker": (2, SERVES)}))
    installed.phase("left", "Running")
    installed.remove(*operator(installed.namespace, CONTROLLER_IMAGE))
    assert len(installed.pods_of("left")) == 2
    installed.says("delete", "pdj", "left", f"--timeout={installed.patience_seconds}s")
    for index in range(2):
        installed.wait(f"pod/left-worker-{index}", "delete")
