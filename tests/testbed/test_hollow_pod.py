"""A simulated pod: its next step, and when it is due. Time is an argument, and there is no server."""

from typing import Any

import msgspec
import pytest

from paddle_operator.kube.objects import Key, Manifest
from paddle_operator.local.kubelet.pod import LocalPod, LocalPodStatus
from paddle_operator.local.kubelet.pod_status import CONFIG_ERROR, CRASH_LOOP
from testbed.hollow_config import Requirement
from testbed.hollow_pod import SimulatedPod, SimulationDeps
from testbed.hollow_script import (
    NEVER,
    Behaviour,
    BehaviourRule,
    Script,
    SimulatedRun,
    exits,
    exits_on_sigterm,
    ignores_sigterm,
    runs,
    starts,
)

T0 = 1_800_000_000.0
NODE_ADDRESS = "198.18.0.7"


class FakeConfig:
    """Everything exists but what the test removes."""

    def __init__(self) -> None:
        self.absent: set[str] = set()

    def missing(self, namespace: str, requirement: Requirement) -> str:
        return f'{requirement.kind} "{requirement.name}" not found' if requirement.name in self.absent else ""


def make_pod(metadata: Manifest | None = None, **spec: Any) -> LocalPod:
    manifest = {
        "metadata": {"name": "worker", "namespace": "team", "uid": "u1", "resourceVersion": "1"} | dict(metadata or {}),
        "spec": {"restartPolicy": "Never", "containers": [{"name": "main"}]} | spec,
    }
    return msgspec.convert(manifest, LocalPod)


def simulate(
    pod: LocalPod, *behaviours: Behaviour, config: FakeConfig | None = None, speed: float = 1.0
) -> SimulatedPod:
    script = Script()
    script.add(BehaviourRule("*", behaviours=behaviours))
    deps = SimulationDeps(script, config or FakeConfig(), lambda: "10.128.0.9", speed)
    return SimulatedPod(pod, NODE_ADDRESS, deps, T0)


def summary(simulation: SimulatedPod, now: float) -> tuple[str, str]:
    """The phase, and the waiting reason or the exit of the first container."""
    status = msgspec.convert(simulation.status(now), LocalPodStatus)
    state = status.container_statuses[0].state
    if state.terminated:
        return status.phase, f"{state.terminated.exit_code} {state.terminated.reason}"
    return status.phase, state.waiting.reason if state.waiting else ""


def test_pod_without_requirements_runs_at_once() -> None:
    pod = make_pod()
    simulation = simulate(pod)
    assert simulation.advance(pod, T0) == NEVER
    assert summary(simulation, T0) == ("Running", "")


def test_each_step_returns_when_the_next_is_due() -> None:
    pod = make_pod()
    simulation = simulate(pod, starts(after=3), exits(4, after=2))
    assert simulation.advance(pod, T0) == T0 + 3
    assert summary(simulation, T0) == ("Pending", "ContainerCreating")
    assert simulation.advance(pod, T0 + 3) == T0 + 5
    assert simulation.advance(pod, T0 + 5) == NEVER
    assert (simulation.finished, summary(simulation, T0 + 5)) == (True, ("Failed", "4 Error"))


def test_restart_delays_are_divided_by_speed() -> None:
    pod = make_pod(restartPolicy="Always")
    simulation = simulate(pod, exits(1), speed=2)
    now, pauses = T0, []
    for _ in range(4):
        later = simulation.advance(pod, now)
        pauses.append((later - now) * 2)
        now = later
    assert pauses == [1, 10, 20, 40]
    assert summary(simulation, now) == ("Running", CRASH_LOOP)


def test_config_map_is_noticed_at_the_next_sync_or_pod_update() -> None:
    config = FakeConfig()
    config.absent = {"config"}
    pod = make_pod(containers=[{"name": "main", "envFrom": [{"configMapRef": {"name": "config"}}]}])
    simulation = simulate(pod, config=config)
    sync_at = simulation.advance(pod, T0)
    assert T0 + 1 <= sync_at <= T0 + 13
    config.absent = set()
    assert simulation.advance(pod, T0 + 0.5) == sync_at
    assert summary(simulation, T0 + 0.5) == ("Pending", CONFIG_ERROR)
    simulation.nudge(T0 + 0.6)
    assert simulation.advance(pod, T0 + 0.6) == NEVER
    assert summary(simulation, T0 + 0.6) == ("Running", "")


def test_pod_update_before_its_config_map_is_retried_soon() -> None:
    config = FakeConfig()
    config.absent = {"config"}
    pod = make_pod(containers=[{"name": "main", "envFrom": [{"configMapRef": {"name": "config"}}]}])
    simulation = simulate(pod, config=config)
    simulation.advance(pod, T0)
    simulation.nudge(T0 + 0.2)
    assert simulation.advance(pod, T0 + 0.2) == pytest.approx(T0 + 0.3)


