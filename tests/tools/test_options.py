"""A flag or value without a Chinese meaning is an error that names it, and so is the opposite."""

import pytest
from msgspec.structs import replace

from tools.options import IncompleteTranslation, chinese, options


@pytest.mark.parametrize("name", ["--etcd-server", "log.level"])
def test_missing_meaning_is_named(name: str) -> None:
    translation = chinese()
    meanings = {option: meaning for option, meaning in translation.meanings.items() if option != name}
    with pytest.raises(IncompleteTranslation, match=f"{name} has no Chinese meaning$"):
        options(replace(translation, meanings=meanings))


@pytest.mark.parametrize("name", ["--no-more", "no.more"])
def test_superfluous_meaning_is_named(name: str) -> None:
    translation = chinese()
    with pytest.raises(IncompleteTranslation, match=f"{name} has a Chinese meaning, but is not a flag or value$"):
        options(replace(translation, meanings=translation.meanings | {name: "旧的参数"}))
