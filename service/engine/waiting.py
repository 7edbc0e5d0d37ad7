"""The queue before an engine or a batcher, in which clients take turns.

Clients take turns, a client's requests take turns among themselves, and within a request sequences keep their order. So
a client with a thousand requests delays another client's only one by a single sequence, and a request of a thousand
sentences delays the next one by a single sentence; yet each of them has its turn in every round, and none starves.
"""

from __future__ import annotations

import itertools
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
        self._clients: OrderedDict[str, OrderedDict[Permit, deque[Item]]] = OrderedDict()  # in the order of turns
        self._later: OrderedDict[str, None] = OrderedDict()  # the same clients, in the order of all turns but the first
        self._length = 0

    def __len__(self) -> int:
        return self._length

    def add(self, item: Item) -> None:
        """Queue an item behind its request's others."""
        requests = self._clients.setdefault(item.permit.client, OrderedDict())
        self._later.setdefault(item.permit.client)
        requests.setdefault(item.permit, deque()).append(item)
        self._length += 1

    @property
    def clients(self) -> Set[str]:
        """Who has something that waits."""
        return self._clients.keys()

    def in_turn(self, clients: Set[str] | None = None, last: Set[str] = frozenset()) -> Iterator[Item]:
        """Yield what waits, of all or some clients, in the order of turns; nothing may be added or taken meanwhile.

        The first items of those who are `last` come behind the other clients'.
        """
        queues = {
            client: _round_robin(requests.values())
            for client, requests in self._clients.items()
            if clients is None or client in clients
        }
        for client in sorted(queues, key=last.__contains__):
            yield from itertools.islice(queues[client], 1)
        yield from _round_robin([queues[client] for client in self._later if client in queues])

    def take(self, item: Item) -> None:
        """Remove an item: its request goes behind its client's others, and its client behind the other clients.

        A client whose first item was passed over, as there was no room or it is unlike those that run together, keeps
        its first turn when another of its items goes along, and loses the later ones; so does a request. Its other
        items come after all others' first ones meanwhile.
        """
        client = item.permit.client
        items = self._clients[client][item.permit]
        leads_request = items[0] is item
        is_first = leads_request and next(iter(self._clients[client].values())) is items
        self.remove(item)
        if (requests := self._clients.get(client)) is not None:
            if is_first:
                self._clients.move_to_end(client)
            self._later.move_to_end(client)
            if leads_request and item.permit in requests:
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
            del self._clients[item.permit.client], self._later[item.permit.client]
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
