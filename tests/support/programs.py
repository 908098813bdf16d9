"""Jobs of small programs without Paddle: an image directory with one script, and a YAML beside it."""

from pathlib import Path

import yaml

DOCKERFILE = """\
FROM python
COPY program.py /app/
WORKDIR /app
ENTRYPOINT ["python3", "program.py"]
"""
SLEEP = "import time\nprint('started', flush=True)\ntime.sleep(1000)"


def write_program(
    folder: Path, script: str, *, name: str = "tiny", workers: int = 1, ps: int = 0, **spec: object
) -> list[str]:
    """Write image and YAML of a job that runs the script in every pod; returns the arguments for `paddlejob run`."""
    image = folder / "image"
    image.mkdir(parents=True, exist_ok=True)
    (image / "Dockerfile").write_text(DOCKERFILE)
    (image / "program.py").write_text(script)
    pod = {"terminationGracePeriodSeconds": 2, "containers": [{"name": "paddle", "image": "program:v1"}]}
    roles = {role: {"replicas": count, "template": {"spec": pod}} for role, count in (("ps", ps), ("worker", workers))}
    job = {
        "apiVersion": "batch.paddlepaddle.org/v1",
        "kind": "PaddleJob",
        "metadata": {"name": name},
        "spec": {**{role: each for role, each in roles.items() if each["replicas"]}, **spec},
    }
    path = folder / f"{name}.yaml"
    path.write_text(yaml.safe_dump(job))
    return [str(path), "--image", f"program:v1={image}"]
