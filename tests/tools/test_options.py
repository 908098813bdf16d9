"""A flag or value without a Chinese meaning, and a meaning without its flag or value, are named and refused."""

import pytest
from msgspec.structs import replace

from tools.options import Untranslated, chinese, options


@pytest.mark.parametrize("name", ["--etcd-server", "log.level"])
def test_what_has_no_meaning_is_named(name: str) -> None:
    words = chinese()
    meanings = {option: meaning for option, meaning in words.meanings.items() if option != name}
    with pytest.raises(Untranslated, match=f"{name} has no Chinese meaning$"):
        options(replace(words, meanings=meanings))


@pytest.mark.parametrize("name", ["--no-more", "no.more"])
def test_a_meaning_that_is_left_over_is_named(name: str) -> None:
    words = chinese()
    with pytest.raises(Untranslated, match=f"{name} has a Chinese meaning, but is no flag or value$"):
        options(replace(words, meanings=words.meanings | {name: "旧的参数"}))
