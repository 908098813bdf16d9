"""Every error is one class of a tree, and one sentence."""

import re
from collections.abc import Iterator

import pytest

from paddle_operator.kube import errors
from paddle_operator.kube.errors import (
    AlreadyExists,
    APIStatusError,
    Conflict,
    Details,
    Expired,
    Forbidden,
    Invalid,
    KubeError,
    NotFound,
    ServerFault,
    Status,
    TooManyRequests,
    Unauthorized,
    describe_os_error,
    error_of_status,
)

SOURCE = 'context "here" of ~/.kube/config'


def drawn_tree() -> Iterator[tuple[str, str]]:
    """Each class of the drawing at the module's head with the class that it hangs from."""
    path: list[str] = []
    for line in (errors.__doc__ or "").splitlines():
        if found := re.match(r"((?:│   |    )*)(├── |└── |)([A-Z]\w+)(?:\s{2,}|$)", line):
            depth = len(found[1]) // 4 + bool(found[2])
            path[depth:] = [found[3]]
            yield found[3], path[depth - 1] if depth else "Exception"


def existing_tree(root: type[KubeError] = KubeError) -> Iterator[tuple[str, str]]:
    yield root.__name__, root.__bases__[0].__name__
    for child in root.__subclasses__():
        if child.__module__ == errors.__name__:
            yield from existing_tree(child)


def test_error_tree_in_the_docstring_is_complete() -> None:
    drawn = list(drawn_tree())
    assert len(drawn) == len(set(drawn))
    assert set(drawn) == set(existing_tree())


@pytest.mark.parametrize(
    ("code", "reason", "kind"),
    [
        (400, "BadRequest", Invalid),
        (401, "Unauthorized", Unauthorized),
        (403, "Forbidden", Forbidden),
        (404, "NotFound", NotFound),
        (405, "MethodNotAllowed", APIStatusError),
        (409, "AlreadyExists", AlreadyExists),
        (409, "Conflict", Conflict),
        (409, "", Conflict),
        (410, "Expired", Expired),
        (410, "Gone", Expired),
        (413, "RequestEntityTooLarge", APIStatusError),
        (422, "Invalid", Invalid),
        (429, "TooManyRequests", TooManyRequests),
        (500, "InternalError", ServerFault),
        (503, "ServiceUnavailable", ServerFault),
        (504, "Timeout", ServerFault),
    ],
)
def test_a_refusal_is_told_apart_by_code_and_reason(code: int, reason: str, kind: type[APIStatusError]) -> None:
    error = error_of_status("get pods default/a", Status(code, reason, "the server's words"), retry_after=3)
    assert type(error) is kind
    assert str(error).startswith(f"get pods default/a: the server's words ({code})")
    assert (error.about, error.status.code, error.retry_after) == ("get pods default/a", code, 3)


def test_a_refusal_without_words_is_told_by_its_reason() -> None:
    assert str(error_of_status("get pods a", Status(500, "InternalError"))) == "get pods a: InternalError (500)"
    assert str(error_of_status("get pods a", Status(500))) == "get pods a: no reason given (500)"


def test_words_of_several_lines_become_one() -> None:
    status = Status(502, message="<html>\n  <h1>Bad Gateway</h1>\r\n</html>", details=Details())
    assert str(error_of_status("get pods a", status)) == "get pods a: <html> <h1>Bad Gateway</h1> </html> (502)"


def test_who_is_not_believed_is_told_whose_credentials_they_are() -> None:
    status = Status(401, "Unauthorized", "Unauthorized")
    assert str(error_of_status("get pods a", status, source=SOURCE)) == (
        'get pods a: Unauthorized (401); the credentials of context "here" of ~/.kube/config are missing, wrong or '
        "expired: log in again or renew the token"
    )
    assert "; the credentials are missing" in str(error_of_status("get pods a", status))


def test_only_a_lack_of_rights_is_blamed_on_the_credentials() -> None:
    by_role = Status(403, "Forbidden", 'pods "a" is forbidden: User "jane" cannot get resource "pods"')
    assert str(error_of_status("get pods a", by_role, source=SOURCE)).endswith(
        '(403); the credentials of context "here" of ~/.kube/config do not grant this right: ask for a Role that does'
    )
    by_quota = Status(403, "Forbidden", 'pods "a" is forbidden: exceeded quota: small')
    assert str(error_of_status("create pods a", by_quota, source=SOURCE)).endswith("exceeded quota: small (403)")


def test_an_error_of_the_system_is_told_in_its_words() -> None:
    assert describe_os_error(OSError(111, "[Errno 111] Connect call failed ('127.0.0.1', 1)")) == "Connection refused"
    assert describe_os_error(OSError(-2, "Name or service not known")) == "Name or service not known"
    assert describe_os_error(OSError("no number")) == "no number"
