"""What does the API server make of an object that is written: what is unknown, what is filled in, what is wrong?

Judged by the real one: tests/local/served/test_schema_cluster.py writes the same objects to both.
"""

from functools import cache

from paddle_operator.kube.errors import Cause
from paddle_operator.local.apiserver.scheme.kind import Kind, Manifest
from paddle_operator.local.apiserver.validation.causes import MISTYPED
from paddle_operator.local.apiserver.validation.object_meta import metadata_problems
from paddle_operator.local.apiserver.validation.structural import Shape, shape_of


def completed(kind: Kind, manifest: Manifest) -> Manifest:
    """The object as it is stored: without unknown fields, amounts and times in their one form, defaults filled in.

    A new object, which shares with the old one what is left as it is.
    """
    found: Manifest = shape(kind).completed(manifest)
    kind.fill(found)
    return found


def unknown_fields(kind: Kind, manifest: Manifest) -> list[str]:
    """A sentence for each field that is not in the schema, as strict decoding has it: `unknown field "spec.foo"`."""
    found: list[str] = []
    shape(kind).unknown(manifest, "", found)
    return [f'unknown field "{path}"' for path in found]


def problems(kind: Kind, manifest: Manifest, old: Manifest | None) -> list[Cause]:
    """What is wrong with a completed object; `old` is what is stored, None for a new one.

    The kind's own check is asked only where the types are right, so that it need not look at them. Causes with the
    reason MISTYPED are about the form: of a built-in kind the real server says so with 400 instead of 422.
    """
    found: list[Cause] = []
    shape(kind).problems(manifest, "", found)
    found += metadata_problems(kind, manifest)
    if not any(cause.reason == MISTYPED for cause in found):
        found += kind.check(manifest, old)
    return found


@cache
def shape(kind: Kind) -> Shape:
    """Made when a kind is first written: the largest takes some milliseconds."""
    return shape_of(kind.schema, custom=kind.custom)
