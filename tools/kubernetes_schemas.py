"""Stores the OpenAPI schemas of the kinds of local mode, read from the test bed's API server.

`python -m tools.kubernetes_schemas` writes both files; a cluster test fails if that would change them. Descriptions
have a file of their own: they are three quarters of the text, and only `kubectl explain` reads them.
"""

import asyncio
import gzip
import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from testbed.assets import ensure_binaries
from testbed.control_plane import ControlPlane

Schema = dict[str, Any]

DIRECTORY = Path(__file__).parent.parent / "src/paddle_operator/local/apiserver/scheme"
SCHEMAS = DIRECTORY / "kubernetes_schemas.json.gz"
DESCRIPTIONS = DIRECTORY / "kubernetes_descriptions.json.gz"

DOCUMENTS = ("api/v1", "apis/coordination.k8s.io/v1", "apis/events.k8s.io/v1")
CORE = "io.k8s.api.core.v1."
META = "io.k8s.apimachinery.pkg.apis.meta.v1."
ROOTS = (
    *(CORE + kind for kind in ("ConfigMap", "Event", "Namespace", "Node", "PersistentVolume", "PersistentVolumeClaim")),
    *(CORE + kind for kind in ("Pod", "Secret", "Service")),
    "io.k8s.api.coordination.v1.Lease",
    "io.k8s.api.events.v1.Event",
)

# What OpenAPI does not show: the fields that are pointers in Go, so that their zero (false, 0, "") is not left out when
# an object is stored. From k8s.io/api v0.36; tests/local/served/test_schema_cluster.py stores zeros in both servers.
POINTERS = f"""
{META}ObjectMeta deletionGracePeriodSeconds
{META}OwnerReference controller blockOwnerDeletion
io.k8s.api.coordination.v1.LeaseSpec holderIdentity leaseDurationSeconds leaseTransitions strategy preferredHolder
{CORE}AppArmorProfile localhostProfile
{CORE}AzureDiskVolumeSource cachingMode fsType readOnly kind
{CORE}CSIVolumeSource readOnly fsType
{CORE}ClientIPConfig timeoutSeconds
{CORE}ClusterTrustBundleProjection name signerName optional
{CORE}ConfigMap immutable
{CORE}ConfigMapEnvSource optional
{CORE}ConfigMapKeySelector optional
{CORE}ConfigMapProjection optional
{CORE}ConfigMapVolumeSource defaultMode optional
{CORE}Container restartPolicy
{CORE}ContainerStatus started stopSignal
{CORE}DownwardAPIVolumeFile mode
{CORE}DownwardAPIVolumeSource defaultMode
{CORE}EphemeralContainer restartPolicy
{CORE}FCVolumeSource lun
{CORE}FileKeySelector optional
{CORE}GRPCAction service
{CORE}HostPathVolumeSource type
{CORE}KeyToPath mode
{CORE}Lifecycle stopSignal
{CORE}LoadBalancerIngress ipMode
{CORE}LocalVolumeSource fsType
{CORE}NodeRuntimeHandlerFeatures recursiveReadOnlyMounts userNamespaces
{CORE}NodeFeatures supplementalGroupsPolicy
{CORE}PersistentVolumeClaimSpec storageClassName volumeMode volumeAttributesClassName
{CORE}PersistentVolumeClaimStatus currentVolumeAttributesClassName
{CORE}PersistentVolumeSpec volumeMode volumeAttributesClassName
{CORE}PodDNSConfigOption value
{CORE}PodResourceClaim resourceClaimName resourceClaimTemplateName
{CORE}PodSecurityContext runAsUser runAsGroup runAsNonRoot supplementalGroupsPolicy fsGroup fsGroupChangePolicy
{CORE}PodSecurityContext seLinuxChangePolicy
{CORE}PodSpec terminationGracePeriodSeconds activeDeadlineSeconds automountServiceAccountToken shareProcessNamespace
{CORE}PodSpec priority runtimeClassName enableServiceLinks preemptionPolicy setHostnameAsFQDN hostUsers hostnameOverride
{CORE}Probe terminationGracePeriodSeconds
{CORE}ProjectedVolumeSource defaultMode
{CORE}SeccompProfile localhostProfile
{CORE}Secret immutable
{CORE}SecretEnvSource optional
{CORE}SecretKeySelector optional
{CORE}SecretProjection optional
{CORE}SecretVolumeSource defaultMode optional
{CORE}SecurityContext privileged runAsUser runAsGroup runAsNonRoot readOnlyRootFilesystem allowPrivilegeEscalation
{CORE}SecurityContext procMount
{CORE}ServiceAccountTokenProjection expirationSeconds
{CORE}ServicePort appProtocol
{CORE}ServiceSpec ipFamilyPolicy allocateLoadBalancerNodePorts loadBalancerClass internalTrafficPolicy
{CORE}ServiceSpec trafficDistribution
{CORE}Toleration tolerationSeconds
{CORE}TopologySpreadConstraint minDomains nodeAffinityPolicy nodeTaintsPolicy
{CORE}TypedLocalObjectReference apiGroup
{CORE}TypedObjectReference apiGroup namespace
{CORE}VolumeMount recursiveReadOnly mountPropagation
{CORE}VolumeMountStatus recursiveReadOnly
{CORE}WindowsSecurityContextOptions gmsaCredentialSpecName gmsaCredentialSpec runAsUserName hostProcess
"""


