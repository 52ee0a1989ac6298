# Copyright (c) 2026, The sparkgate.blackwell authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Three networks: management with a way out, the fabric, and the registry's, which only the head joins."""

from __future__ import annotations

import ipaddress
import re
import subprocess
import typing as t
from dataclasses import dataclass

import docker
from docker.errors import APIError
from docker.models.networks import Network
from docker.types import IPAMConfig, IPAMPool

from . import settings as s
from .progress import Progress

MANAGEMENT, FABRIC, REGISTRY = "management", "fabric", "registry"
POOL = ipaddress.ip_network("10.224.0.0/12")


@dataclass(frozen=True)
class Segment:
    name: str
    network: Network
    subnet: ipaddress.IPv4Network

    def address(self, number: int) -> str:
        return str(self.subnet[number])


def taken(client: docker.DockerClient) -> list[ipaddress.IPv4Network]:
    """What this machine routes to, and what its engine has given away."""
    found = []
    routes = subprocess.run(
        ["ip", "-4", "route", "show", "table", "all"], capture_output=True, text=True, check=False
    ).stdout
    texts = re.findall(r"(?:^|\s)(\d+\.\d+\.\d+\.\d+(?:/\d+)?)", routes)
    for network in client.networks.list():
        texts += [
            str(entry["Subnet"]) for entry in (network.attrs.get("IPAM", {}).get("Config") or []) if "Subnet" in entry
        ]
    for text in texts:
        try:
            found.append(ipaddress.IPv4Network(text, strict=False))
        except ValueError:
            continue
    return found


def free_subnets(used: list[ipaddress.IPv4Network]) -> t.Iterator[ipaddress.IPv4Network]:
    for subnet in POOL.subnets(new_prefix=24):
        assert isinstance(subnet, ipaddress.IPv4Network)
        if not any(subnet.overlaps(other) for other in used):
            yield subnet


def ours(client: docker.DockerClient) -> dict[str, Network]:
    prefix = f"{s.PREFIX}-"
    found = client.networks.list(filters=s.OURS)
    return {str(network.name).removeprefix(prefix): network for network in found}


def ensure(client: docker.DockerClient, progress: Progress) -> dict[str, Segment]:
    there = ours(client)
    free = free_subnets(taken(client))
    for name in (MANAGEMENT, FABRIC, REGISTRY):
        if name in there:
            continue
        subnet = next(free)
        options = {}
        if s.PREFIX == "sparkgate-lab":
            options["com.docker.network.bridge.name"] = f"sg-{name}"  # to know it by in `ip link`
        if name == FABRIC:
            options["com.docker.network.driver.mtu"] = "9000"
        pool = IPAMPool(subnet=str(subnet), gateway=str(subnet[1]))
        try:
            # only management has a way out, and with it the default route
            there[name] = client.networks.create(
                f"{s.PREFIX}-{name}",
                driver="bridge",
                internal=name != MANAGEMENT,
                options=options,
                labels=s.LABELS,
                ipam=IPAMConfig(pool_configs=[pool]),
            )
        except APIError as error:
            raise s.LabError(f"The engine refused the {name} network {subnet}: {error.explanation}") from error
        progress.changed(f"network {name}: {subnet}")
    segments = {}
    for name, network in there.items():
        network.reload()
        segments[name] = Segment(name, network, ipaddress.IPv4Network(network.attrs["IPAM"]["Config"][0]["Subnet"]))
    return segments
