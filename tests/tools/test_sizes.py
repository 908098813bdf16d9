"""Long functions are counted, named, and too many of them refused."""

from pathlib import Path

from tools.sizes import Function, functions_of, report


def test_a_function_is_measured_from_its_name_to_its_last_line(tmp_path: Path) -> None:
    code = "@decorated\ndef outer():\n    async def inner():\n        pass\n    return inner\n"
    (tmp_path / "module.py").write_text(code)
    assert sorted((found.name, found.lines) for found in functions_of(tmp_path)) == [("inner", 2), ("outer", 4)]


def test_one_long_function_of_twenty_is_too_many() -> None:
    functions = [Function("module.py:1", "long", 41), *(Function("module.py:50", "short", 40) for _ in range(19))]
    text, small_enough = report(functions, {"module.py": 401})
    assert not small_enough
    assert "module.py:1: long has 41 lines" in text
    assert "module.py has 401 lines" in text
    assert report([*functions, functions[1]], {})[1]
