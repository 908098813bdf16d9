"""A role's template becomes pods. What the user wrote stays as written; ours is added where nothing stands."""

import base64
from typing import Any

from paddle_operator.api.paddlejob import Intranet, Role, RoleSpec
from paddle_operator.kube.objects import Manifest
from paddle_operator.plan.contract import RENDEZVOUS, Contract, own_variables
from paddle_operator.plan.names import (
    ATTEMPT,
    CONTRACT,
    JOB_UID_LABEL,
    POD_NAME_LABEL,
    REPLICAS,
    ROLE_ANNOTATION,
    ROLE_LABEL,
    pod_name,
)
from paddle_operator.plan.network import owner_of, ports_of
from paddle_operator.plan.world import MAIN_CONTAINER, Job

HOSTS_KEY = "hosts"
HOSTS_VOLUME = "paddle-hosts"


class PodMaker:
    """The pods of one role. All that they share is made once; 5,000 pods differ in a name and an index."""

    def __init__(self, job: Job, role: Role, wanted: RoleSpec, *, etcd: str = "") -> None:
        self._job = job
        self._role = role
        self._etcd = etcd
        template = wanted.template
        self._metadata: dict[str, Any] = template.get("metadata") or {}
        self._spec: dict[str, Any] = self._completed(template.get("spec") or {})
        self._main = main_container(self._spec)
        self._accelerated = accelerated(self._spec["containers"][self._main])

    def pod(self, index: int) -> Manifest:
        job, role, name = self._job, self._role, pod_name(self._job.key, self._role, index)
        labels = {POD_NAME_LABEL: name, ROLE_LABEL: str(role), JOB_UID_LABEL: job.uid}
        annotations = {ROLE_ANNOTATION: str(role), ATTEMPT: str(job.status.attempt)}
        return {
            "apiVersion": "v1",
            "kind": "Pod",
            "metadata": {
                "name": name,
                "namespace": job.key.namespace,
                "labels": {**(self._metadata.get("labels") or {}), **labels},
                "annotations": {**(self._metadata.get("annotations") or {}), **annotations},
                "ownerReferences": [owner_of(job)],
            },
            "spec": {**self._spec, "containers": self._containers(index)},
        }

    def _containers(self, index: int) -> list[dict[str, Any]]:
        containers = list(self._spec["containers"])
        main = containers[self._main]
        written = {each["name"] for each in main.get("env") or ()}
        ours = own_variables(self._job, self._role, index, accelerated=self._accelerated, etcd=self._etcd)
        # POD_IP stands first where it is ours, since PADDLE_CURRENT_ENDPOINT refers to it.
        env = [*(each for each in ours if each["name"] not in written)]
        containers[self._main] = {**main, "env": [*(main.get("env") or ()), *env]}
        return containers

    def _completed(self, spec: dict[str, Any]) -> dict[str, Any]:
        """The template's spec with what every pod of the role needs."""
        job_spec = self._job.spec
        assert job_spec
        main = main_container(spec)
        container = dict(spec["containers"][main])
        completed = {"restartPolicy": "Never", "enableServiceLinks": False} | spec
        if job_spec.is_elastic:
            completed["restartPolicy"] = "OnFailure"  # ranks leave and come back, and kubelet brings them back
        else:
            barrier = {"configMapRef": {"name": self._job.key.name}}
            container["envFrom"] = [barrier, *(container.get("envFrom") or ())]  # first, so that the user's own wins
        if job_spec.intranet is Intranet.SERVICE:
            container["ports"] = _with_port(container, {"containerPort": ports_of(self._job).of(self._role)})
        if job_spec.intranet is Intranet.HOST:
            completed, container = self._on_host_network(completed, container)
        containers = [*spec["containers"]]
        containers[main] = container
        return {**completed, "containers": containers}

    def _on_host_network(
        self, spec: dict[str, Any], container: dict[str, Any]
    ) -> tuple[dict[str, Any], dict[str, Any]]:
        ports = ports_of(self._job)
        taken = [ports.of(self._role)] + ([ports.gloo] if self._role is Role.PS else [])
        for port in taken:  # declared, so that the scheduler keeps two pods apart that would clash
            container["ports"] = _with_port(container, {"containerPort": port, "hostPort": port})
        mounts = container.get("volumeMounts") or []
        if not any(each["mountPath"] == "/etc/hosts" for each in mounts):
            mount = {"name": HOSTS_VOLUME, "mountPath": "/etc/hosts", "subPath": HOSTS_KEY, "readOnly": True}
            container["volumeMounts"] = [*mounts, mount]
            source = {"name": self._job.key.name, "items": [{"key": HOSTS_KEY, "path": HOSTS_KEY}]}
            spec = {**spec, "volumes": [*(spec.get("volumes") or ()), {"name": HOSTS_VOLUME, "configMap": source}]}
        return {"dnsPolicy": "ClusterFirstWithHostNet", **spec, "hostNetwork": True}, container


def _with_port(container: dict[str, Any], port: dict[str, Any]) -> list[dict[str, Any]]:
    ports = list(container.get("ports") or ())
    if any(each.get("containerPort") == port["containerPort"] for each in ports):
        return ports
    return [*ports, {**port, "protocol": "TCP"}]


def main_container(spec: Manifest) -> int:
    """The place of the container that trains: the one named `paddle`, else the first."""
    names = [each.get("name") for each in spec["containers"]]
    return names.index(MAIN_CONTAINER) if MAIN_CONTAINER in names else 0


def accelerated(container: Manifest) -> bool:
    """Whether it asks for a device: every resource with a vendor in its name is one, as nvidia.com/gpu."""
    resources = container.get("resources") or {}
    asked = {*(resources.get("limits") or ()), *(resources.get("requests") or ())}
    return any("/" in name and not name.startswith("kubernetes.io/") for name in asked)


def overridden(wanted: RoleSpec) -> list[str]:
    """Variables of the rendezvous that the user has set, sorted."""
    spec = wanted.template.get("spec") or {}
    if not spec.get("containers"):
        return []
    env = spec["containers"][main_container(spec)].get("env") or ()
    return sorted({each["name"] for each in env} & RENDEZVOUS)


def config_map(job: Job, contract: Contract) -> Manifest:
    """The barrier: no container of the job starts before it exists."""
    manifest: dict[str, Any] = {
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": {
            "name": job.key.name,
            "namespace": job.key.namespace,
            "labels": {POD_NAME_LABEL: job.key.name},
            "annotations": {
                ATTEMPT: str(job.status.attempt),
                REPLICAS: replicas_text(job),
                CONTRACT: contract.digest,
            },
            "ownerReferences": [owner_of(job)],
        },
        "data": dict(contract.variables),
    }
    if contract.hosts:  # as binary data, which envFrom does not make a variable of
        manifest["binaryData"] = {HOSTS_KEY: _base64(contract.hosts)}
    return manifest


def _base64(text: str) -> str:
    return base64.b64encode(text.encode()).decode()


def replicas_text(job: Job) -> str:
    """`ps=2,worker=4`: for how many pods a barrier was written."""
    assert job.spec
    return ",".join(f"{role}={wanted.replicas}" for role, wanted in job.spec.roles.items())
