"""What the Go operator leaves of a job: release v0.3.5 and the older line with SampleSets (go-operator.md, 2, 3 and A).

Laid down through the API, so that the operator under test finds it.
"""

from dataclasses import dataclass
from typing import Any

from paddle_operator.kube.objects import Key, Manifest
from testbed.hollow_script import NEVER, starts
from tests.stories.harness import (
    FULL_CONFIG_MAPS,
    FULL_JOBS,
    FULL_PODS,
    FULL_SERVICES,
    ClusterHarness,
    FullObject,
    of_job,
)
from tests.stories.jobs import IMAGE, Job

FINALIZER = "finalizers.paddlepaddle.org"
TRAINING_ROLE = {"ps": "PSERVER", "worker": "TRAINER", "heter": "HETER"}
RANDOM_PORT = 41234  # R of appendix A
HOST_PORT = 35020  # the first that the older line hands out


@dataclass(frozen=True)
class Version:
    name: str
    base_port: int
    coordinator: bool  # an init container that looks up names, and for that a Service for every pod in every mode
    host_ports: bool  # kept in an annotation of the job

    def __str__(self) -> str:
        return self.name


NEWEST = Version("v0.3.5", 36000, coordinator=True, host_ports=False)
SAMPLESET = Version("v0.4-alpha", 2379, coordinator=False, host_ports=True)


