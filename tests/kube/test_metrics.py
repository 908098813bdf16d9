"""What is told of several caches of one kind is true of all of them."""

from paddle_operator.kube.metrics import REGISTRY, InformerMetrics


def test_the_caches_of_several_namespaces_add_up() -> None:
    here, there = InformerMetrics("gadgets"), InformerMetrics("gadgets")
    for cache, count, together in ((here, 3, 3), (there, 4, 7), (here, 1, 5), (there, 0, 1)):
        cache.holds(count)
        assert REGISTRY.get_sample_value("informer_objects", {"resource": "gadgets"}) == together
