"""Does a request mean to us what it means to an API server?"""

import pytest

from testbed.request_log import Seen, Target, peak_per_second, target

PODS = "/api/v1/namespaces/team/pods"
NODE = "/api/v1/nodes/n1"
GROUP = "batch.paddlepaddle.org"
JOBS = f"/apis/{GROUP}/v1/namespaces/team/paddlejobs"


@pytest.mark.parametrize(
    ("method", "path", "meant"),
    [
        ("GET", "/version", Target("get")),
        ("GET", "/api/v1", Target("get")),
        ("GET", "/apis/apps/v1", Target("get")),
        ("GET", "/api/v1/pods", Target("list", "", "pods")),
        ("GET", PODS, Target("list", "", "pods", "", "team")),
        ("GET", f"{PODS}?watch=1", Target("watch", "", "pods", "", "team")),
        ("GET", f"{PODS}?watch=false", Target("list", "", "pods", "", "team")),
        ("GET", f"{PODS}?fieldSelector=metadata.name==a&watch=true", Target("watch", "", "pods", "", "team", "a")),
        ("GET", "/api/v1/watch/namespaces/team/pods", Target("watch", "", "pods", "", "team")),
        ("GET", f"{PODS}/a", Target("get", "", "pods", "", "team", "a")),
        ("HEAD", f"{PODS}/a", Target("get", "", "pods", "", "team", "a")),
        ("GET", f"{PODS}/a/log?follow=true", Target("get", "", "pods", "log", "team", "a")),
        ("POST", PODS, Target("create", "", "pods", "", "team")),
        ("POST", f"{PODS}/a/binding", Target("create", "", "pods", "binding", "team", "a")),
        ("DELETE", PODS, Target("deletecollection", "", "pods", "", "team")),
        ("DELETE", NODE, Target("delete", "", "nodes", "", "", "n1")),
        ("PATCH", f"{JOBS}/mnist", Target("patch", GROUP, "paddlejobs", "", "team", "mnist")),
        ("PUT", f"{JOBS}/mnist/status", Target("update", GROUP, "paddlejobs", "status", "team", "mnist")),
        ("GET", "/api/v1/namespaces", Target("list", "", "namespaces")),
        ("GET", "/api/v1/namespaces/team", Target("get", "", "namespaces", "", "team", "team")),
        ("PUT", "/api/v1/namespaces/team/finalize", Target("update", "", "namespaces", "finalize", "team", "team")),
    ],
)
def test_a_request_means_what_the_api_server_takes_it_for(method: str, path: str, meant: Target) -> None:
    bare, _, query = path.partition("?")
    assert target(method, bare, dict(term.split("=", 1) for term in query.split("&") if term)) == meant


def test_the_peak_is_that_of_the_worst_second_wherever_it_begins() -> None:
    assert peak_per_second(Seen(at, "get") for at in (0.0, 0.9, 1.0, 1.2, 1.8, 1.9, 3.0)) == 5