class GoJob:
    """A job of the Go operator: `apply` what a user wrote, then as much of what follows as is to be there."""

    def __init__(self, harness: ClusterHarness, version: Version, job: Job) -> None:
        self.harness = harness
        self.version = version
        self.name: str = job["metadata"]["name"]
        self.spec: dict[str, Any] = job["spec"]
        self.intranet = self.spec.get("intranet", "PodIP")
        self.roles = {role: self.spec[role]["replicas"] for role in ("ps", "worker", "heter") if role in self.spec}
        self._written = job
        self._job: FullObject

    async def runs(self) -> dict[str, FullObject]:
        """All of it, up to a status that says Running; the pods by name."""
        await self.job()
        await self.pods()
        await self.services()
        await self.config_map()
        self.harness.nodes.script("*", starts(after=0.0), namespace=self.harness.namespace)
        pods = await self.harness.wait_pods(lambda found: all(pod.phase == "Running" for pod in found.values()))
        await self.status("Running", {"running": "all"})
        return of_job(pods, self.name)

    async def job(self) -> None:
        annotations = {"host-port": str(HOST_PORT)} if self.version.host_ports and self.intranet == "Host" else {}
        metadata = {"finalizers": [FINALIZER], "annotations": annotations}
        written = self._written | {"metadata": self._written["metadata"] | metadata}
        self._job = await self.harness.create(FULL_JOBS, written)

    async def pods(self) -> None:
        """They hold back until somebody scripts them to start: their ConfigMap is not there yet."""
        self.harness.nodes.script("*", starts(after=NEVER), namespace=self.harness.namespace)
        for role, count in self.roles.items():
            for index in range(count):
                await self.harness.create(FULL_PODS, self._pod(role, index))
        await self.harness.wait_pods(
            lambda found: (
                len(mine := of_job(found, self.name)) == sum(self.roles.values())
                and all("podIP" in pod.status for pod in mine.values())
            )
        )

    async def services(self) -> None:
        if self.version.coordinator or self.intranet == "Service":
            for name in self._names():
                await self.harness.create(FULL_SERVICES, self._service(name))

    async def config_map(self) -> None:
        pods = await self.harness.list_pods()
        metadata = self._metadata(self.name) | {"labels": {"paddle-res-name": self.name}}
        await self.harness.create(
            FULL_CONFIG_MAPS,
            {"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata, "data": self._data(pods)},
        )

    async def status(self, phase: str, counts: dict[str, Any]) -> None:
        """With references to all pods, their versions among them, as the Go operator lists them."""
        pods = await self.harness.list_pods()
        roles = {}
        for role, count in self.roles.items():
            refs = [self._reference(pods[f"{self.name}-{role}-{index}"]) for index in range(count)]
            numbers = {kind: count if number == "all" else number for kind, number in counts.items()}
            roles[role] = numbers | {"refs": refs}
        mode = "PS" if "ps" in self.roles else "Collective" if self.roles.get("worker", 0) > 1 else "Single"
        status = {"phase": phase, "mode": mode, "startTime": "2023-06-01T10:00:00Z", **roles}
        await self.harness.client.merge_status(FULL_JOBS, Key(self.harness.namespace, self.name), status)

    def _names(self) -> list[str]:
        return [f"{self.name}-{role}-{index}" for role, count in self.roles.items() for index in range(count)]

    def _reference(self, pod: FullObject) -> Manifest:
        version = pod.metadata.resource_version
        where = {"namespace": pod.key.namespace, "name": pod.key.name, "uid": pod.uid, "resourceVersion": version}
        return {"kind": "Pod", "apiVersion": "v1"} | where

    def _metadata(self, name: str) -> dict[str, Any]:
        owner = {
            "apiVersion": "batch.paddlepaddle.org/v1",
            "kind": "PaddleJob",
            "name": self.name,
            "uid": self._job.uid,
            "controller": True,
            "blockOwnerDeletion": True,
        }
        return {"name": name, "ownerReferences": [owner]}

    def _pod(self, role: str, index: int) -> Manifest:
        name = f"{self.name}-{role}-{index}"
        marks = {
            "labels": {"paddle-res-name": name, "paddle-res-type": role},
            "annotations": {"paddle-resource": role},
        }
        by_policy = "OnFailure" if role == "worker" and self.intranet == "Service" else "Never"
        spec: dict[str, Any] = {
            "restartPolicy": "OnFailure" if "elastic" in self.spec else by_policy,
            "containers": [self._container(name, role, index)],
        }
        if self.version.coordinator:
            spec |= {"hostname": name, "subdomain": name, "initContainers": [self._coordinator(role)]}
        if self.intranet == "Host":
            spec["hostNetwork"] = True
        return {"apiVersion": "v1", "kind": "Pod", "metadata": self._metadata(name) | marks, "spec": spec}

    def _container(self, name: str, role: str, index: int) -> dict[str, Any]:
        pod_ip: dict[str, Any] = {"valueFrom": {"fieldRef": {"fieldPath": "status.podIP"}}}
        env = [
            {"name": "POD_IP"} | ({"value": name} if self.intranet == "Service" else pod_ip),
            {"name": "PADDLE_TRAINER_ID", "value": str(index)},
            {"name": "TRAINING_ROLE", "value": TRAINING_ROLE[role]},
            {"name": "PADDLE_TRAINING_ROLE", "value": TRAINING_ROLE[role]},
        ]
        container: dict[str, Any] = {"name": "paddle", "image": IMAGE, "env": env}
        if "elastic" in self.spec:
            elastic = {"JOB_ID": f"{self.harness.namespace}-{self.name}", "NP": "2", "TIMEOUT": "60"}
            env += [{"name": f"PADDLE_ELASTIC_{key}", "value": value} for key, value in elastic.items()]
        else:
            container["envFrom"] = [{"configMapRef": {"name": self.name}}]
        if self.intranet == "Service":
            container["ports"] = [{"containerPort": self.version.base_port}]
        return container

    def _coordinator(self, role: str) -> Manifest:
        peers = " ".join(f'"{self.name}-{role}-{index}"' for index in range(self.roles[role]))
        return {
            "name": "coord-paddle",
            "image": "docker.io/library/alpine:3.10",
            "imagePullPolicy": "IfNotPresent",
            "command": ["sh", "-c", f"for name in {peers}; do nslookup $name; done"],
            "resources": {"requests": {"cpu": "10m", "memory": "10m"}},
        }

    def _service(self, name: str) -> Manifest:
        ports = [{"name": f"p-{index}", "port": self.version.base_port + index} for index in range(20)]
        spec: dict[str, Any] = {"clusterIP": "None", "selector": {"paddle-res-name": name}, "ports": ports}
        if self.version.coordinator:
            spec["publishNotReadyAddresses"] = True
        return {"apiVersion": "v1", "kind": "Service", "metadata": self._metadata(name), "spec": spec}

    def _data(self, pods: dict[str, FullObject]) -> dict[str, str]:
        newest = self.version.coordinator
        port = self.version.base_port if self.intranet == "Service" or not newest else RANDOM_PORT
        hosts = {
            role: [
                name if self.intranet == "Service" else pods[name].status["podIP"]
                for name in (f"{self.name}-{role}-{index}" for index in range(count))
            ]
            for role, count in self.roles.items()
        }
        endpoints = {role: ",".join(f"{host}:{port}" for host in each) for role, each in hosts.items()}
        host_port = HOST_PORT if self.intranet == "Host" else self.version.base_port
        data = {"TRAINER_PORTS_NUM": "20", "PADDLE_PORT": str(RANDOM_PORT if newest else host_port)}
        if "worker" in hosts:
            data |= {
                "PADDLE_TRAINER_ENDPOINTS": endpoints["worker"],
                "PADDLE_TRAINERS": ",".join(hosts["worker"]),
                "PADDLE_TRAINERS_NUM": str(len(hosts["worker"])),
            }
        if "ps" in hosts:
            data["PADDLE_PSERVERS_IP_PORT_LIST"] = endpoints["ps"]
        return data
