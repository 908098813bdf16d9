"""Jobs that the Go operator left: taken over without touching a pod, and run to their end."""

import pytest

from paddle_operator.kube.objects import CONFIG_MAPS, PODS, SERVICES
from paddle_operator.plan.children import Children
from paddle_operator.plan.job_view import Job
from paddle_operator.plan.paddlejob import plan
from tests.support.jobs import (
    GO_FINALIZER,
    T0,
    creates,
    deletes,
    make_go_barrier,
    make_job,
    make_pod,
    make_pods,
    make_services,
    not_running_reason,
    patches,
    with_pods,
    with_replicas,
    with_status,
    without_pods,
    writes_of,
)

# Take-over from the Go operator


def from_go(intranet: str = "PodIP", **told: object) -> tuple[Job, Children]:
    job = make_job(ps=1, workers=2, intranet=intranet, phase="Running", finalizers=(GO_FINALIZER,))
    pods = make_pods(job, created_by_us=False, **told)
    return job, Children(pods, (make_go_barrier(job),), make_services(job, created_by_us=False))


@pytest.mark.parametrize("intranet", ["PodIP", "Service", "Host"])
def test_running_go_job_is_taken_over_untouched(intranet: str) -> None:
    job, children = from_go(intranet)
    desired = plan(job, children, T0)
    assert desired.status.phase == "Running"
    assert patches(desired) == {"mnist": {"metadata": {"finalizers": [], "resourceVersion": "7"}}}
    assert len(writes_of(desired)) == 1
    assert desired.status.attempt == 0


def test_pods_of_the_go_operator_that_wait_are_not_woken_by_us() -> None:
    job, children = from_go(phase="Pending", address="10.0.0.1", waiting="CreateContainerConfigError")
    assert list(patches(plan(job, children, T0))) == ["mnist"]


def test_go_job_completes_though_its_servers_run() -> None:
    job, children = from_go()
    done = [make_pod(job, "worker", index, exit_code=0, created_by_us=False) for index in range(2)]
    desired = plan(job, with_pods(children, *done), T0)
    assert desired.status.phase == "Completed"
    assert sorted(deletes(desired, PODS)) == ["mnist-ps-0", "mnist-worker-0", "mnist-worker-1"]


def test_a_job_that_the_go_operator_left_half_made_is_made_anew() -> None:
    """Its pods wait for Services and a ConfigMap that nobody will make."""
    job, children = from_go(phase="Pending")
    half = Children(children.pods[:2], (), children.services[:2])
    desired = plan(job, half, T0)
    assert sorted(deletes(desired)) == ["mnist-ps-0", "mnist-worker-0"]
    assert creates(desired) == ["mnist-worker-1"]


def test_pods_of_the_go_operator_that_run_get_no_barrier_of_ours() -> None:
    job, children = from_go()
    assert creates(plan(job, Children(children.pods), T0)) == []


def test_deleted_pod_of_a_go_job_restarts_it() -> None:
    job, children = from_go(intranet="Service")
    desired = plan(job, without_pods(children, "mnist-worker-1"), T0)
    assert desired.status.attempt == 1
    again = plan(with_status(job, desired.status), children, T0)
    assert deletes(again, CONFIG_MAPS) == ["mnist"]
    assert len(deletes(again, PODS)) == 3
    assert deletes(again, SERVICES) == []  # they serve our pods as well
    fresh = plan(with_status(job, desired.status), Children(services=children.services), T0)
    assert len(creates(fresh, PODS)) == 3
    assert creates(fresh, SERVICES) == []


def test_changed_replicas_of_a_go_job_restart_it() -> None:
    """Its ConfigMap does not say for how many it was written."""
    job, children = from_go()
    fewer = plan(with_replicas(job, worker=1), children, T0)
    assert not_running_reason(fewer)[1].startswith("replicas changed to ps=1,worker=1; ")
    assert plan(with_replicas(job, worker=3), children, T0).status.attempt == fewer.status.attempt == 1
