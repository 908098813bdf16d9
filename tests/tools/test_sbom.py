"""The SBOM names each package with its version and hash."""

import json

from tools.sbom import LOCK, cyclonedx, locked_components, reported_components, sbom


def test_image_sbom_lists_the_whole_lock_file() -> None:
    pinned = [line.split("==")[0] for line in LOCK.read_text().splitlines() if "==" in line]
    document = json.loads(sbom())
    assert [component["name"] for component in document["components"]] == pinned
    assert all(component["hashes"] for component in document["components"])


def test_wheel_sbom_leaves_out_our_own_package() -> None:
    def item(name: str) -> dict[str, object]:
        hashes = {"sha256": "0" * 64}
        return {"metadata": {"name": name, "version": "1.0"}, "download_info": {"archive_info": {"hashes": hashes}}}

    components = reported_components({"install": [item("paddle-operator"), item("rich"), item("aiohttp")]})
    document = json.loads(cyclonedx("library", "paddle-operator", components))
    assert [component["purl"] for component in document["components"]] == ["pkg:pypi/aiohttp@1.0", "pkg:pypi/rich@1.0"]


def test_every_locked_package_has_a_hash() -> None:
    (found,) = locked_components(f"rich==14.0 \\\n    --hash=sha256:{'a' * 64}\n")
    assert found == ("rich", "14.0", ["a" * 64])
