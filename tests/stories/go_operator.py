"""Creates the objects of a job as the Go operator does: release v0.3.5 and the older line with SampleSets.

The operator under test then takes them over.
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
    pods_of_job,
)
from tests.stories.jobs import IMAGE, Job

FINALIZER = "finalizers.paddlepaddle.org"
TRAINING_ROLE = {"ps": "PSERVER", "worker": "TRAINER", "heter": "HETER"}
RANDOM_PORT = 41234  # the random PADDLE_PORT of v0.3.5
HOST_PORT = 35020  # the first one that the older line allocates


@dataclass(frozen=True)
class Version:
    name: str
    base_port: int
    coordinator: bool  # an init container that resolves names, and so a Service per pod in every mode
    host_ports: bool  # stored in an annotation of the job

    def __str__(self) -> str:
        return self.name


NEWEST = Version("v0.3.5", 36000, coordinator=True, host_ports=False)
SAMPLESET = Version("v0.4-alpha", 2379, coordinator=False, host_ports=True)


class GoJob:
    """A job of the Go operator; each method creates one kind of its objects."""

    def __init__(self, harness: ClusterHarness, version: Version, job: Job) -> None:
        self.harness = harness
        self.version = version
        self.name: str = job["metadata"]["name"]
        self.spec: dict[str, Any] = job["spec"]
        self.intranet = self.spec.get("intranet", "PodIP")
        self.roles = {role: self.spec[role]["replicas"] for role in ("ps", "worker", "heter") if role in self.spec}
        self._manifest = job
        self._job: FullObject

    async def create_running(self) -> dict[str, FullObject]:
        """Create all objects up to a status with phase Running; returns the pods by name."""
        await self.create_job()
        await self.create_pods()
        await self.create_services()
        await self.create_config_map()
        self.harness.nodes.script("*", starts(after=0.0), namespace=self.harness.namespace)
        pods = await self.harness.wait_pods(lambda found: all(pod.phase == "Running" for pod in found.values()))
        await self.write_status("Running", {"running": "all"})
        return pods_of_job(pods, self.name)

    async def create_job(self) -> None:
        annotations = {"host-port": str(HOST_PORT)} if self.version.host_ports and self.intranet == "Host" else {}
        metadata = {"finalizers": [FINALIZER], "annotations": annotations}
        written = self._manifest | {"metadata": self._manifest["metadata"] | metadata}
        self._job = await self.harness.create(FULL_JOBS, written)

    async def create_pods(self) -> None:
        """Create the pods, which do not start until a test scripts it: their ConfigMap does not exist yet."""
        self.harness.nodes.script("*", starts(after=NEVER), namespace=self.harness.namespace)
        for role, count in self.roles.items():
            for index in range(count):
                await self.harness.create(FULL_PODS, self._pod(role, index))
        await self.harness.wait_pods(
            lambda found: (
                len(mine := pods_of_job(found, self.name)) == sum(self.roles.values())
                and all("podIP" in pod.status for pod in mine.values())
            )
        )

    async def create_services(self) -> None:
        if self.version.coordinator or self.intranet == "Service":
            for name in self._names():
                await self.harness.create(FULL_SERVICES, self._service(name))

    async def create_config_map(self) -> None:
        pods = await self.harness.list_pods()
        metadata = self._metadata(self.name) | {"labels": {"paddle-res-name": self.name}}
        await self.harness.create(
            FULL_CONFIG_MAPS,
            {"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata, "data": self._data(pods)},
        )

    async def write_status(self, phase: str, counts: dict[str, Any]) -> None:
        """Write a status with references to all pods and their versions, as the Go operator does."""
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
        reference = {"namespace": pod.key.namespace, "name": pod.key.name, "uid": pod.uid, "resourceVersion": version}
        return {"kind": "Pod", "apiVersion": "v1"} | reference

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
        metadata = {
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
        return {"apiVersion": "v1", "kind": "Pod", "metadata": self._metadata(name) | metadata, "spec": spec}

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
