"""What a hollow kubelet would do next, and when: time is a value here, and nothing is asked of a server."""

from typing import Any

import msgspec
import pytest

from paddle_operator.kube.objects import Key, Manifest
from testbed.hollow_container import CONFIG_ERROR, CRASH_LOOP
from testbed.hollow_life import Life, Surroundings
from testbed.hollow_pod import HollowPod, Need, PodStatus
from testbed.hollow_script import (
    NEVER,
    Behaviour,
    Rule,
    Script,
    Who,
    exits,
    exits_on_sigterm,
    ignores_sigterm,
    runs,
    starts,
)
from testbed.hollow_status import status_of

T0 = 1_800_000_000.0
NODE_ADDRESS = "198.18.0.7"


class Present:
    """A Config that lacks nothing but what it is told to."""

    def __init__(self) -> None:
        self.lacking: set[str] = set()

    def lack(self, namespace: str, need: Need) -> str:
        return f'{need.kind} "{need.name}" not found' if need.name in self.lacking else ""


def a_pod(metadata: Manifest | None = None, **spec: Any) -> HollowPod:
    manifest = {
        "metadata": {"name": "worker", "namespace": "team", "uid": "u1", "resourceVersion": "1"} | dict(metadata or {}),
        "spec": {"restartPolicy": "Never", "containers": [{"name": "main"}]} | spec,
    }
    return msgspec.convert(manifest, HollowPod)


def a_life(pod: HollowPod, *behaviours: Behaviour, config: Present | None = None, speed: float = 1.0) -> Life:
    script = Script()
    script.add(Rule("*", behaviours=behaviours))
    return Life(pod, NODE_ADDRESS, Surroundings(script, config or Present(), lambda: "10.128.0.9", speed), T0)


def shown(life: Life, now: float) -> tuple[str, str]:
    """The phase, and what the first container waits for or how it ended."""
    status = msgspec.convert(status_of(life, now), PodStatus)
    state = status.container_statuses[0].state
    if state.terminated:
        return status.phase, f"{state.terminated.exit_code} {state.terminated.reason}"
    return status.phase, state.waiting.reason if state.waiting else ""


def test_a_pod_that_nothing_holds_back_runs_at_once_and_is_not_looked_at_again() -> None:
    pod = a_pod()
    life = a_life(pod)
    assert life.advance(pod, T0) == NEVER
    assert shown(life, T0) == ("Running", "")


def test_each_step_says_when_the_next_one_is_due() -> None:
    pod = a_pod()
    life = a_life(pod, starts(after=3), exits(4, after=2))
    assert life.advance(pod, T0) == T0 + 3
    assert shown(life, T0) == ("Pending", "ContainerCreating")
    assert life.advance(pod, T0 + 3) == T0 + 5
    assert life.advance(pod, T0 + 5) == NEVER
    assert (life.over, shown(life, T0 + 5)) == (True, ("Failed", "4 Error"))


def test_restarts_come_after_1_10_20_40_seconds_divided_by_speed() -> None:
    pod = a_pod(restartPolicy="Always")
    life = a_life(pod, exits(1), speed=2)
    now, pauses = T0, []
    for _ in range(4):
        later = life.advance(pod, now)
        pauses.append((later - now) * 2)
        now = later
    assert pauses == [1, 10, 20, 40]
    assert shown(life, now) == ("Running", CRASH_LOOP)


def test_between_two_looks_a_config_map_that_came_is_not_noticed_unless_the_pod_is_changed() -> None:
    config = Present()
    config.lacking = {"contract"}
    pod = a_pod(containers=[{"name": "main", "envFrom": [{"configMapRef": {"name": "contract"}}]}])
    life = a_life(pod, config=config)
    look_at = life.advance(pod, T0)
    assert T0 + 1 <= look_at <= T0 + 13
    config.lacking = set()
    assert life.advance(pod, T0 + 0.5) == look_at
    assert shown(life, T0 + 0.5) == ("Pending", CONFIG_ERROR)
    life.nudge(T0 + 0.6)
    assert life.advance(pod, T0 + 0.6) == NEVER
    assert shown(life, T0 + 0.6) == ("Running", "")


def test_a_nudge_that_comes_before_the_news_of_the_config_map_is_not_lost() -> None:
    config = Present()
    config.lacking = {"contract"}
    pod = a_pod(containers=[{"name": "main", "envFrom": [{"configMapRef": {"name": "contract"}}]}])
    life = a_life(pod, config=config)
    life.advance(pod, T0)
    life.nudge(T0 + 0.2)
    assert life.advance(pod, T0 + 0.2) == pytest.approx(T0 + 0.3)


