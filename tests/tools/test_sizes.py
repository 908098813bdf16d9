"""Long functions are counted and named, and too many of them are an error."""

from pathlib import Path

from tools.sizes import Function, functions_of, report


def test_function_length_excludes_decorators(tmp_path: Path) -> None:
    code = "@decorated\ndef outer():\n    async def inner():\n        pass\n    return inner\n"
    (tmp_path / "module.py").write_text(code)
    assert sorted((found.name, found.lines) for found in functions_of(tmp_path)) == [("inner", 2), ("outer", 4)]


def test_five_percent_long_functions_are_too_many() -> None:
    functions = [Function("module.py:1", "long", 41), *(Function("module.py:50", "short", 40) for _ in range(19))]
    text, small_enough = report(functions, {"module.py": 401})
    assert not small_enough
    assert "module.py:1: long has 41 lines" in text
    assert "module.py has 401 lines" in text
    assert report([*functions, functions[1]], {})[1]
