"""The queue before an engine or a batcher, in which clients take turns.

Clients take turns, a client's requests take turns among themselves, and within a request sequences keep their order. So
a client with a thousand requests delays another client's only one by a single sequence, and a request of a thousand
sentences delays the next one by a single sentence; yet each of them has its turn in every round, and none starves.
"""

from __future__ import annotations

from collections import OrderedDict, deque
from collections.abc import Iterable, Iterator, Set
from typing import Generic, Protocol, TypeVar

from service.engine.admission import Permit


class Waiter(Protocol):
    """What waits in a request's name."""

    @property
    def permit(self) -> Permit:
        """The request's."""


Item = TypeVar("Item", bound=Waiter)
Entry = TypeVar("Entry")


class WaitingQueue(Generic[Item]):
    """Owner of what waits, and of whose turn it is."""

    def __init__(self) -> None:
        self._clients: OrderedDict[str, OrderedDict[Permit, deque[Item]]] = OrderedDict()
        self._length = 0

    def __len__(self) -> int:
        return self._length

    def add(self, item: Item) -> None:
        """Queue an item behind its request's others."""
        requests = self._clients.setdefault(item.permit.client, OrderedDict())
        requests.setdefault(item.permit, deque()).append(item)
        self._length += 1

    @property
    def clients(self) -> Set[str]:
        """Who has something that waits."""
        return self._clients.keys()

    def in_turn(self, clients: Set[str] | None = None) -> Iterator[Item]:
        """Yield what waits, of all or some clients, in the order of turns; nothing may be added or taken meanwhile."""
        return _round_robin(
            _round_robin(requests.values())
            for client, requests in list(self._clients.items())
            if clients is None or client in clients
        )

    def take(self, item: Item) -> None:
        """Remove an item: its request is the last of its client's to have another, and its client if it led them.

        A client whose first request was passed over, as there was no room or it is unlike those that run together,
        keeps its turn when another one goes along.
        """
        client = item.permit.client
        leads = next(iter(self._clients[client])) is item.permit
        self.remove(item)
        if (requests := self._clients.get(client)) is not None:
            if leads:
                self._clients.move_to_end(client)
            if item.permit in requests:
                requests.move_to_end(item.permit)

    def remove(self, item: Item) -> bool:
        """Remove an item out of turn; returns whether it was there."""
        requests = self._clients.get(item.permit.client, OrderedDict())
        items = requests.get(item.permit, deque())
        if item not in items:
            return False
        items.remove(item)
        self._length -= 1
        if not items:
            del requests[item.permit]
        if not requests:
            del self._clients[item.permit.client]
        return True


def _round_robin(groups: Iterable[Iterable[Entry]]) -> Iterator[Entry]:
    """Yield one entry of each group in turn until all are used up."""
    iterators = deque(iter(group) for group in groups)
    while iterators:
        iterator = iterators.popleft()
        try:
            entry = next(iterator)
        except StopIteration:
            continue
        iterators.append(iterator)
        yield entry
