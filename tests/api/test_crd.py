import json
import subprocess
import sys
from typing import Any

import pytest
import yaml

from paddle_operator.api.crd import crd, crd_v1beta1, subschema
from paddle_operator.api.meta import Condition
from paddle_operator.api.paddlejob import PADDLE_JOB
from paddle_operator.api.paddlejob_rules import SPEC_RULES
from paddle_operator.api.schema import fields_of
from paddle_operator.api.spec import PaddleJobSpec, Role, RoleSpec, SchedulingPolicy
from paddle_operator.api.status import PaddleJobStatus, Reference, RoleStatus
from tests.api.corpus import ROOT
from tools.generate import generated_files
from tools.generated import stale_files

KUBECTL_APPLY_KEEPS = 262_144


def test_what_is_derived_from_the_types_is_not_stale_files() -> None:
    assert stale_files(generated_files()) == []


def test_the_command_says_so_as_well() -> None:
    checked = subprocess.run([sys.executable, "-m", "tools.generate", "--check"], cwd=ROOT, check=False)
    assert checked.returncode == 0


@pytest.mark.parametrize("manifest", [crd(PADDLE_JOB), crd_v1beta1(PADDLE_JOB)], ids=["v1", "v1beta1"])
def test_kubectl_apply_can_keep_the_definition_in_its_annotation(manifest: dict[str, Any]) -> None:
    """With room for what the next Kubernetes adds to a pod."""
    assert len(json.dumps(manifest, separators=(",", ":"))) < 0.75 * KUBECTL_APPLY_KEEPS


def test_the_files_are_what_the_api_server_gets() -> None:
    assert yaml.safe_load((ROOT / "deploy/v1/crd.yaml").read_text()) == crd(PADDLE_JOB)
    assert yaml.safe_load((ROOT / "deploy/v1beta1/crd.yaml").read_text()) == crd_v1beta1(PADDLE_JOB)


def test_the_identity_is_that_of_the_documents() -> None:
    for manifest in (crd(PADDLE_JOB), crd_v1beta1(PADDLE_JOB)):
        assert manifest["metadata"]["name"] == "paddlejobs.batch.paddlepaddle.org"
        assert manifest["spec"]["group"] == "batch.paddlepaddle.org"
        assert manifest["spec"]["names"]["kind"] == "PaddleJob"
        assert manifest["spec"]["names"]["shortNames"] == ["pdj"]
        assert manifest["spec"]["scope"] == "Namespaced"
        assert [version["name"] for version in manifest["spec"]["versions"]] == ["v1"]


def test_number_rules_stand_at_their_field() -> None:
    """Each rule that an API server asks costs it 20 to 30 µs for every write of a job, a status among them."""
    schema = crd(PADDLE_JOB)["spec"]["versions"][0]["schema"]["openAPIV3Schema"]
    alone = [rule for rule in SPEC_RULES if rule.bounds]
    assert len(alone) == 15
    for rule in alone:
        (found,) = subschema(schema, rule.field)["x-kubernetes-validations"]
        assert rule.fix in found["messageExpression"]
    together = schema["properties"]["spec"]["x-kubernetes-validations"]
    assert not any(rule.fix in found.get("messageExpression", "") for rule in alone for found in together)


def test_a_template_is_one_value_to_server_side_apply() -> None:
    """Noted field by field, those of a job with two roles make every write of it a fifth dearer."""
    schema = crd(PADDLE_JOB)["spec"]["versions"][0]["schema"]["openAPIV3Schema"]
    for role in Role:
        assert subschema(schema, f"spec.{role}.template")["x-kubernetes-map-type"] == "atomic"


@pytest.mark.parametrize(
    "kind",
    [PaddleJobSpec, RoleSpec, SchedulingPolicy, PaddleJobStatus, RoleStatus, Reference, Condition],
    ids=lambda kind: kind.__name__,
)
def test_every_field_has_a_description(kind: Any) -> None:
    assert [field.name for field in fields_of(kind) if not field.description] == []