def test_mounting_is_tried_again_by_its_own_back_off_which_no_nudge_cuts_short() -> None:
    config = Present()
    config.lacking = {"files"}
    pod = a_pod(volumes=[{"name": "files", "projected": {"sources": [{"configMap": {"name": "files"}}]}}])
    life = a_life(pod, config=config)
    assert life.advance(pod, T0) == T0 + 0.5
    life.nudge(T0 + 0.1)
    assert life.advance(pod, T0 + 0.1) == T0 + 0.5
    assert life.advance(pod, T0 + 0.5) == T0 + 1.5
    assert not life.address


def test_what_is_optional_holds_nothing_back() -> None:
    config = Present()
    config.lacking = {"maybe"}
    reference = {"name": "maybe", "key": "K", "optional": True}
    env = [{"name": "K", "valueFrom": {"secretKeyRef": reference}}]
    volumes = [{"name": "v", "secret": {"secretName": "maybe", "optional": True}}]
    pod = a_pod(containers=[{"name": "main", "env": env}], volumes=volumes)
    life = a_life(pod, config=config)
    assert life.advance(pod, T0) == NEVER
    assert shown(life, T0) == ("Running", "")


def test_a_second_deletion_with_less_grace_shortens_the_first() -> None:
    deleted = {"deletionTimestamp": "2027-01-15T08:00:00Z", "deletionGracePeriodSeconds": 30}
    life = a_life(a_pod(), ignores_sigterm())
    life.advance(a_pod(), T0)
    assert life.advance(a_pod(deleted), T0 + 1) == T0 + 31
    assert life.advance(a_pod(deleted | {"deletionGracePeriodSeconds": 2}), T0 + 5) == T0 + 7
    life.advance(a_pod(deleted), T0 + 7)
    assert shown(life, T0 + 7) == ("Failed", "137 Error")


def test_a_program_may_end_by_itself_within_its_grace() -> None:
    deleted = {"deletionTimestamp": "2027-01-15T08:00:00Z", "deletionGracePeriodSeconds": 30}
    life = a_life(a_pod(), exits(0, after=5), exits_on_sigterm(after=10))
    life.advance(a_pod(), T0)
    assert life.advance(a_pod(deleted), T0 + 1) == T0 + 5
    life.advance(a_pod(deleted), T0 + 5)
    assert shown(life, T0 + 5) == ("Succeeded", "0 Completed")


def test_a_deadline_keeps_the_phase_until_the_last_container_has_ended() -> None:
    pod = a_pod(activeDeadlineSeconds=3, terminationGracePeriodSeconds=8)
    life = a_life(pod, ignores_sigterm())
    assert life.advance(pod, T0) == T0 + 3
    running = msgspec.structs.replace(pod, status=msgspec.structs.replace(pod.status, phase="Running"))
    assert life.advance(running, T0 + 3) == T0 + 11
    assert shown(life, T0 + 3)[0] == "Running"
    life.advance(running, T0 + 11)
    assert (status_of(life, T0 + 11)["reason"], shown(life, T0 + 11)[0]) == ("DeadlineExceeded", "Failed")


def test_conditions_of_others_stay_as_they_are() -> None:
    conditions = [{"type": "example.com/Gate", "status": "True", "lastTransitionTime": "2026-01-01T00:00:00Z"}]
    pod = msgspec.convert(
        {"metadata": {"name": "w"}, "spec": {"containers": [{"name": "main"}]}, "status": {"conditions": conditions}},
        HollowPod,
    )
    life = a_life(pod)
    life.advance(pod, T0)
    assert conditions[0] in status_of(life, T0)["conditions"]


def test_for_each_aspect_the_last_rule_that_matches_wins() -> None:
    script = Script()
    for rule in (
        Rule("*", behaviours=(exits(1), ignores_sigterm())),
        Rule("*-worker-*", behaviours=(exits(2, after=9),)),
        Rule("other", behaviours=(exits(3),)),
        Rule("mnist-worker-1", namespace="elsewhere", behaviours=(runs(),)),
    ):
        script.add(rule)
    conduct = script.conduct(Who(Key("team", "mnist-worker-1"), "u1", "main", False, 0))
    assert (conduct.end, conduct.sigterm) == (exits(2, after=9), ignores_sigterm())
    assert script.conduct(Who(Key("team", "mnist-worker-1"), "u1", "setup", True, 0)).end == exits(0)
