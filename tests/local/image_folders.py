"""Creates folders with a Dockerfile, and wheels that need no network."""

import zipfile
from pathlib import Path

PYTHON_ONLY = "--no-index --no-deps"


def make_image_folder(folder: Path, dockerfile: str, **files: str) -> Path:
    """Create an image's folder; the keyword `train__py` is the file train.py."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "Dockerfile").write_text(dockerfile)
    for name, text in files.items():
        path = folder / name.replace("__", ".")
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    return folder


def make_wheel(folder: Path, name: str, version: str = "1.0", says: str = "hello") -> str:
    """Create a wheel with one module and one program of its name, and return its file name."""
    folder.mkdir(parents=True, exist_ok=True)
    file = f"{name}-{version}-py3-none-any.whl"
    dist_info = f"{name}-{version}.dist-info"
    contents = {
        f"{name}.py": f"WORD = {says!r}\ndef main():\n    print(WORD)\n",
        f"{dist_info}/METADATA": f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n",
        f"{dist_info}/WHEEL": "Wheel-Version: 1.0\nGenerator: tests\nRoot-Is-Purelib: true\nTag: py3-none-any\n",
        f"{dist_info}/entry_points.txt": f"[console_scripts]\n{name} = {name}:main\n",
    }
    record = "".join(f"{path},,\n" for path in (*contents, f"{dist_info}/RECORD"))
    with zipfile.ZipFile(folder / file, "w") as wheel:
        for path, text in {**contents, f"{dist_info}/RECORD": record}.items():
            wheel.writestr(path, text)
    return file
