"""The operator's image. It is not built here; its inputs are compared with what the manager imports."""

import json
import re
import subprocess
import sys
from importlib.metadata import packages_distributions

from tests.images.programs import IMAGES
from tests.install.installation import MANAGER, OPERATOR, parse_objects

FOLDER = IMAGES / "controller"
DOCKERFILE = (FOLDER / "Dockerfile").read_text()
PINNED = re.compile(r"^([A-Za-z0-9._-]+)==", re.MULTILINE)
UNLOCKED = {"paddle-operator", "typing-extensions"}  # the latter is required before Python 3.13 only
PRINT_IMPORTED_MODULES = """\
import json, sys
before = {*sys.modules}
import paddle_operator.manager
paddle_operator.manager.loop_factory()
print(json.dumps(sorted({name.partition(".")[0] for name in sys.modules.keys() - before})))
"""


def canonical_name(name: str) -> str:
    return re.sub(r"[-_.]+", "-", name).lower()


def test_image_has_every_imported_package() -> None:
    result = subprocess.run([sys.executable, "-c", PRINT_IMPORTED_MODULES], capture_output=True, text=True, check=True)
    distributions = packages_distributions()
    needed = {canonical_name(distributions[name][0]) for name in json.loads(result.stdout) if name in distributions}
    locked = {canonical_name(name) for name in PINNED.findall((FOLDER / "requirements.lock").read_text())}
    assert needed - UNLOCKED <= locked


def test_image_user_and_entrypoint_match_the_manifest() -> None:
    (container,) = parse_objects(OPERATOR.read_text())[MANAGER]["spec"]["template"]["spec"]["containers"]
    assert re.findall(r"^USER (\d+):\d+$", DOCKERFILE, re.MULTILINE) == [str(container["securityContext"]["runAsUser"])]
    assert re.findall(r"^ENTRYPOINT (.*)$", DOCKERFILE, re.MULTILINE) == [json.dumps(container["command"])]
