import os
from collections.abc import Callable
from pathlib import Path

import pytest

from paddle_operator.kube.config.credentials import (
    Credentials,
    InlineSecret,
    KeyPair,
    Secret,
    StaticCredentials,
    WatchedFile,
)
from paddle_operator.kube.errors import Misconfigured
from testbed.clock import FakeClock


def rewritten_within_one_stamp(path: Path, text: str) -> None:
    stamp = path.stat().st_mtime_ns
    path.write_text(text)
    os.utime(path, ns=(stamp, stamp))


def replaced(path: Path, text: str) -> None:
    """Replace a file as kubelet does: the path points to another file from one moment to the next."""
    new = path.with_suffix(".new")
    new.write_text(text)
    new.rename(path)


@pytest.fixture
def clock() -> FakeClock:
    return FakeClock()


@pytest.fixture
def token_file(tmp_path: Path) -> Path:
    path = tmp_path / "token"
    path.write_text(" one\n")
    return path


def watched(path: Path, clock: FakeClock, fallback: Secret | None = None) -> WatchedFile:
    return WatchedFile(f"tokenFile {path} of user x", path, clock, fallback)


async def test_replaced_file_is_read_after_a_second(token_file: Path, clock: FakeClock) -> None:
    source = watched(token_file, clock)
    assert source.content().reveal() == "one"
    replaced(token_file, "two")
    assert source.content().reveal() == "one"
    await clock.advance(1)
    assert source.content().reveal() == "two"


async def test_a_file_whose_stamp_lies_is_read_again_after_a_minute(token_file: Path, clock: FakeClock) -> None:
    source = watched(token_file, clock)
    source.content()
    rewritten_within_one_stamp(token_file, " two\n")
    await clock.advance(59)
    assert source.content().reveal() == "one"
    await clock.advance(1)
    assert source.content().reveal() == "two"


@pytest.mark.parametrize("half_way", [Path.unlink, lambda path: path.write_text("\n")])
async def test_half_replaced_file_keeps_its_last_text(
    token_file: Path, clock: FakeClock, half_way: Callable[[Path], object]
) -> None:
    source = watched(token_file, clock)
    source.content()
    half_way(token_file)
    await clock.advance(2)
    assert source.content().reveal() == "one"
    replaced(token_file, "two")
    await clock.advance(2)
    assert source.content().reveal() == "two"


async def test_a_file_that_never_held_anything_is_named(tmp_path: Path, clock: FakeClock) -> None:
    source = watched(tmp_path / "token", clock)
    with pytest.raises(Misconfigured, match=r"tokenFile .*/token of user x cannot be used: No such file"):
        source.content()
    (tmp_path / "token").write_text("  \n")
    with pytest.raises(Misconfigured, match="cannot be used: it is empty; write the file, or name the right one"):
        source.content()


async def test_fallback_text_is_used_while_a_file_is_unreadable(tmp_path: Path, clock: FakeClock) -> None:
    source = watched(tmp_path / "token", clock, fallback=Secret("inline"))
    assert source.content().reveal() == "inline"
    (tmp_path / "token").write_text("from the file")
    assert source.content().reveal() == "from the file"


async def test_a_proof_is_the_same_object_until_something_changes(token_file: Path, clock: FakeClock) -> None:
    credential = StaticCredentials(watched(token_file, clock))
    first = await credential.credentials()
    await clock.advance(100)
    assert await credential.credentials() is first
    replaced(token_file, "two")
    await clock.advance(1)
    assert await credential.credentials() == Credentials(Secret("two"))


async def test_a_fixed_token_is_not_tried_twice(clock: FakeClock) -> None:
    credential = StaticCredentials(InlineSecret("the token of user x", Secret("one")))
    assert not await credential.renew(await credential.credentials())
    assert not await credential.renew(None)


async def test_an_anonymous_user_has_nothing_to_renew() -> None:
    credential = StaticCredentials()
    assert await credential.credentials() == Credentials()
    assert not await credential.renew(None)


async def test_refused_token_is_renewed_only_by_a_new_one(token_file: Path, clock: FakeClock) -> None:
    credential = StaticCredentials(watched(token_file, clock))
    refused = await credential.credentials()
    assert not await credential.renew(refused)
    replaced(token_file, "two")
    assert await credential.renew(refused), "at once, without waiting for the next look"
    assert await credential.renew(refused), "the second of two requests that the old token failed finds the new one too"
    assert not await credential.renew(await credential.credentials())


async def test_missing_refused_token_names_its_file(token_file: Path, clock: FakeClock) -> None:
    credential = StaticCredentials(watched(token_file, clock))
    refused = await credential.credentials()
    os.remove(token_file)
    assert await credential.renew(refused)
    with pytest.raises(Misconfigured, match="No such file"):
        await credential.credentials()


def test_nothing_that_holds_a_secret_shows_it() -> None:
    secret = Secret("s3cr3t")
    pair = KeyPair(Secret("certificate"), secret)
    assert "s3cr3t" not in f"{secret} {secret!r} {secret!s:>20} {pair} {Credentials(secret, pair)!r} {[secret]}"
    assert Secret("s3cr3t") == secret
    assert Secret("other") != secret
    assert secret != "s3cr3t"
    assert len({secret, Secret("s3cr3t")}) == 1
