"""Loads those modules of the training programs that need no Paddle, by file: both programs have a module `data`."""

import importlib.util
import sys
from pathlib import Path
from types import ModuleType

IMAGES = Path(__file__).parent.parent.parent / "images"
RESNET = IMAGES / "demo-resnet/resnet"
WIDE_AND_DEEP = IMAGES / "demo-wide-and-deep/wide_and_deep"


def load_module(program: Path, module: str) -> ModuleType:
    name = f"images_{program.name}_{module}"
    if name not in sys.modules:
        spec = importlib.util.spec_from_file_location(name, program / f"{module}.py")
        assert spec
        assert spec.loader
        sys.modules[name] = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(sys.modules[name])
    return sys.modules[name]
