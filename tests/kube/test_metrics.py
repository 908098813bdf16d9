"""Figures add up, whoever counts them, and are told as Prometheus wants them."""

from prometheus_client import generate_latest

from paddle_operator.kube.metrics import REGISTRY, InformerMetrics, count_request


def test_the_caches_of_several_namespaces_add_up() -> None:
    here, there = InformerMetrics("gadgets"), InformerMetrics("gadgets")
    for cache, count, together in ((here, 3, 3), (there, 4, 7), (here, 1, 5), (there, 0, 1)):
        cache.set_object_count(count)
        assert REGISTRY.get_sample_value("informer_objects", {"resource": "gadgets"}) == together


def test_fast_counter_is_exposed_as_a_counter() -> None:
    InformerMetrics("sprockets").count_change()
    InformerMetrics("sprockets").count_change()
    for _ in range(3):
        count_request(201, "POST", "sprockets.example")
    assert REGISTRY.get_sample_value("informer_changes_total", {"resource": "sprockets"}) == 2
    labels = {"code": "201", "method": "POST", "host": "sprockets.example"}
    assert REGISTRY.get_sample_value("rest_client_requests_total", labels) == 3
    assert b"# TYPE rest_client_requests_total counter" in generate_latest(REGISTRY)


def test_change_counter_exists_before_the_first_change() -> None:
    InformerMetrics("widgets")
    assert REGISTRY.get_sample_value("informer_changes_total", {"resource": "widgets"}) == 0
