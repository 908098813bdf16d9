"""Pods from a role's template. User fields stay as written; ours fill the gaps."""

from typing import Any

from paddle_operator.api.paddlejob import Intranet, Role, RoleSpec
from paddle_operator.kube.objects import Manifest
from paddle_operator.plan.barrier import HOSTS_KEY
from paddle_operator.plan.endpoints import ports_of
from paddle_operator.plan.job_view import Job
from paddle_operator.plan.metadata import (
    ATTEMPT_ANNOTATION,
    JOB_UID_LABEL,
    POD_NAME_LABEL,
    ROLE_ANNOTATION,
    ROLE_LABEL,
    owner_reference,
    pod_name,
)
from paddle_operator.plan.pod_template import main_container_index, requests_device, restart_policy
from paddle_operator.plan.rendezvous_env import pod_variables
from paddle_operator.plan.scheduling_policy import VOLCANO, gang_annotations

HOSTS_VOLUME = "paddle-hosts"


class PodBuilder:
    """Builds the pods of one role. Their common fields are built once; 5,000 pods differ in name and index."""

    def __init__(self, job: Job, role: Role, part: RoleSpec, *, etcd: str = "", gang: bool = False) -> None:
        self._job = job
        self._role = role
        self._etcd = etcd
        self._gang = gang
        self._metadata: dict[str, Any] = part.template.get("metadata") or {}
        self._spec = self._complete(part.template["spec"])
        self._main = main_container_index(self._spec)
        main = self._spec["containers"][self._main]
        self._accelerated = requests_device(main)
        self._env: list[dict[str, Any]] = main.get("env") or []
        self._user_names = {each["name"] for each in self._env}

    def build(self, index: int) -> Manifest:
        job, role, name = self._job, self._role, pod_name(self._job.key, self._role, index)
        labels = {POD_NAME_LABEL: name, ROLE_LABEL: str(role), JOB_UID_LABEL: job.uid}
        annotations = {ROLE_ANNOTATION: str(role), ATTEMPT_ANNOTATION: str(job.status.attempt)}
        if self._gang:
            annotations |= gang_annotations(job, role)
        metadata: dict[str, Any] = {
            "name": name,
            "namespace": job.key.namespace,
            "labels": {**(self._metadata.get("labels") or {}), **labels},
            "annotations": {**(self._metadata.get("annotations") or {}), **annotations},
            "ownerReferences": [owner_reference(job)],
        }
        if finalizers := self._metadata.get("finalizers"):
            metadata["finalizers"] = finalizers
        spec = {**self._spec, "containers": self._containers(index)}
        return {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": spec}

    def _containers(self, index: int) -> list[dict[str, Any]]:
        containers: list[dict[str, Any]] = list(self._spec["containers"])
        variables = pod_variables(self._job, self._role, index, requests_device=self._accelerated, etcd=self._etcd)
        # Our POD_IP comes first, since PADDLE_CURRENT_ENDPOINT refers to it.
        env = [*self._env, *(each for each in variables if each["name"] not in self._user_names)]
        containers[self._main] = {**containers[self._main], "env": env}
        return containers

    def _complete(self, spec: dict[str, Any]) -> dict[str, Any]:
        """The template's spec with the fields that every pod of the role needs."""
        job_spec = self._job.spec
        assert job_spec
        main = main_container_index(spec)
        container = dict(spec["containers"][main])
        completed = {"restartPolicy": "Never", "enableServiceLinks": False} | spec
        completed["restartPolicy"] = restart_policy(job_spec, self._role)
        if self._gang:
            completed["schedulerName"] = VOLCANO
        if not job_spec.is_elastic:
            barrier = {"configMapRef": {"name": self._job.key.name}}
            # First, so that the user's envFrom overrides it.
            container["envFrom"] = [barrier, *(container.get("envFrom") or ())]
        if job_spec.intranet is Intranet.SERVICE:
            container["ports"] = _with_port(container, {"containerPort": ports_of(self._job).of(self._role)})
        if job_spec.intranet is Intranet.HOST:
            completed = {"dnsPolicy": "ClusterFirstWithHostNet", **completed, "hostNetwork": True}
            self._declare_ports(container)
            if not job_spec.is_elastic:  # elastic jobs have no barrier to read it from
                self._mount_hosts(completed, container)
        containers = [*spec["containers"]]
        containers[main] = container
        return {**completed, "containers": containers}

    def _declare_ports(self, container: dict[str, Any]) -> None:
        """Host ports keep the scheduler from placing two pods with the same ports on one node."""
        ports = ports_of(self._job)
        for port in [ports.of(self._role)] + ([ports.gloo] if self._role is Role.PS else []):
            container["ports"] = _with_port(container, {"containerPort": port, "hostPort": port})

    def _mount_hosts(self, spec: dict[str, Any], container: dict[str, Any]) -> None:
        mounts = container.get("volumeMounts") or []
        if any(each["mountPath"] == "/etc/hosts" for each in mounts):
            return
        mount = {"name": HOSTS_VOLUME, "mountPath": "/etc/hosts", "subPath": HOSTS_KEY, "readOnly": True}
        container["volumeMounts"] = [*mounts, mount]
        source = {"name": self._job.key.name, "items": [{"key": HOSTS_KEY, "path": HOSTS_KEY}]}
        spec["volumes"] = [*(spec.get("volumes") or ()), {"name": HOSTS_VOLUME, "configMap": source}]


def _with_port(container: dict[str, Any], port: dict[str, Any]) -> list[dict[str, Any]]:
    ports = list(container.get("ports") or ())
    if any(each.get("containerPort") == port["containerPort"] for each in ports):
        return ports
    return [*ports, {**port, "protocol": "TCP"}]
