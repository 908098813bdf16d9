"""A real and a local API server behind one interface; the real one is the reference."""

import asyncio
import base64
import json
import os
import ssl
import subprocess
import urllib.error
import urllib.request
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from testbed.request import TIMEOUT_SECONDS, HTTPResponse, RequestError

Manifest = dict[str, Any]

JSON = "application/json"
MERGE = "application/merge-patch+json"
JSON_PATCH = "application/json-patch+json"
STRATEGIC = "application/strategic-merge-patch+json"
TABLE = "application/json;as=Table;v=v1;g=meta.k8s.io,application/json"

PREFIX_OF = {
    "v1": "/api/v1",
    "coordination.k8s.io/v1": "/apis/coordination.k8s.io/v1",
    "events.k8s.io/v1": "/apis/events.k8s.io/v1",
    "batch.paddlepaddle.org/v1": "/apis/batch.paddlepaddle.org/v1",
    "scheduling.volcano.sh/v1beta1": "/apis/scheduling.volcano.sh/v1beta1",
}
CLUSTER_SCOPED = ("Node", "Namespace", "PersistentVolume")


def leaves(value: Any, path: str = "") -> dict[str, Any]:
    """Every value by its path, for readable comparisons."""
    if isinstance(value, dict) and value:
        return {at: leaf for key in value for at, leaf in leaves(value[key], f"{path}.{key}").items()}
    if isinstance(value, list) and value:
        return {at: leaf for i, each in enumerate(value) for at, leaf in leaves(each, f"{path}[{i}]").items()}
    return {path: value}


@dataclass(frozen=True)
class KubectlServer:
    """A server, a namespace of the test, and a kubectl configured for both."""

    name: str
    url: str
    token: str
    trust: ssl.SSLContext
    namespace: str
    kubectl_program: Path
    home: Path  # of kubectl: each server needs its own discovery cache

    async def send(
        self, method: str, path: str, body: object = None, *, media: str = JSON, accept: str = JSON
    ) -> HTTPResponse:
        return await asyncio.to_thread(self._send, method, path, body, media, accept)

    def _send(self, method: str, path: str, body: object, media: str, accept: str) -> HTTPResponse:
        headers = {"Authorization": f"Bearer {self.token}", "Content-Type": media, "Accept": accept}
        data = None if body is None else json.dumps(body).encode()
        request = urllib.request.Request(f"{self.url}{path}", data=data, headers=headers, method=method)
        opener = urllib.request.build_opener(
            urllib.request.ProxyHandler({}), urllib.request.HTTPSHandler(context=self.trust)
        )
        try:
            with opener.open(request, timeout=TIMEOUT_SECONDS) as reply:
                return HTTPResponse(reply.status, reply.read())
        except urllib.error.HTTPError as error:
            with error:
                return HTTPResponse(error.code, error.read())

    def path(self, manifest: Manifest, *, name: str = "") -> str:
        """The path of the collection of an object's kind, or of one object."""
        scope = "" if manifest["kind"] in CLUSTER_SCOPED else f"/namespaces/{self.namespace}"
        collection = f"{PREFIX_OF[manifest['apiVersion']]}{scope}/{manifest['kind'].lower()}s"
        return f"{collection}/{name}" if name else collection

    async def create(self, manifest: Manifest, query: str = "") -> HTTPResponse:
        return await self.send("POST", self.path(manifest) + query, manifest)

    async def create_and_get(self, manifest: Manifest, query: str = "") -> Manifest:
        """Create an object; returns the stored one. Fails the test on an error."""
        reply = await self.create(manifest, query)
        assert reply.status == 201, f"{self.name}: {reply.body.decode()}"
        stored: Manifest = reply.json()
        return stored

    async def kubectl(self, *arguments: str, stdin: str = "") -> str:
        """kubectl's output. Raises RequestError with its error message if it fails."""
        process = await self.run_kubectl(*arguments, stdin=stdin)
        if process.returncode != 0:
            raise RequestError(
                f"kubectl {' '.join(arguments)}: {process.stderr.strip()} (exit code {process.returncode})"
            )
        return process.stdout

    async def run_kubectl(self, *arguments: str, stdin: str = "") -> subprocess.CompletedProcess[str]:
        command = [str(self.kubectl_program), f"--kubeconfig={self.kubeconfig}", *arguments]
        environment = {"HOME": str(self.home), "PATH": os.environ["PATH"]}
        return await asyncio.to_thread(
            subprocess.run, command, input=stdin, capture_output=True, text=True, check=False, env=environment
        )

    @property
    def kubeconfig(self) -> Path:
        path = self.home / "config"
        if not path.exists():
            authorities = "".join(ssl.DER_cert_to_PEM_cert(each) for each in self.trust.get_ca_certs(binary_form=True))
            authority = base64.b64encode(authorities.encode()).decode()
            cluster = {"server": self.url, "certificate-authority-data": authority}
            content = {
                "apiVersion": "v1",
                "kind": "Config",
                "clusters": [{"name": "it", "cluster": cluster}],
                "users": [{"name": "me", "user": {"token": self.token}}],
                "contexts": [{"name": "it", "context": {"cluster": "it", "user": "me", "namespace": self.namespace}}],
                "current-context": "it",
            }
            path.write_text(json.dumps(content))
        return path
