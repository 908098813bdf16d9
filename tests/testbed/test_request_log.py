"""Does the proxy parse a request as an API server does?"""

import pytest

from testbed.request_log import RequestRecord, RequestTarget, parse_target, peak_per_second

PODS = "/api/v1/namespaces/team/pods"
NODE = "/api/v1/nodes/n1"
GROUP = "batch.paddlepaddle.org"
JOBS = f"/apis/{GROUP}/v1/namespaces/team/paddlejobs"


@pytest.mark.parametrize(
    ("method", "path", "expected"),
    [
        ("GET", "/version", RequestTarget("get")),
        ("GET", "/api/v1", RequestTarget("get")),
        ("GET", "/apis/apps/v1", RequestTarget("get")),
        ("GET", "/api/v1/pods", RequestTarget("list", "", "pods")),
        ("GET", PODS, RequestTarget("list", "", "pods", "", "team")),
        ("GET", f"{PODS}?watch=1", RequestTarget("watch", "", "pods", "", "team")),
        ("GET", f"{PODS}?watch=false", RequestTarget("list", "", "pods", "", "team")),
        (
            "GET",
            f"{PODS}?fieldSelector=metadata.name==a&watch=true",
            RequestTarget("watch", "", "pods", "", "team", "a"),
        ),
        ("GET", "/api/v1/watch/namespaces/team/pods", RequestTarget("watch", "", "pods", "", "team")),
        ("GET", f"{PODS}/a", RequestTarget("get", "", "pods", "", "team", "a")),
        ("HEAD", f"{PODS}/a", RequestTarget("get", "", "pods", "", "team", "a")),
        ("GET", f"{PODS}/a/log?follow=true", RequestTarget("get", "", "pods", "log", "team", "a")),
        ("POST", PODS, RequestTarget("create", "", "pods", "", "team")),
        ("POST", f"{PODS}/a/binding", RequestTarget("create", "", "pods", "binding", "team", "a")),
        ("DELETE", PODS, RequestTarget("deletecollection", "", "pods", "", "team")),
        ("DELETE", NODE, RequestTarget("delete", "", "nodes", "", "", "n1")),
        ("PATCH", f"{JOBS}/mnist", RequestTarget("patch", GROUP, "paddlejobs", "", "team", "mnist")),
        ("PUT", f"{JOBS}/mnist/status", RequestTarget("update", GROUP, "paddlejobs", "status", "team", "mnist")),
        ("GET", "/api/v1/namespaces", RequestTarget("list", "", "namespaces")),
        ("GET", "/api/v1/namespaces/team", RequestTarget("get", "", "namespaces", "", "team", "team")),
        (
            "PUT",
            "/api/v1/namespaces/team/finalize",
            RequestTarget("update", "", "namespaces", "finalize", "team", "team"),
        ),
    ],
)
def test_request_target_is_parsed_as_by_the_api_server(method: str, path: str, expected: RequestTarget) -> None:
    bare, _, query = path.partition("?")
    assert parse_target(method, bare, dict(term.split("=", 1) for term in query.split("&") if term)) == expected


def test_peak_is_the_maximum_of_any_second() -> None:
    assert peak_per_second(RequestRecord(at, "get") for at in (0.0, 0.9, 1.0, 1.2, 1.8, 1.9, 3.0)) == 5
