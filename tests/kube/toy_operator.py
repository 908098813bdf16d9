"""The smallest complete operator: it copies each ConfigMap `source-N` to one named `copy-N`."""

from paddle_operator.kube.client import Client, Scope
from paddle_operator.kube.clock import Clock, SystemClock
from paddle_operator.kube.controller import Controller
from paddle_operator.kube.errors import AlreadyExists
from paddle_operator.kube.informer import Informer
from paddle_operator.kube.leader_election import Elector
from paddle_operator.kube.manager import Manager
from paddle_operator.kube.objects import CONFIG_MAPS, Key, Manifest, Object
from paddle_operator.kube.work_queue import Priority, Queue
from tests.kube.objects import make_config_map


class ToyOperator:
    """Copies the sources of one namespace and tenant; operators of several tenants can share a namespace."""

    def __init__(
        self,
        client: Client,
        namespace: str,
        *,
        tenant: str = "anyone",
        elector: Elector | None = None,
        idle_seconds: float = 100.0,
        clock: Clock | None = None,
    ) -> None:
        clock = clock or SystemClock()
        self._client = client
        scope = Scope(namespace, labels=f"tenant={tenant}")
        self.sources: Informer[Object, Object] = Informer(
            client, CONFIG_MAPS, scope, idle_seconds=idle_seconds, clock=clock
        )
        self.queue: Queue[Key] = Queue("sources", clock)
        self.sources.store.listen(self._enqueue)
        controller = Controller("sources", self.queue, self._copy, workers=4, clock=clock)
        self.manager = Manager(informers=[self.sources], controllers=[controller], elector=elector)

    def _enqueue(self, _: Object | None, new: Object | None, priority: Priority) -> None:
        if new:
            self.queue.add(new.key, priority)

    async def _copy(self, key: Key) -> None:
        try:
            await self._client.create(CONFIG_MAPS, make_config_map(copy_key(key)))
        except AlreadyExists:  # by an earlier reconcile or leader; get verifies it
            await self._client.get(CONFIG_MAPS, copy_key(key))


def make_source(key: Key, tenant: str = "anyone") -> Manifest:
    manifest = make_config_map(key)
    manifest["metadata"]["labels"] = {"tenant": tenant}
    return manifest


def copy_key(source: Key) -> Key:
    return Key(source.namespace, source.name.replace("source", "copy"))
