"""Modes, clean-up policies, failure, retry, suspension, deletion, upgrade and uninstall on real kubelets."""

import pytest

from e2e.cluster import MANAGER, Cluster, KubectlError, make_job, operator_manifests
from e2e.conftest import CONTROLLER_IMAGE, RUN_AS_PROCESS

SERVE_UNTIL_SIGTERM = "trap 'exit 143' TERM; while :; do sleep 1; done"
CHECK_WORKER_ENV = 'test -n "$PADDLE_TRAINER_ENDPOINTS" && test -n "$PADDLE_TRAINER_ID" && sleep 2'


@pytest.mark.parametrize("intranet", ["PodIP", "Service", "Host"])
def test_ps_job_completes_when_its_workers_succeed(operator_cluster: Cluster, image: str, intranet: str) -> None:
    name = f"ps-{intranet.lower()}"
    servers = 'test -n "$PADDLE_PSERVERS_IP_PORT_LIST" || exit 9; ' + SERVE_UNTIL_SIGTERM
    # On the host network each pod of a role needs its own node, and the cluster may have only one.
    count = min(2, max(1, operator_cluster.count_schedulable_nodes())) if intranet == "Host" else 2
    operator_cluster.apply(
        make_job(name, image, {"ps": (count, servers), "worker": (count, CHECK_WORKER_ENV)}, intranet=intranet)
    )
    operator_cluster.wait_phase(name, "Completed")
    operator_cluster.kubectl("delete", "pdj", name)


def test_service_names_resolve_at_container_start(operator_cluster: Cluster, image: str) -> None:
    # ping resolves through libc as programs do; busybox' nslookup ignores search domains for names with a dot.
    resolves = 'ping -c 1 -W 1 "$each" 2>&1 | grep -q "bad address" && exit 9'
    loop = 'test -n "$PADDLE_TRAINERS" || exit 8; for each in $(echo "$PADDLE_TRAINERS" | tr , " ")'
    command = f"{loop}; do {resolves}; done; sleep 1"
    operator_cluster.apply(make_job("names", image, {"worker": (3, command)}, intranet="Service"))
    operator_cluster.wait_phase("names", "Completed")


def test_single_worker_completes(operator_cluster: Cluster, image: str) -> None:
    operator_cluster.apply(make_job("single", image, {"worker": (1, CHECK_WORKER_ENV)}))
    operator_cluster.wait_phase("single", "Completed")


@pytest.mark.parametrize(
    ("policy", "remaining_pods"), [("Always", 0), ("Never", 2), ("OnCompletion", 2), ("OnFailure", 0)]
)
def test_clean_pod_policy_of_a_failed_job(
    operator_cluster: Cluster, image: str, policy: str, remaining_pods: int
) -> None:
    name = f"clean-{policy.lower()}"
    command = 'if [ "$PADDLE_TRAINER_ID" = 1 ]; then exit 7; fi; sleep 300'
    operator_cluster.apply(make_job(name, image, {"worker": (2, command)}, cleanPodPolicy=policy))
    operator_cluster.wait_phase(name, "Failed")
    assert f"{name}-worker-1 exited 7" in operator_cluster.kubectl("describe", "pdj", name)
    if remaining_pods:
        operator_cluster.wait(f"pod/{name}-worker-0", "jsonpath={.status.phase}=Failed")
        assert len(operator_cluster.pods_of(name)) == remaining_pods
    else:
        for index in range(2):
            operator_cluster.wait(f"pod/{name}-worker-{index}", "delete")
    operator_cluster.kubectl("delete", "pdj", name)


@pytest.mark.parametrize(
    ("policy", "remaining_pods"), [("Always", 0), ("Never", 1), ("OnCompletion", 0), ("OnFailure", 1)]
)
def test_clean_pod_policy_of_a_completed_job(
    operator_cluster: Cluster, image: str, policy: str, remaining_pods: int
) -> None:
    name = f"done-{policy.lower()}"
    operator_cluster.apply(make_job(name, image, {"worker": (1, "true")}, cleanPodPolicy=policy))
    operator_cluster.wait_phase(name, "Completed")
    if not remaining_pods:
        operator_cluster.wait(f"pod/{name}-worker-0", "delete")
    assert len(operator_cluster.pods_of(name)) == remaining_pods
    operator_cluster.kubectl("delete", "pdj", name)


