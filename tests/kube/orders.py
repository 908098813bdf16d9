"""The smallest operator that has all the parts: it answers each ConfigMap `order-N` with one named `done-N`."""

from paddle_operator.kube.client import Client, Scope
from paddle_operator.kube.clock import Clock, SystemClock
from paddle_operator.kube.controller import Controller
from paddle_operator.kube.errors import AlreadyExists
from paddle_operator.kube.informer import Informer
from paddle_operator.kube.leader_election import Elector
from paddle_operator.kube.manager import Manager
from paddle_operator.kube.objects import CONFIG_MAPS, Key, Manifest, Object
from paddle_operator.kube.work_queue import Priority, Queue
from tests.kube.objects import a_config_map


class OrderDesk:
    """Orders of one namespace; `customer` tells desks that share a namespace apart."""

    def __init__(
        self,
        client: Client,
        namespace: str,
        *,
        customer: str = "anyone",
        elector: Elector | None = None,
        idle_seconds: float = 100.0,
        clock: Clock | None = None,
    ) -> None:
        clock = clock or SystemClock()
        self._client = client
        scope = Scope(namespace, labels=f"customer={customer}")
        self.orders: Informer[Object, Object] = Informer(
            client, CONFIG_MAPS, scope, idle_seconds=idle_seconds, clock=clock
        )
        self.queue: Queue[Key] = Queue("orders", clock)
        self.orders.store.listen(self._noted)
        controller = Controller("orders", self.queue, self._answer, workers=4, clock=clock)
        self.manager = Manager(informers=[self.orders], controllers=[controller], elector=elector)

    def _noted(self, _: Object | None, new: Object | None, lane: Priority) -> None:
        if new:
            self.queue.add(new.key, lane)

    async def _answer(self, key: Key) -> None:
        try:
            await self._client.create(CONFIG_MAPS, a_config_map(answer_to(key)))
        except AlreadyExists:  # an earlier pass, or an earlier leader, has done it; or the server is not to be trusted
            await self._client.get(CONFIG_MAPS, answer_to(key))


def an_order(key: Key, customer: str = "anyone") -> Manifest:
    manifest = a_config_map(key)
    manifest["metadata"]["labels"] = {"customer": customer}
    return manifest


def answer_to(order: Key) -> Key:
    return Key(order.namespace, order.name.replace("order", "done"))
