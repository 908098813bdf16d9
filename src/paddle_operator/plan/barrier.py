"""The barrier: a ConfigMap that every pod references. kubelet starts no container of the job before it exists.

It holds the rendezvous variables and is created once all endpoints are known. Without a nudge, kubelet notices it only
after its back-off of up to 13 s.
"""

import base64
from datetime import datetime
from functools import partial
from typing import Any

from paddle_operator.kube.objects import CONFIG_MAPS, PODS, Key, Manifest, Resource
from paddle_operator.kube.writes import Create, Patch, Write
from paddle_operator.plan.job_view import Job
from paddle_operator.plan.metadata import (
    ATTEMPT_ANNOTATION,
    ENDPOINTS_ANNOTATION,
    POD_NAME_LABEL,
    REPLICAS_ANNOTATION,
    owner_reference,
    replicas_text,
)
from paddle_operator.plan.observed import ObservedJob
from paddle_operator.plan.rendezvous_env import RendezvousEnv
from paddle_operator.plan.status import BARRIER_WAIT_REASON

HOSTS_KEY = "hosts"


def barrier_creates(observed: ObservedJob, env: RendezvousEnv, now: datetime) -> list[Write]:
    """The ConfigMap that releases all containers. Pods of the Go operator do not read ours."""
    if not all(pod.created_by_us for pod in observed.pods()) or barrier_is_refused(observed, now):
        return []
    return [Create(CONFIG_MAPS, observed.job.key, partial(barrier_manifest, observed.job, env))]


def barrier_is_refused(observed: ObservedJob, now: datetime) -> bool:
    return observed.job.key in observed.active_refusals(CONFIG_MAPS.plural, now)


def required_names(observed: ObservedJob, pods: list[list[Write]]) -> tuple[tuple[Resource[Any], Key], ...]:
    """The barrier's name must be free before a pod is created.

    Another owner's ConfigMap, perhaps of a deleted job of this name, would start the containers with wrong addresses.
    """
    return ((CONFIG_MAPS, observed.job.key),) if any(pods) and not observed.spec.is_elastic else ()


def barrier_manifest(job: Job, env: RendezvousEnv) -> Manifest:
    """The barrier ConfigMap: no container of the job starts before it exists."""
    assert job.spec
    manifest: dict[str, Any] = {
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": {
            "name": job.key.name,
            "namespace": job.key.namespace,
            "labels": {POD_NAME_LABEL: job.key.name},
            "annotations": {
                ATTEMPT_ANNOTATION: str(job.status.attempt),
                REPLICAS_ANNOTATION: replicas_text(job.spec),
                ENDPOINTS_ANNOTATION: env.digest,
            },
            "ownerReferences": [owner_reference(job)],
        },
        "data": dict(env.variables),
    }
    if env.hosts:  # as binary data, which envFrom ignores
        manifest["binaryData"] = {HOSTS_KEY: _base64(env.hosts)}
    return manifest


def kubelet_nudges(observed: ObservedJob, digest: str) -> list[Write]:
    """An annotation makes kubelet sync a pod that waits for the barrier: after 0.1 s instead of up to 13."""
    change = {"metadata": {"annotations": {ENDPOINTS_ANNOTATION: digest}}}
    return [
        Patch(PODS, pod.key, pod.uid, change)
        for pod in observed.pods()
        if pod.waiting == BARRIER_WAIT_REASON and pod.nudged_for != digest
    ]


def _base64(text: str) -> str:
    return base64.b64encode(text.encode()).decode()
