"""The operator's own image: no Docker is here to build it, so what it is made of is held to what its process needs."""

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
NOT_LOCKED = {"paddle-operator", "typing-extensions"}  # the latter is asked for before Python 3.13 only
IMPORTED = """\
import json, sys
before = {*sys.modules}
import paddle_operator.manager
paddle_operator.manager.loop_factory()
print(json.dumps(sorted({name.partition(".")[0] for name in sys.modules.keys() - before})))
"""


def distribution(name: str) -> str:
    return re.sub(r"[-_.]+", "-", name).lower()


def test_image_has_every_imported_package() -> None:
    mark_answered = subprocess.run([sys.executable, "-c", IMPORTED], capture_output=True, text=True, check=True)
    of_packages = packages_distributions()
    needed = {distribution(of_packages[name][0]) for name in json.loads(mark_answered.stdout) if name in of_packages}
    locked = {distribution(name) for name in PINNED.findall((FOLDER / "requirements.lock").read_text())}
    assert needed - NOT_LOCKED <= locked


def test_image_user_and_entrypoint_match_the_manifest() -> None:
    (container,) = parse_objects(OPERATOR.read_text())[MANAGER]["spec"]["template"]["spec"]["containers"]
    assert re.findall(r"^USER (\d+):\d+$", DOCKERFILE, re.MULTILINE) == [str(container["securityContext"]["runAsUser"])]
    assert re.findall(r"^ENTRYPOINT (.*)$", DOCKERFILE, re.MULTILINE) == [json.dumps(container["command"])]
