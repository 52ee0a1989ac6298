# Copyright (c) 2026, The sparkgate.blackwell authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

# Note that this module util is **PRIVATE** to the collection. It can have breaking changes at any time.
# Do not use this from other collections or standalone plugins/modules!

from __future__ import annotations

import os
import re
import typing as t

from ansible_collections.sparkgate.blackwell.plugins.module_utils._recon import parse_meminfo

if t.TYPE_CHECKING:
    from ansible_collections.sparkgate.blackwell.plugins.module_utils._recon import Source

# Values of /sys/class/net/NAME/type (linux/if_arp.h).
_LINK_LAYERS = {"1": "Ethernet", "32": "InfiniBand"}


def parse_count(text: str | None) -> int | None:
    """A positive number of sysfs; the kernel says -1 for an unknown speed."""
    return int(text) if text is not None and re.match(r"^\d+$", text) and int(text) > 0 else None


def parse_up(operstate: str | None, carrier: str | None) -> bool | None:
    if operstate in ("up", "down", "lowerlayerdown", "notpresent", "dormant"):
        return operstate == "up"
    return {"1": True, "0": False}.get(carrier or "")


def read_port(source: Source, name: str, addresses: list[dict[str, t.Any]] | None) -> dict[str, t.Any]:
    base = f"/sys/class/net/{name}"
    rdma = source.listdir(f"{base}/device/infiniband")
    layer = source.line(f"/sys/class/infiniband/{rdma[0]}/ports/1/link_layer") if rdma else None
    device = source.readlink(f"{base}/device")
    return {
        "name": name,
        # The link to the device ends in the PCI function on hardware, and in something else on virtual devices.
        "pci": os.path.basename(device) if device and re.search(r"[0-9a-f]{2}\.[0-7]$", device) else False,
        "rdma_device": rdma[0] if rdma else False,
        "twin": None,
        "up": parse_up(source.line(f"{base}/operstate"), source.line(f"{base}/carrier")),
        "speed_mbit": parse_count(source.line(f"{base}/speed")),
        "mtu": parse_count(source.line(f"{base}/mtu")),
        "rdma_active_mtu": None if rdma else False,
        "ipv4": None if addresses is None else [item["address"] for item in addresses if item["interface"] == name],
        "link_layer": layer or _LINK_LAYERS.get(source.line(f"{base}/type") or ""),
        "gid_index": None if rdma else False,
        "peer": None,
    }


def read_fabric(source: Source, uname: t.Any, addresses: list[dict[str, t.Any]] | None) -> dict[str, t.Any]:
    """The C(fabric) document: interfaces that can carry traffic between nodes, and what of the host matters."""
    ports = []
    for name in source.listdir("/sys/class/net"):
        base = f"/sys/class/net/{name}"
        # Bridges and what hangs on them belong to containers and virtual machines.
        if (
            name == "lo"
            or source.exists(f"{base}/bridge")
            or source.exists(f"{base}/brport")
            or not source.exists(f"{base}/operstate")
        ):
            continue
        ports.append(read_port(source, name, addresses))
    memory = parse_meminfo(source.read("/proc/meminfo"))
    return {
        "ports": ports,
        "host": {
            "kernel": uname.release,
            "cmdline": (source.read("/proc/cmdline") or "").strip() or None,
            # A kernel without a contiguous memory area has no such lines.
            "cma_total_bytes": memory.get("CmaTotal", False if memory else None),
            "cma_free_bytes": memory.get("CmaFree", False if memory else None),
            "firmware": source.line("/sys/class/dmi/id/bios_version"),
        },
        "errors": source.errors,
    }
