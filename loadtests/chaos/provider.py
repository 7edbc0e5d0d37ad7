"""Ray's autoscaler finds its hosts here: a node provider that asks `loadtests.chaos.cloud`, on the head."""

from __future__ import annotations

import json
from typing import Any
from urllib.request import Request, urlopen

from ray.autoscaler.node_provider import NodeProvider

TIMEOUT_S = 30.0


class Hosts(NodeProvider):
    """Hosts that a cloud rents, by their ids."""

    def __init__(self, provider_config: dict[str, Any], cluster_name: str) -> None:
        super().__init__(provider_config, cluster_name)
        self._address: str = provider_config["address"]
        self._hosts: dict[str, dict[str, Any]] = {}  # as last listed

    def non_terminated_nodes(self, tag_filters: dict[str, str]) -> list[str]:
        """List the hosts with these tags."""
        self._hosts = json.loads(self._ask("GET"))
        return [name for name, host in self._hosts.items() if tag_filters.items() <= host["tags"].items()]

    def is_running(self, node_id: str) -> bool:
        """Tell whether a host was listed."""
        return node_id in self._hosts

    def is_terminated(self, node_id: str) -> bool:
        """Tell whether it was not."""
        return node_id not in self._hosts

    def node_tags(self, node_id: str) -> dict[str, str]:
        """Return the tags that a host was made with."""
        tags: dict[str, str] = self._hosts[node_id]["tags"]
        return tags

    def internal_ip(self, node_id: str) -> str:
        """Return a host's address."""
        ip: str = self._hosts[node_id]["ip"]
        return ip

    external_ip = internal_ip

    def create_node_with_resources_and_labels(
        self,
        node_config: dict[str, Any],
        tags: dict[str, str],
        count: int,
        resources: dict[str, float],
        labels: dict[str, str],
    ) -> None:
        """Rent hosts."""
        self._ask("POST", body=json.dumps({"tags": tags, "count": count, "resources": resources}).encode())

    def terminate_node(self, node_id: str) -> None:
        """Give a host back."""
        self._ask("DELETE", f"/{node_id}")

    def _ask(self, method: str, path: str = "/", body: bytes | None = None) -> bytes:
        with urlopen(Request(self._address + path, body, method=method), timeout=TIMEOUT_S) as answer:
            content: bytes = answer.read()
        return content
