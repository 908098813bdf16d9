"""What is in the operator's image beside Python and our own code, as CycloneDX: read off the lock it is built with."""

import json
import re
from pathlib import Path

from paddle_operator import __version__

LOCK = Path(__file__).parent.parent / "images/controller/requirements.lock"
PINNED = re.compile(r"^([A-Za-z0-9._-]+)==(\S+)((?:\s*\\\n\s*--hash=sha256:[0-9a-f]{64})+)", re.MULTILINE)


def sbom() -> str:
    components = [
        {
            "type": "library",
            "name": name,
            "version": version,
            "purl": f"pkg:pypi/{name}@{version}",
            "hashes": [{"alg": "SHA-256", "content": found} for found in re.findall(r"sha256:([0-9a-f]{64})", hashes)],
        }
        for name, version, hashes in PINNED.findall(LOCK.read_text())
    ]
    about = {"component": {"type": "container", "name": "paddle-operator/controller", "version": __version__}}
    whole = {"bomFormat": "CycloneDX", "specVersion": "1.6", "version": 1, "metadata": about, "components": components}
    return json.dumps(whole, indent=1) + "\n"
