"""Settings of the whole process. A program applies them explicitly; no module of this package does at import."""

import gc
import sys

RECURSION_LIMIT = 15_000  # at 24,000 msgspec overflowed the stack
GC_THRESHOLD_OBJECTS = 2_000


def raise_recursion_limit() -> None:
    """Let objects be decoded that are nested as deep as an API server stores them.

    A server takes JSON that is nested 10,000 deep, and a CRD without a schema stores it. With Python's limit of 1,000
    such an object could not even be skipped, and would hide all others of its list page.
    """
    sys.setrecursionlimit(max(sys.getrecursionlimit(), RECURSION_LIMIT))


def freeze_garbage_collector() -> None:
    """Call once the caches are filled: the collector then skips their objects, which live long, and runs less often."""
    gc.collect()
    gc.freeze()
    gc.set_threshold(GC_THRESHOLD_OBJECTS)  # hardly any new object is part of a cycle
