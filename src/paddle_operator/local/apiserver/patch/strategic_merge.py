"""What is an object after a strategic merge patch, which merges lists of maps item by item by a merge key?

`kubectl apply`, `edit`, `label` and `annotate` send it for built-in kinds. The rules are those of apimachinery's
strategicpatch package; tests/local/served/test_strategic_merge_cluster.py sends the same patches to a real API server.
"""

from collections.abc import Callable
from typing import Any

from paddle_operator.local.apiserver.scheme.kind import Manifest, Schema
from paddle_operator.local.apiserver.validation.field_errors import to_json

DIRECTIVE = "$patch"
RETAIN_KEYS = "$retainKeys"
DELETE_FROM_LIST = "$deleteFromPrimitiveList/"
SET_ELEMENT_ORDER = "$setElementOrder/"
PATCH_STRATEGY, MERGE_KEY = "x-kubernetes-patch-strategy", "x-kubernetes-patch-merge-key"
EMPTY_SCHEMA: Schema = {}

ItemKey = Callable[[Any], str]


class InvalidPatch(ValueError):
    """The patch cannot be applied; str() is the reason. The API server responds 400."""


def apply_strategic_merge_patch(schema: Schema, original: Manifest, patch: Manifest) -> Manifest:
    """The patched object; neither argument is modified. Raises InvalidPatch."""
    directive = patch.get(DIRECTIVE)
    if directive == "replace":
        return {key: value for key, value in patch.items() if key != DIRECTIVE}
    if directive == "delete":
        return {}
    if directive is not None:
        raise InvalidPatch(f'{DIRECTIVE} is "{directive}", but must be replace or delete')
    result = retain_keys(original, patch)
    patch = merge_ordered_lists(schema, result, patch)
    for key, value in patch.items():
        if key == RETAIN_KEYS or key.startswith(SET_ELEMENT_ORDER):
            continue
        if key.startswith(DELETE_FROM_LIST):
            delete_items(result, key.removeprefix(DELETE_FROM_LIST), value)
        elif value is None:
            result.pop(key, None)
        else:
            result[key] = merge_value(schema_of_field(schema, key), result.get(key), value)
    return result


def merge_value(schema: Schema, old: Any, new: Any) -> Any:
    if isinstance(old, dict) and isinstance(new, dict) and "replace" not in patch_strategies(schema):
        return apply_strategic_merge_patch(schema, old, new)
    if isinstance(old, list) and isinstance(new, list) and "merge" in patch_strategies(schema):
        return merge_list(schema, old, new)
    if isinstance(old, list) and isinstance(new, list):
        return new
    return without_directives(new)


def retain_keys(original: Manifest, patch: Manifest) -> Manifest:
    """The original without the keys that the patch's $retainKeys does not list: other members of a union."""
    if RETAIN_KEYS not in patch:
        return dict(original)
    keys = patch[RETAIN_KEYS]
    patch_keys = [key for key, value in patch.items() if value is not None and not key.startswith("$")]
    if not isinstance(keys, list) or not all(key in keys for key in patch_keys):
        raise InvalidPatch(f"{RETAIN_KEYS} must list all fields that the patch sets beside it")
    return {key: value for key, value in original.items() if key in keys}


def merge_ordered_lists(schema: Schema, result: Manifest, patch: Manifest) -> Manifest:
    """Merge the lists whose order the patch sets into `result`; returns the patch without them."""
    merged_keys = set()
    for directive, order in patch.items():
        if not directive.startswith(SET_ELEMENT_ORDER):
            continue
        key = directive.removeprefix(SET_ELEMENT_ORDER)
        old, new = result.get(key), patch.get(key)
        if not isinstance(order, list) or not isinstance(old or [], list) or not isinstance(new or [], list):
            raise InvalidPatch(f"{directive} and {key} must be lists")
        merged_keys.add(key)
        if old is None and new is None:
            continue
        list_schema = schema_of_field(schema, key)
        item_key = item_key_of(list_schema)
        check_order(key, new or [], order, item_key)
        if new is None:
            items = list(old or ())
        elif old is None:
            items = without_directives(new)
        else:
            items = merge_value(list_schema, old, new)
        result[key] = sort_items(items, order, old or [], item_key)
    return {key: value for key, value in patch.items() if key not in merged_keys}


