"""What the server sends is read in one go, and what cannot be read hides nothing else."""

import pytest

from paddle_operator.kube.decoding import Unreadable, read_changes, read_one, read_page
from paddle_operator.kube.errors import DecodeError
from paddle_operator.kube.objects import PODS, Added, Bookmark, Deleted, Error, Meta, Modified

GOOD = b'{"metadata": {"name": "good", "resourceVersion": "5"}, "status": {"phase": "Running"}}'
BAD = b'{"metadata": {"name": "bad", "uid": "u", "resourceVersion": "6"}, "status": {"phase": 5}}'
WHY_BAD = "Expected `str`, got `int` - at `$.status.phase`"


def a_page(*items: bytes, more: bytes = b"") -> bytes:
    return b'{"metadata": {"resourceVersion": "9", "continue": "%s"}, "items": [%s]}' % (more, b",".join(items))


def a_change(kind: str, item: bytes) -> bytes:
    return b'{"type": "%s", "object": %s}' % (kind.encode(), item)


def test_page_has_version_objects_and_continue_token() -> None:
    page, more = read_page(PODS, a_page(GOOD, more=b"token"))
    assert (page.version, more) == ("9", "token")
    assert [(pod.key.name, pod.status.phase) for pod in page.items] == [("good", "Running")]
    assert page.unreadable == []


@pytest.mark.parametrize("items", [b'"items": []', b'"items": null', b'"kind": "PodList"'])
def test_page_without_items_is_empty(items: bytes) -> None:
    page, more = read_page(PODS, b'{"metadata": {"resourceVersion": "9"}, %s}' % items)
    assert (page.version, page.items, page.unreadable, more) == ("9", [], [], "")


def test_undecodable_object_leaves_the_rest_of_its_page() -> None:
    page, more = read_page(PODS, a_page(GOOD, BAD, GOOD, more=b"token"))
    assert (page.version, more, len(page.items)) == ("9", "token", 2)
    assert page.unreadable == [Unreadable(Meta(name="bad", uid="u", resource_version="6"), WHY_BAD)]


def test_an_object_whose_name_cannot_be_read_either_is_nobodys() -> None:
    page, _ = read_page(PODS, a_page(GOOD, b'{"metadata": {"labels": 5}}', b"5"))
    assert len(page.items) == 1
    assert [unreadable.metadata for unreadable in page.unreadable] == [Meta(), Meta()]


def test_lines_of_every_kind_are_read_in_order() -> None:
    status = b'{"code": 410, "reason": "Expired"}'
    bookmark = b'{"metadata": {"resourceVersion": "8"}}'
    lines = [a_change("ADDED", GOOD), a_change("MODIFIED", GOOD), a_change("DELETED", GOOD)]
    lines += [a_change("BOOKMARK", bookmark), a_change("ERROR", status)]
    changes = read_changes(PODS, b"\n".join(lines))
    assert [type(change) for change in changes] == [Added, Modified, Deleted, Bookmark, Error]
    assert isinstance(changes[3], Bookmark)
    assert changes[3].object.version == 8
    assert isinstance(changes[4], Error)
    assert changes[4].object.code == 410


def test_undecodable_change_leaves_its_neighbours() -> None:
    lines = [a_change("ADDED", GOOD), a_change("MODIFIED", BAD), b"", a_change("DELETED", BAD), a_change("ADDED", GOOD)]
    first, modified, deleted, last = read_changes(PODS, b"\n".join(lines))
    assert isinstance(first, Added)
    assert isinstance(last, Added)
    assert isinstance(modified, Unreadable)
    assert isinstance(deleted, Unreadable)
    assert (modified.metadata.key.name, modified.deleted, deleted.deleted) == ("bad", False, True)
    assert modified.problem == WHY_BAD.replace("$.status", "$.object.status")


def test_a_kind_of_change_that_is_unknown_to_us_is_left_out() -> None:
    [unreadable] = read_changes(PODS, a_change("REVISED", GOOD))
    assert isinstance(unreadable, Unreadable)
    assert unreadable.metadata.name == "good"


def test_text_that_is_no_utf_8_spoils_its_own_object_only() -> None:
    broken = BAD.replace(b"5}", b'"\xff"}')
    page, _ = read_page(PODS, a_page(GOOD, broken))
    assert [pod.key.name for pod in page.items] == ["good"]
    assert [unreadable.metadata.name for unreadable in page.unreadable] == ["bad"]
    _, unreadable = read_changes(PODS, a_change("ADDED", GOOD) + b"\n" + a_change("ADDED", broken))
    assert isinstance(unreadable, Unreadable)


@pytest.mark.parametrize("body", [b"", b"<html>", b'{"metadata": {', b"\xff", b"[]", b'{"items": 5}'])
def test_what_is_no_answer_of_an_api_server_is_one_sentence(body: bytes) -> None:
    for read in (read_one, read_page, read_changes):
        if (read, body) in ((read_changes, b""), (read_one, b'{"items": 5}')):
            continue  # no lines are no changes, and every object is a Pod of whom little is known
        with pytest.raises(DecodeError, match="cannot decode the server's pods: ") as told:
            read(PODS, body)
        assert "\n" not in str(told.value)
        assert told.value.__cause__ is None


def test_an_object_by_itself_is_read_or_refused() -> None:
    assert read_one(PODS, GOOD).status.phase == "Running"
    with pytest.raises(DecodeError, match="Expected `str`, got `int`"):
        read_one(PODS, BAD)


@pytest.mark.parametrize("depth", [900, 9_000])
def test_deeply_nested_object_hides_no_other(depth: int) -> None:
    deep = b'{"metadata": {"name": "deep"}, "else": %s1%s}' % (b'{"a":' * depth, b"}" * depth)
    page, _ = read_page(PODS, a_page(deep, GOOD))
    assert [pod.key.name for pod in page.items] == ["deep", "good"]
    assert len(read_changes(PODS, a_change("ADDED", deep) + b"\n" + a_change("ADDED", GOOD))) == 2
