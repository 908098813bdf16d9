"""Strategic merge patch: a merge patch that knows which lists are maps in disguise, and merges those item by item.

`kubectl apply`, `edit`, `label` and `annotate` send it for built-in kinds. The rules are those of apimachinery's
strategicpatch; tests/local/served/test_strategic_cluster.py sends the same patches to a real API server.
"""

from collections.abc import Callable
from typing import Any

from paddle_operator.local.apiserver.scheme.kind import Manifest, Schema
from paddle_operator.local.apiserver.validation.causes import told

DIRECTIVE = "$patch"
RETAIN_KEYS = "$retainKeys"
DELETE_FROM = "$deleteFromPrimitiveList/"
ORDER_OF = "$setElementOrder/"
STRATEGY, MERGE_KEY = "x-kubernetes-patch-strategy", "x-kubernetes-patch-merge-key"
NOTHING: Schema = {}

Mark = Callable[[Any], str]


class BadPatch(ValueError):
    """A patch that cannot be applied; str() says why. An API server answers it with 400."""


def merged(schema: Schema, original: Manifest, patch: Manifest) -> Manifest:
    """The original with the patch applied; neither is changed. Raises BadPatch."""
    directive = patch.get(DIRECTIVE)
    if directive == "replace":
        return {key: value for key, value in patch.items() if key != DIRECTIVE}
    if directive == "delete":
        return {}
    if directive is not None:
        raise BadPatch(f'{DIRECTIVE} is "{directive}", but must be replace or delete')
    found = retained(original, patch)
    patch = ordered(schema, found, patch)
    for key, value in patch.items():
        if key == RETAIN_KEYS or key.startswith(ORDER_OF):
            continue
        if key.startswith(DELETE_FROM):
            delete_items(found, key.removeprefix(DELETE_FROM), value)
        elif value is None:
            found.pop(key, None)
        else:
            found[key] = merged_value(field(schema, key), found.get(key), value)
    return found


def merged_value(schema: Schema, old: Any, new: Any) -> Any:
    if isinstance(old, dict) and isinstance(new, dict) and "replace" not in strategies(schema):
        return merged(schema, old, new)
    if isinstance(old, list) and isinstance(new, list) and "merge" in strategies(schema):
        return merged_list(schema, old, new)
    if isinstance(old, list) and isinstance(new, list):
        return new
    return without_directives(new)


def retained(original: Manifest, patch: Manifest) -> Manifest:
    """What is left of the original where the patch names all keys that may be: others of a union go."""
    if RETAIN_KEYS not in patch:
        return dict(original)
    keys = patch[RETAIN_KEYS]
    written = [key for key, value in patch.items() if value is not None and not key.startswith("$")]
    if not isinstance(keys, list) or not all(key in keys for key in written):
        raise BadPatch(f"{RETAIN_KEYS} must be a list of all fields that the patch sets beside it")
    return {key: value for key, value in original.items() if key in keys}


def ordered(schema: Schema, found: Manifest, patch: Manifest) -> Manifest:
    """Merge the lists whose order the patch gives into `found`; the rest of the patch is given back."""
    done = set()
    for directive, order in patch.items():
        if not directive.startswith(ORDER_OF):
            continue
        key = directive.removeprefix(ORDER_OF)
        old, new = found.get(key), patch.get(key)
        if not isinstance(order, list) or not isinstance(old or [], list) or not isinstance(new or [], list):
            raise BadPatch(f"{directive} and {key} must be lists")
        done.add(key)
        if old is None and new is None:
            continue
        within = field(schema, key)
        marks = mark_of(within)
        check_order(key, new or [], order, marks)
        if new is None:
            both = list(old or ())
        elif old is None:
            both = without_directives(new)
        else:
            both = merged_value(within, old, new)
        found[key] = in_order(both, order, old or [], marks)
    return {key: value for key, value in patch.items() if key not in done}