def test_mount_backoff_is_not_shortened_by_pod_updates() -> None:
    config = FakeConfig()
    config.absent = {"files"}
    pod = make_pod(volumes=[{"name": "files", "projected": {"sources": [{"configMap": {"name": "files"}}]}}])
    simulation = simulate(pod, config=config)
    assert simulation.advance(pod, T0) == T0 + 0.5
    simulation.nudge(T0 + 0.1)
    assert simulation.advance(pod, T0 + 0.1) == T0 + 0.5
    assert simulation.advance(pod, T0 + 0.5) == T0 + 1.5
    assert not simulation.address


def test_optional_references_do_not_block_the_start() -> None:
    config = FakeConfig()
    config.absent = {"maybe"}
    reference = {"name": "maybe", "key": "K", "optional": True}
    env = [{"name": "K", "valueFrom": {"secretKeyRef": reference}}]
    volumes = [{"name": "v", "secret": {"secretName": "maybe", "optional": True}}]
    pod = make_pod(containers=[{"name": "main", "env": env}], volumes=volumes)
    simulation = simulate(pod, config=config)
    assert simulation.advance(pod, T0) == NEVER
    assert summary(simulation, T0) == ("Running", "")


def test_second_deletion_shortens_the_grace_period() -> None:
    deleted = {"deletionTimestamp": "2027-01-15T08:00:00Z", "deletionGracePeriodSeconds": 30}
    simulation = simulate(make_pod(), ignores_sigterm())
    simulation.advance(make_pod(), T0)
    assert simulation.advance(make_pod(deleted), T0 + 1) == T0 + 31
    assert simulation.advance(make_pod(deleted | {"deletionGracePeriodSeconds": 2}), T0 + 5) == T0 + 7
    simulation.advance(make_pod(deleted), T0 + 7)
    assert summary(simulation, T0 + 7) == ("Failed", "137 Error")


def test_container_may_exit_by_itself_within_its_grace() -> None:
    deleted = {"deletionTimestamp": "2027-01-15T08:00:00Z", "deletionGracePeriodSeconds": 30}
    simulation = simulate(make_pod(), exits(0, after=5), exits_on_sigterm(after=10))
    simulation.advance(make_pod(), T0)
    assert simulation.advance(make_pod(deleted), T0 + 1) == T0 + 5
    simulation.advance(make_pod(deleted), T0 + 5)
    assert summary(simulation, T0 + 5) == ("Succeeded", "0 Completed")


def test_deadline_keeps_the_phase_until_all_containers_exit() -> None:
    pod = make_pod(activeDeadlineSeconds=3, terminationGracePeriodSeconds=8)
    simulation = simulate(pod, ignores_sigterm())
    assert simulation.advance(pod, T0) == T0 + 3
    running = msgspec.structs.replace(pod, status=msgspec.structs.replace(pod.status, phase="Running"))
    assert simulation.advance(running, T0 + 3) == T0 + 11
    assert summary(simulation, T0 + 3)[0] == "Running"
    simulation.advance(running, T0 + 11)
    assert (simulation.status(T0 + 11)["reason"], summary(simulation, T0 + 11)[0]) == ("DeadlineExceeded", "Failed")


def test_conditions_of_other_owners_are_copied() -> None:
    conditions = [{"type": "example.com/Gate", "status": "True", "lastTransitionTime": "2026-01-01T00:00:00Z"}]
    pod = msgspec.convert(
        {"metadata": {"name": "w"}, "spec": {"containers": [{"name": "main"}]}, "status": {"conditions": conditions}},
        LocalPod,
    )
    simulation = simulate(pod)
    simulation.advance(pod, T0)
    assert conditions[0] in simulation.status(T0)["conditions"]


def test_last_matching_rule_wins_for_each_aspect() -> None:
    script = Script()
    for rule in (
        BehaviourRule("*", behaviours=(exits(1), ignores_sigterm())),
        BehaviourRule("*-worker-*", behaviours=(exits(2, after=9),)),
        BehaviourRule("other", behaviours=(exits(3),)),
        BehaviourRule("mnist-worker-1", namespace="elsewhere", behaviours=(runs(),)),
    ):
        script.add(rule)
    behaviour = script.behaviour_of(SimulatedRun(Key("team", "mnist-worker-1"), "u1", "main", False, 0))
    assert (behaviour.end, behaviour.sigterm) == (exits(2, after=9), ignores_sigterm())
    assert script.behaviour_of(SimulatedRun(Key("team", "mnist-worker-1"), "u1", "setup", True, 0)).end == exits(0)