def merge_list(schema: Schema, old: list[Any], new: list[Any]) -> list[Any]:
    item_key = item_key_of(schema)
    if not any(isinstance(item, dict) for item in (*old, *new)):
        items = {item_key(item): item for item in (*old, *new)}
        return sort_items(list(items.values()), new, old, item_key)
    if not schema.get(MERGE_KEY):
        raise InvalidPatch("cannot merge lists of maps without a merge key")
    remaining, updates = apply_list_directives(old, new, item_key)
    result = list(remaining)
    positions = {item_key(item): index for index, item in enumerate(result)}
    for item in updates:
        key = item_key(item)
        if key in positions:
            result[positions[key]] = merge_value(schema.get("items", EMPTY_SCHEMA), result[positions[key]], item)
        else:
            positions[key] = len(result)
            result.append(item)
    return sort_items(result, updates, remaining, item_key)


def apply_list_directives(old: list[Any], new: list[Any], item_key: ItemKey) -> tuple[list[Any], list[Any]]:
    """The old items without those that the patch deletes, and the patch's items without its directives."""
    updates = [item for item in new if not is_directive(item)]
    directives = [item for item in new if is_directive(item)]
    for item in directives:
        if item[DIRECTIVE] not in ("delete", "replace"):
            raise InvalidPatch(f'{DIRECTIVE} in a list is "{item[DIRECTIVE]}", but must be delete or replace')
    if any(item[DIRECTIVE] == "replace" for item in directives):
        return updates, []
    deleted = {item_key(item) for item in directives}
    return [item for item in old if item_key(item) not in deleted], updates


def sort_items(items: list[Any], order: list[Any], old: list[Any], item_key: ItemKey) -> list[Any]:
    """The patch's items in its order; items that only the server has keep their old positions between them."""
    new_index = {item_key(item): index for index, item in reversed(list(enumerate(order)))}
    old_index = {item_key(item): index for index, item in reversed(list(enumerate(old)))}
    patched = sorted(
        (item for item in items if item_key(item) in new_index), key=lambda item: new_index[item_key(item)]
    )
    server_only = [item for item in items if item_key(item) not in new_index]
    server_only.sort(key=lambda item: old_index.get(item_key(item), len(old)))
    merged = []
    while patched and server_only:
        patched_at, server_at = old_index.get(item_key(patched[0])), old_index.get(item_key(server_only[0]))
        server_first = patched_at is not None and server_at is not None and server_at < patched_at
        merged.append((server_only if server_first else patched).pop(0))
    return merged + patched + server_only


def check_order(key: str, new: list[Any], order: list[Any], item_key: ItemKey) -> None:
    """Raises InvalidPatch unless the patch's items are a subsequence of its $setElementOrder."""
    ordered_keys = iter([item_key(item) for item in order])
    keys = [item_key(item) for item in new if not is_directive(item)]
    if order and not all(each in ordered_keys for each in keys):
        raise InvalidPatch(f"the order of {key} in the patch does not match {SET_ELEMENT_ORDER}{key}")


def delete_items(result: Manifest, key: str, deleted: Any) -> None:
    if not isinstance(deleted, list):
        raise InvalidPatch(f"{DELETE_FROM_LIST}{key} must be a list")
    if isinstance(old := result.get(key), list):
        deleted_keys = {to_json(item) for item in deleted}
        result[key] = [item for item in old if to_json(item) not in deleted_keys]


def item_key_of(schema: Schema) -> ItemKey:
    """How list items are identified: by a map's merge key or by the item, as JSON (1 is not true)."""
    key = schema.get(MERGE_KEY)

    def item_key(item: Any) -> str:
        if not isinstance(item, dict):
            return to_json(item)
        if key not in item:
            raise InvalidPatch(f"map does not contain the merge key {key}: {to_json(item)}")
        return to_json(item[key])

    return item_key


def schema_of_field(schema: Schema, key: str) -> Schema:
    properties: dict[str, Schema] = schema.get("properties", EMPTY_SCHEMA)
    schema = properties.get(key) or schema.get("additionalProperties", EMPTY_SCHEMA)
    return schema if isinstance(schema, dict) else EMPTY_SCHEMA


def patch_strategies(schema: Schema) -> list[str]:
    return str(schema.get(PATCH_STRATEGY, "")).split(",")


def without_directives(value: Any) -> Any:
    """A value that the patch adds, without directives and nulls."""
    if isinstance(value, dict):
        fields = {key: each for key, each in value.items() if each is not None and not key.startswith("$")}
        return {key: without_directives(each) for key, each in fields.items() if not is_directive(each)}
    if isinstance(value, list):
        return [without_directives(each) for each in value if not is_directive(each)]
    return value


def is_directive(value: Any) -> bool:
    return isinstance(value, dict) and DIRECTIVE in value