def reachable(definitions: Mapping[str, Schema]) -> dict[str, Schema]:
    """The definitions of ROOTS and all that they refer to, by name."""
    found: dict[str, Schema] = {}
    waiting = list(ROOTS)
    while waiting:
        name = waiting.pop()
        if name not in found:
            found[name] = definitions[name]
            waiting += references(definitions[name])
    return dict(sorted(found.items()))


def references(schema: object) -> Iterator[str]:
    if isinstance(schema, dict):
        if isinstance(target := schema.get("$ref"), str):
            yield target.rpartition("/")[2]
        for value in schema.values():
            yield from references(value)
    elif isinstance(schema, list):
        for value in schema:
            yield from references(value)


def without_descriptions(definition: Schema) -> Schema:
    """Without the descriptions, which only a definition and its fields have."""
    result = {key: value for key, value in definition.items() if key != "description"}
    if "properties" in result:
        result["properties"] = {name: without_descriptions(field) for name, field in result["properties"].items()}
    return result


def descriptions_of(definition: Schema) -> dict[str, str]:
    """The description of a definition under the empty name, and those of its fields."""
    fields = {"": definition} | definition.get("properties", {})
    return {name: field["description"] for name, field in fields.items() if "description" in field}


def pointers(definitions: Mapping[str, Schema]) -> dict[str, list[str]]:
    """The fields of POINTERS by definition. Raises KeyError for a field that no longer exists."""
    found: dict[str, list[str]] = {}
    for line in POINTERS.strip().splitlines():
        name, *fields = line.split()
        known = definitions[name]["properties"]
        found[name] = [*found.get(name, ()), *(field for field in fields if known[field] is not None)]
    return found


def contents(definitions: Mapping[str, Schema], version: Schema) -> tuple[str, str]:
    """The text of both files."""
    used = reachable(definitions)
    schemas = {
        "version": version,
        "pointers": pointers(used),
        "definitions": {name: without_descriptions(each) for name, each in used.items()},
    }
    return as_text(schemas), as_text({name: descriptions_of(each) for name, each in used.items()})


def as_text(content: Schema) -> str:
    return json.dumps(content, sort_keys=True, separators=(",", ":"), ensure_ascii=False)


async def fetch_schemas(control_plane: ControlPlane) -> tuple[str, str]:
    """The text of both files, from the API server."""
    definitions: dict[str, Schema] = {}
    for path in DOCUMENTS:
        document = json.loads(await control_plane.kubectl("get", "--raw", f"/openapi/v3/{path}"))
        definitions |= document["components"]["schemas"]
    version = json.loads(await control_plane.kubectl("get", "--raw", "/version"))
    return contents(definitions, {key: version[key] for key in ("major", "minor", "gitVersion")})


def stored_schemas() -> tuple[str, str]:
    return gzip.decompress(SCHEMAS.read_bytes()).decode(), gzip.decompress(DESCRIPTIONS.read_bytes()).decode()


def main() -> None:
    with ControlPlane.start(ensure_binaries()) as control_plane:
        schemas, descriptions = asyncio.run(fetch_schemas(control_plane))
    SCHEMAS.write_bytes(gzip.compress(schemas.encode(), 9, mtime=0))
    DESCRIPTIONS.write_bytes(gzip.compress(descriptions.encode(), 9, mtime=0))


if __name__ == "__main__":
    main()