def test_failure_is_retried_up_to_the_backoff_limit(operator_cluster: Cluster, image: str) -> None:
    operator_cluster.apply(make_job("retried", image, {"worker": (1, "exit 7")}, backoffLimit=1))
    operator_cluster.wait_phase("retried", "Failed")
    assert operator_cluster.kubectl("get", "pdj", "retried", "--output=jsonpath={.status.restarts}") == "1"


def test_suspend_and_resume(operator_cluster: Cluster, image: str) -> None:
    operator_cluster.apply(make_job("suspended", image, {"worker": (2, "sleep 5")}, suspend=True))
    operator_cluster.wait_phase("suspended", "Suspended")
    assert operator_cluster.pods_of("suspended") == {}
    operator_cluster.kubectl("patch", "pdj", "suspended", "--type=merge", '--patch={"spec":{"suspend":false}}')
    operator_cluster.wait_phase("suspended", "Completed")


def test_deleting_a_job_deletes_its_pods(operator_cluster: Cluster, image: str) -> None:
    operator_cluster.apply(make_job("deleted", image, {"worker": (2, SERVE_UNTIL_SIGTERM)}))
    operator_cluster.wait_phase("deleted", "Running")
    operator_cluster.kubectl("delete", "pdj", "deleted")
    for index in range(2):
        operator_cluster.wait(f"pod/deleted-worker-{index}", "delete")


@pytest.mark.skipif(RUN_AS_PROCESS, reason="the operator runs as a process: there is no Deployment to upgrade")
def test_running_job_survives_an_operator_upgrade(operator_cluster: Cluster, image: str) -> None:
    operator_cluster.apply(make_job("upgraded", image, {"worker": (2, SERVE_UNTIL_SIGTERM)}))
    operator_cluster.wait_phase("upgraded", "Running")
    before = {name: pod["metadata"]["uid"] for name, pod in operator_cluster.pods_of("upgraded").items()}
    operator_cluster.apply(*operator_manifests(operator_cluster.namespace, CONTROLLER_IMAGE, "--log-level=debug"))
    operator_cluster.kubectl(
        "rollout", "status", f"deployment/{MANAGER}", f"--timeout={operator_cluster.timeout_seconds}s"
    )
    assert {name: pod["metadata"]["uid"] for name, pod in operator_cluster.pods_of("upgraded").items()} == before
    operator_cluster.kubectl("patch", "pdj", "upgraded", "--type=merge", '--patch={"spec":{"suspend":true}}')
    operator_cluster.wait_phase("upgraded", "Suspended")  # by the upgraded operator


def test_typo_in_a_template_is_refused_with_its_path(operator_cluster: Cluster, image: str) -> None:
    job = make_job("typo", image, {"worker": (1, "true")})
    job["spec"]["worker"]["template"]["spec"]["containers"][0]["imagee"] = "x"
    with pytest.raises(KubectlError, match="imagee"):
        operator_cluster.apply(job)


def test_jobs_can_be_deleted_after_uninstall(operator_cluster: Cluster, image: str) -> None:
    """The last test: it removes the operator."""
    operator_cluster.apply(make_job("orphaned", image, {"worker": (2, SERVE_UNTIL_SIGTERM)}))
    operator_cluster.wait_phase("orphaned", "Running")
    operator_cluster.delete(*operator_manifests(operator_cluster.namespace, CONTROLLER_IMAGE))
    assert len(operator_cluster.pods_of("orphaned")) == 2
    operator_cluster.kubectl("delete", "pdj", "orphaned", f"--timeout={operator_cluster.timeout_seconds}s")
    for index in range(2):
        operator_cluster.wait(f"pod/orphaned-worker-{index}", "delete")