def merged_list(schema: Schema, old: list[Any], new: list[Any]) -> list[Any]:
    marks = mark_of(schema)
    if not any(isinstance(each, dict) for each in (*old, *new)):
        both = {marks(each): each for each in (*old, *new)}
        return in_order(list(both.values()), new, old, marks)
    if not schema.get(MERGE_KEY):
        raise BadPatch("cannot merge lists of maps without a merge key")
    kept, plain = without_deleted(old, new, marks)
    found = list(kept)
    at = {marks(each): index for index, each in enumerate(found)}
    for each in plain:
        mark = marks(each)
        if mark in at:
            found[at[mark]] = merged_value(schema.get("items", NOTHING), found[at[mark]], each)
        else:
            at[mark] = len(found)
            found.append(each)
    return in_order(found, plain, kept, marks)


def without_deleted(old: list[Any], new: list[Any], marks: Mark) -> tuple[list[Any], list[Any]]:
    """The old items without those that the patch deletes, and the patch's items without its directives."""
    plain = [each for each in new if not is_directive(each)]
    directives = [each for each in new if is_directive(each)]
    for each in directives:
        if each[DIRECTIVE] not in ("delete", "replace"):
            raise BadPatch(f'{DIRECTIVE} in a list is "{each[DIRECTIVE]}", but must be delete or replace')
    if any(each[DIRECTIVE] == "replace" for each in directives):
        return plain, []
    gone = {marks(each) for each in directives}
    return [each for each in old if marks(each) not in gone], plain


def in_order(items: list[Any], order: list[Any], old: list[Any], marks: Mark) -> list[Any]:
    """The items of the patch in its order, those that only the server has woven in where they stood before."""
    wanted = {marks(each): place for place, each in reversed(list(enumerate(order)))}
    before = {marks(each): place for place, each in reversed(list(enumerate(old)))}
    ours = sorted((each for each in items if marks(each) in wanted), key=lambda each: wanted[marks(each)])
    theirs = [each for each in items if marks(each) not in wanted]
    theirs.sort(key=lambda each: before.get(marks(each), len(old)))
    found = []
    while ours and theirs:
        mine, other = before.get(marks(ours[0])), before.get(marks(theirs[0]))
        first = theirs if mine is not None and other is not None and other < mine else ours
        found.append(first.pop(0))
    return found + ours + theirs


def check_order(key: str, new: list[Any], order: list[Any], marks: Mark) -> None:
    """Raises BadPatch where the patch's list has an item that its order does not have, or in another order."""
    places = iter([marks(each) for each in order])
    listed = [marks(each) for each in new if not is_directive(each)]
    if order and not all(mark in places for mark in listed):
        raise BadPatch(f"the order of {key} in the patch does not match {ORDER_OF}{key}")


def delete_items(found: Manifest, key: str, gone: Any) -> None:
    if not isinstance(gone, list):
        raise BadPatch(f"{DELETE_FROM}{key} must be a list")
    if isinstance(old := found.get(key), list):
        marks = {told(each) for each in gone}
        found[key] = [each for each in old if told(each) not in marks]


def mark_of(schema: Schema) -> Mark:
    """By what the items of a list are told apart: a map's merge key or the item itself, as JSON (1 is not true)."""
    key = schema.get(MERGE_KEY)

    def mark(item: Any) -> str:
        if not isinstance(item, dict):
            return told(item)
        if key not in item:
            raise BadPatch(f"map does not contain the merge key {key}: {told(item)}")
        return told(item[key])

    return mark


def field(schema: Schema, key: str) -> Schema:
    properties: dict[str, Schema] = schema.get("properties", NOTHING)
    found = properties.get(key) or schema.get("additionalProperties", NOTHING)
    return found if isinstance(found, dict) else NOTHING


def strategies(schema: Schema) -> list[str]:
    return str(schema.get(STRATEGY, "")).split(",")


def without_directives(value: Any) -> Any:
    """What a patch adds whole, without what only makes sense beside something old; nulls add nothing."""
    if isinstance(value, dict):
        kept = {key: each for key, each in value.items() if each is not None and not key.startswith("$")}
        return {key: without_directives(each) for key, each in kept.items() if not is_directive(each)}
    if isinstance(value, list):
        return [without_directives(each) for each in value if not is_directive(each)]
    return value


def is_directive(value: Any) -> bool:
    return isinstance(value, dict) and DIRECTIVE in value
