# Copyright (c) 2026, The sparkgate.blackwell authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

# Note that this plugin util is **PRIVATE** to the collection. It can have breaking changes at any time.
# Do not use this from other collections or standalone plugins/modules!

from __future__ import annotations

import functools
import ipaddress
import re
import textwrap
import typing as t
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

import yaml
from ansible_collections.sparkgate.blackwell.plugins.plugin_utils._packaging import InvalidVersion, Version

Verdict = dict[str, t.Any]

# "Not asked" differs from None, which is "asked and not known".
MISSING: t.Any = object()

_UNIT_PREFIX = "sparkgate-"
_ORDER = ("fail", "unknown", "warn", "accepted", "ok")


@functools.cache
def node_rules() -> dict[str, t.Any]:
    return t.cast(
        "dict[str, t.Any]", yaml.safe_load((Path(__file__).parent / "node_rules.yml").read_text(encoding="utf-8"))
    )


def human_bytes(value: float) -> str:
    for unit, size in (("TiB", 1 << 40), ("GiB", 1 << 30), ("MiB", 1 << 20), ("KiB", 1 << 10)):
        if value >= size:
            return f"{value / size:.1f} {unit}"
    return f"{int(value)} bytes"


class Verdicts:
    """Collects the verdicts about one node."""

    def __init__(self, host: str | None) -> None:
        self.host = host
        self.all: list[Verdict] = []

    def add(
        self,
        identifier: str,
        status: str,
        summary: str,
        remedy: str | None = None,
        *,
        subject: str | None = None,
        source: str | None = None,
        evidence: t.Any = None,
    ) -> None:
        self.all.append(
            {
                "id": identifier,
                "status": status,
                "host": self.host,
                "subject": subject,
                "summary": summary,
                "remedy": remedy,
                "source": source,
                "evidence": evidence,
            }
        )


def is_placeholder(value: str) -> bool:
    """Whether an address or a name is an example's and cannot be a real machine's."""
    rules = node_rules()["placeholders"]
    text = value.strip().lower()
    try:
        address = ipaddress.ip_address(text)
    except ValueError:
        if "<" in text or any(word in text for word in rules["words"]):
            return True
        return any(text == domain or text.endswith(f".{domain}") for domain in rules["domains"])
    return any(address in ipaddress.ip_network(network) for network in rules["networks"])


def memory_need(weight_bytes: int | None, nodes: int | None, accelerator: str | None) -> int | None:
    """What one node must hold: its share of the weights and what the engine needs beside it."""
    overhead = node_rules()["memory"]["overhead"].get(accelerator or "")
    if weight_bytes is None or not nodes or overhead is None:
        return None
    return -(-int(weight_bytes) // int(nodes)) + int(overhead["bytes"])


def expand_port(port: t.Any) -> range:
    """A port number, a range as C(low-high), or a row of a deployment's list of ports."""
    if isinstance(port, Mapping):
        return (
            range(int(port["port"]), int(port.get("last") or port["port"]) + 1)
            if "last" in port
            else expand_port(port["port"])
        )
    low, _dash, high = str(port).partition("-")
    return range(int(low), int(high or low) + 1)


def ports_of_node(ports: Iterable[t.Any], is_head: bool | None) -> list[Mapping[str, t.Any]]:
    """The TCP ports that are needed on a node; some are needed on the head only."""
    rows = [port if isinstance(port, Mapping) else {"port": port} for port in ports]
    rows = [row for row in rows if is_head is not False or row.get("node") != "head"]
    return [row for row in rows if str(row.get("proto") or "tcp").lower() == "tcp"]


def is_ours(owner: Mapping[str, t.Any], deployment: str | None) -> bool:
    """Whether the deployment itself, or one of the units that the collection writes, holds it."""
    if deployment is not None and owner.get("deployment") == deployment:
        return True
    return str(owner.get("unit") or "").startswith(_UNIT_PREFIX)


def _stop_hint(owner: Mapping[str, t.Any]) -> str:
    if owner.get("deployment"):
        return f"Stop the deployment {owner['deployment']} with the playbook stop.yml"
    if owner.get("container"):
        return f"Stop it on that node with `docker stop {owner['container']}`"
    if owner.get("pid") is not None:
        # Never "stop the unit": a process that was started by hand can be in the unit of the ssh server.
        unit = f" (unit {owner['unit']})" if owner.get("unit") else ""
        return f"Stop process {owner['pid']}{unit} on that node"
    return "Find the owner on that node with `ss -ltnp` as root and stop it"


def _owner_name(owner: Mapping[str, t.Any]) -> str:
    process = (
        f"{owner['process']} (pid {owner['pid']})" if owner.get("process") else "a process that could not be identified"
    )
    return f"container {owner['container']}, {process}" if owner.get("container") else process


def check_accelerator(found: Verdicts, gpu: t.Any, requirement: Mapping[str, t.Any]) -> None:
    identifier = "accelerator.expected"
    wanted = requirement.get("accelerator", MISSING)
    if wanted is MISSING or gpu is MISSING:
        return
    if wanted is None:
        found.add(
            identifier,
            "unknown",
            "The profile does not say which accelerator it needs.",
            "Set accelerator in the profile to cuda or cpu.",
        )
        return
    if wanted == "cpu":
        found.add(identifier, "ok", "The profile runs on the CPU; no GPU is needed.")
        return
    if gpu is None or gpu.get("driver_present") is None:
        found.add(
            identifier, "unknown", "Whether there is an NVIDIA driver could not be read.", "Run the playbook as root."
        )
        return
    driver = gpu.get("driver_version")
    if not gpu["driver_present"]:
        found.add(
            identifier,
            "fail",
            "The profile needs an NVIDIA GPU, and no NVIDIA driver is loaded.",
            "Install the NVIDIA driver (open kernel module) and reboot, or choose a profile for the CPU.",
        )
        return
    devices = gpu.get("devices", MISSING)
    if devices is None:
        reasons = "; ".join(f"{item['source']}: {item['name']}" for item in gpu.get("errors") or [])
        found.add(
            identifier,
            "unknown",
            f"Driver {driver} is loaded, but its devices could not be listed. {reasons}".strip(),
            "Run `nvidia-smi` on that node.",
        )
    elif devices is not MISSING and not devices:
        found.add(
            identifier,
            "fail",
            f"Driver {driver} is loaded, and it sees no GPU.",
            "Look for NVRM in `dmesg` on that node; Blackwell needs the open kernel module.",
        )
    elif devices is not MISSING:
        names = ", ".join(str(device.get("name")) for device in devices)
        found.add(identifier, "ok", f"{names}, driver {driver}.")


def check_memory(
    found: Verdicts,
    recon: Mapping[str, t.Any],
    requirement: Mapping[str, t.Any],
    deployment: str | None,
    needed: int | None,
) -> bool | None:
    """Returns whether the node's share fits, None where that is not known."""
    identifier = "memory.fit"
    system = recon.get("system") or {}
    devices = (recon.get("gpu") or {}).get("devices") or []
    discrete = (
        requirement.get("accelerator") == "cuda"
        and bool(devices)
        and not any(device.get("integrated") for device in devices)
    )
    own = [holder for holder in system.get("holders") or [] if is_ours(holder, deployment)]
    kind = "GPU memory" if discrete else "memory"
    free: int | None
    total: int | None
    if discrete:
        values = [device.get("memory_free_bytes") for device in devices]
        totals = [device.get("memory_total_bytes") for device in devices]
        free = None if None in values else sum(values)
        total = None if None in totals else sum(totals)
        held = sum(holder.get("gpu_memory_bytes") or 0 for holder in own)
    else:
        memory = system.get("memory") or {}
        free = memory.get("available_bytes")
        total = memory.get("total_bytes")
        # On a GPU that shares the machine's memory both are taken from the same pool.
        held = sum((holder.get("memory_bytes") or 0) + (holder.get("gpu_memory_bytes") or 0) for holder in own)
    evidence = {"needed_bytes": needed, "available_bytes": free, "held_by_deployment_bytes": held, "total_bytes": total}
    if needed is None:
        found.add(
            identifier,
            "unknown",
            f"How much {kind} the node's share needs is not known.",
            "Set weight_bytes in the profile.",
            evidence=evidence,
        )
        return None
    if free is None:
        found.add(
            identifier,
            "unknown",
            f"The node's share needs {human_bytes(needed)}, and how much {kind} is available could not be read.",
            "Look at the errors of recon_info for that node.",
            evidence=evidence,
        )
        return None
    available = free + held
    ours = f", of which {human_bytes(held)} is held by the running deployment" if held else ""
    if available >= needed:
        found.add(
            identifier,
            "ok",
            f"{human_bytes(available)} of {kind} available{ours}; {human_bytes(needed)} needed.",
            evidence=evidence,
        )
        return True
    if total is not None and total < needed:
        remedy = "The node is too small for its share even when idle: use more nodes, or a smaller quantization."
    else:
        remedy = "Free memory on that node; what holds much of it is listed under node.leftover."
    found.add(
        identifier,
        "fail",
        f"{human_bytes(available)} of {kind} available{ours}; {human_bytes(needed)} needed.",
        remedy,
        evidence=evidence,
    )
    return False


def check_disks(found: Verdicts, disks: t.Any, need_bytes: Mapping[str, int | None]) -> None:
    identifier = "disk.free"
    if disks is None:
        disks = []
    by_path = {str(disk.get("path")): disk for disk in disks}
    # Paths on one file system share its space, so their needs are added up.
    groups: dict[t.Any, list[tuple[str, int]]] = {}
    for path, needed in need_bytes.items():
        disk = by_path.get(str(path), {})
        if needed is None:
            found.add(
                identifier,
                "unknown",
                f"How much space {path} needs is not known.",
                "Set weight_bytes in the profile.",
                subject=str(path),
            )
        elif disk.get("free_bytes") is None:
            found.add(
                identifier,
                "unknown",
                f"Free space at {path} could not be read.",
                "Look at the errors of recon_info for that node.",
                subject=str(path),
            )
        else:
            filesystem = disk.get("filesystem")
            key = str(path) if filesystem is None else filesystem
            groups.setdefault(key, []).append((str(path), max(0, int(needed) - int(disk.get("content_bytes") or 0))))
    for members in groups.values():
        needed = sum(amount for _path, amount in members)
        free = min(by_path[path]["free_bytes"] for path, _amount in members)
        subject = ", ".join(path for path, _amount in members)
        evidence = {"needed_bytes": needed, "free_bytes": free}
        summary = f"{human_bytes(free)} free at {subject}; {human_bytes(needed)} still needed."
        if free >= needed:
            found.add(identifier, "ok", summary, subject=subject, evidence=evidence)
        else:
            remedy = f"Free {human_bytes(needed - free)} there, or point sparkgate_models_dir at a larger disk."
            found.add(identifier, "fail", summary, remedy, subject=subject, evidence=evidence)


def check_ports(
    found: Verdicts, listeners: t.Any, deployment: str | None, ports: Sequence[Mapping[str, t.Any]]
) -> None:
    identifier = "port.in_use"
    if not ports:
        return
    if listeners is None:
        found.add(
            identifier,
            "unknown",
            "The listening sockets could not be read.",
            "Look at the errors of recon_info for that node.",
        )
        return
    ours = 0
    foreign: dict[tuple[t.Any, ...], dict[str, t.Any]] = {}
    for port in ports:
        numbers = expand_port(port)
        for listener in listeners:
            if listener["port"] not in numbers:
                continue
            if is_ours(listener, deployment):
                ours += 1
                continue
            key = (listener["port"], listener.get("pid"), listener.get("container"))
            foreign.setdefault(key, {**listener, "addresses": [], "wanted": port})["addresses"].append(
                listener.get("address")
            )
    for owner in foreign.values():
        port = owner.pop("wanted")
        purpose = f", which is needed for {port['purpose']}," if port.get("purpose") else ""
        remedy = (
            f"{_stop_hint(owner)}, or set sparkgate_api_port."
            if port.get("exposure") == "management"
            else f"{_stop_hint(owner)}."
        )
        found.add(
            identifier,
            # Of a range the other ports remain.
            "fail" if len(expand_port(port)) == 1 else "warn",
            f"Port {owner['port']}{purpose} is held by {_owner_name(owner)}.",
            remedy,
            subject=str(owner["port"]),
            evidence=owner,
        )
    if not foreign:
        held = f"; {ours} held by the running deployment" if ours else ""
        found.add(
            identifier,
            "ok",
            f"{sum(len(expand_port(port)) for port in ports)} ports looked at, no foreign listener{held}.",
        )


def check_engine(found: Verdicts, engine: t.Any, requirement: Mapping[str, t.Any]) -> None:
    identifier = "container.engine"
    rule = node_rules()["container_engine"]
    if engine is None:
        found.add(
            identifier,
            "unknown",
            "Whether there is a container engine could not be read.",
            "Run `docker info` on that node.",
        )
        return
    if not engine:
        found.add(
            identifier,
            "fail",
            "Docker is not installed.",
            "Install Docker Engine on that node (package docker.io or docker-ce).",
        )
        return
    if engine.get("answers") is False:
        found.add(
            identifier,
            "fail",
            "Docker is installed, and its daemon does not answer.",
            "Start it with `systemctl start docker`, and run the playbook as root (`become: true`).",
            evidence=dict(engine),
        )
        return
    try:
        version = Version(str(engine.get("version")))
    except InvalidVersion:
        found.add(
            identifier,
            "unknown",
            "The version of the container engine is not known.",
            "Run `docker info` on that node.",
            evidence=dict(engine),
        )
        return
    if version < Version(rule["minimum_version"]):
        found.add(
            identifier,
            "fail",
            f"Docker {version} is older than {rule['minimum_version']}.",
            f"Update Docker Engine to {rule['minimum_version']} or newer.",
            source=rule["source"],
            evidence=dict(engine),
        )
        return
    if requirement.get("accelerator") == "cuda" and engine.get("nvidia_runtime", MISSING) is not MISSING:
        if engine["nvidia_runtime"] is None:
            found.add(
                identifier,
                "unknown",
                "Whether containers can use the GPU is not known.",
                "Run `docker info` on that node.",
                evidence=dict(engine),
            )
            return
        if not engine["nvidia_runtime"]:
            found.add(
                identifier,
                "fail",
                f"Docker {version} has no NVIDIA runtime, so containers would not see the GPU.",
                "Install nvidia-container-toolkit, run `nvidia-ctk runtime configure --runtime=docker`, restart it.",
                evidence=dict(engine),
            )
            return
    found.add(
        identifier, "ok", f"Docker {version}, storage driver {engine.get('storage_driver')}.", evidence=dict(engine)
    )


def check_tools(found: Verdicts, system: Mapping[str, t.Any]) -> None:
    identifier = "node.tools"
    present = []
    for rule in node_rules()["tools"]:
        name = rule["name"]
        value = (system.get("tools") or {}).get(name, MISSING)
        if name == "systemd" and "systemd" in system and not system["systemd"]:
            # Installed is not enough, it must have booted the machine.
            value = system["systemd"]
        if value is MISSING:
            continue
        if value is None:
            found.add(
                identifier,
                "unknown",
                f"The version of {name} could not be read.",
                f"Run `{name} --version` on that node.",
                subject=name,
            )
        elif value is False:
            found.add(identifier, "fail", f"{name} is missing; {rule['purpose']}.", rule["remedy"], subject=name)
        else:
            present.append(f"{name} {value}")
    if present:
        found.add(identifier, "ok", f"{', '.join(present)}.")


def check_leftovers(
    found: Verdicts, holders: t.Any, listeners: t.Any, deployment: str | None, ports: Sequence[t.Any], fits: bool | None
) -> None:
    """Names what else holds memory, a GPU or a port. It is the user's, and is never stopped by the collection."""
    identifier = "node.leftover"
    minimum = node_rules()["holder_minimum_bytes"]
    if holders is None:
        found.add(
            identifier,
            "unknown",
            "Which containers and processes hold memory or a GPU is not known.",
            "Look at the errors of recon_info for that node.",
        )
        return
    wanted = {number for port in ports for number in expand_port(port)}
    foreign = 0
    for holder in holders:
        if is_ours(holder, deployment):
            continue
        memory = (holder.get("memory_bytes") or 0) + (holder.get("gpu_memory_bytes") or 0)
        held = [
            item["port"]
            for item in listeners or []
            if holder["kind"] == "container" and item.get("container") == holder["name"]
        ]
        held = sorted(set(held) & wanted)
        unknown_gpu = holder.get("gpu") and holder.get("gpu_memory_bytes") is None
        large = memory >= minimum or unknown_gpu
        if not large and not held and not holder.get("deployment"):
            continue
        foreign += 1
        reasons = []
        if large:
            reasons.append(
                f"holds {human_bytes(memory)} of memory" + (" and uses the GPU" if holder.get("gpu") else "")
            )
        if held:
            reasons.append(f"listens on {', '.join(str(port) for port in held)}")
        if holder.get("deployment"):
            reasons.append(f"belongs to the deployment {holder['deployment']}")
        title = (
            f"Container {holder['name']} ({holder.get('image')})"
            if holder["kind"] == "container"
            else f"Process {holder['name']} (pid {holder['id']})"
        )
        owner = {**holder, "container": holder["name"] if holder["kind"] == "container" else None, "pid": holder["id"]}
        found.add(
            identifier,
            # It only blocks where the memory that it holds is missing; a port that it holds has a verdict of its own.
            "fail" if fits is False and large else "warn",
            f"{title} {', '.join(reasons)}.",
            f"{_stop_hint(owner)} if it is not needed. It is never stopped by the playbooks.",
            subject=holder["name"],
            evidence=dict(holder),
        )
    if not foreign:
        found.add(identifier, "ok", "Nothing else holds what the deployment needs.")


def check_address(found: Verdicts, addresses: t.Any, address: t.Any) -> None:
    identifier = "node.address"
    have = (
        ", ".join(f"{item['address']} ({item['interface']})" for item in addresses or [] if item["interface"] != "lo")
        or "none"
    )
    variable = "sparkgate_fabric_address"
    if not address:
        found.add(
            identifier,
            "fail",
            f"{variable} is not set.",
            f"Set it in the inventory to this node's address on the fast network. The node has: {have}.",
        )
        return
    on = [item for item in addresses or [] if str(item["address"]).partition("/")[0] == address]
    if on:
        found.add(identifier, "ok", f"{address} is on {on[0]['interface']}.", subject=address)
    elif is_placeholder(str(address)):
        found.add(
            identifier,
            "fail",
            f"{variable} is {address}, which is an example.",
            f"Set it in the inventory to this node's address on the fast network. The node has: {have}.",
            subject=address,
        )
    elif addresses is None:
        found.add(
            identifier,
            "unknown",
            f"Whether the node has {address} could not be read.",
            "Install iproute2 on that node.",
            subject=address,
        )
    else:
        found.add(
            identifier,
            "fail",
            f"{variable} is {address}, and no interface of the node has it.",
            f"Configure the interface, or correct the inventory. The node has: {have}.",
            subject=address,
        )


def node_verdicts(
    recon: Mapping[str, t.Any],
    name: str | None = None,
    requirement: Mapping[str, t.Any] | None = None,
    deployment: str | Mapping[str, t.Any] | None = None,
    ports: Sequence[t.Any] = (),
    need_bytes: Mapping[str, int | None] | None = None,
    memory_bytes: t.Any = MISSING,
    weight_bytes: t.Any = MISSING,
    address: t.Any = MISSING,
) -> list[Verdict]:
    found = Verdicts(name)
    required = requirement or {}
    deployment_name = deployment.get("name") if isinstance(deployment, Mapping) else deployment
    head = deployment.get("head") if isinstance(deployment, Mapping) else None
    needed_ports = ports_of_node(ports, None if head is None else head == name)
    if "gpu" in recon:
        check_accelerator(found, recon["gpu"], required)
    if "system" not in recon:
        return found.all
    system = recon["system"] or {}
    if "container_engine" in system:
        check_engine(found, system["container_engine"], required)
    check_tools(found, system)
    if address is not MISSING and "addresses" in system:
        check_address(found, system["addresses"], address)
    if memory_bytes is MISSING and weight_bytes is not MISSING:
        memory_bytes = memory_need(weight_bytes, required.get("nodes"), required.get("accelerator"))
    fits = None
    if memory_bytes is not MISSING:
        fits = check_memory(found, recon, required, deployment_name, memory_bytes)
    if need_bytes:
        check_disks(found, system.get("disks"), need_bytes)
    if "listeners" in system:
        check_ports(found, system["listeners"], deployment_name, needed_ports)
    if "holders" in system:
        check_leftovers(found, system["holders"], system.get("listeners"), deployment_name, needed_ports, fits)
    return found.all


def _is_accepted(verdict: Mapping[str, t.Any], names: Iterable[str]) -> bool:
    return bool(verdict.get("accepted")) or verdict["id"] in names or f"{verdict['id']}@{verdict.get('host')}" in names


def accept(verdicts: Iterable[Mapping[str, t.Any]], names: Iterable[str] = ()) -> list[Verdict]:
    """Marks the verdicts that the user accepts by C(id) or C(id@host)."""
    accepted = set(re.split(r"[,\s]+", names.strip()) if isinstance(names, str) else names)
    return [{**verdict, "accepted": _is_accepted(verdict, accepted)} for verdict in verdicts]


def failures(verdicts: Iterable[Mapping[str, t.Any]], names: Iterable[str] = ()) -> list[Verdict]:
    """What must stop a deployment: failures that nobody accepted. Unknown is shown, and does not stop it."""
    return [verdict for verdict in accept(verdicts, names) if verdict["status"] == "fail" and not verdict["accepted"]]


def _shown_status(verdict: Mapping[str, t.Any]) -> str:
    return "accepted" if verdict.get("accepted") and verdict["status"] in ("fail", "warn") else str(verdict["status"])


def table(verdicts: Iterable[Mapping[str, t.Any]], width: int = 120) -> str:
    """A plain text table, the worst first, with the remedy on a line of its own."""
    rows = sorted(
        verdicts,
        key=lambda item: (
            _ORDER.index(_shown_status(item)),
            str(item.get("host") or ""),
            item["id"],
            str(item.get("subject") or ""),
        ),
    )
    counts = {status: sum(1 for row in rows if _shown_status(row) == status) for status in _ORDER}
    names = {"fail": "failed", "unknown": "unknown", "warn": "warned", "accepted": "accepted", "ok": "ok"}
    closing = (
        ", ".join(f"{count} {names[status]}" for status, count in counts.items() if count) or "nothing was checked"
    )
    cells = [(_shown_status(row).upper(), str(row.get("host") or "-"), str(row["id"]), row) for row in rows]
    widths = [
        max([len(title), *(len(cell[column]) for cell in cells)])
        for column, title in enumerate(("STATUS", "NODE", "CHECK"))
    ]
    indent = sum(widths) + 6
    # Long names of nodes must not squeeze the text into a column of words.
    room = max(width - indent, 40)
    lines = [f"{'STATUS':<{widths[0]}}  {'NODE':<{widths[1]}}  {'CHECK':<{widths[2]}}  RESULT"]
    for status, host, identifier, row in cells:
        text = textwrap.wrap(str(row["summary"]), room, break_long_words=False, break_on_hyphens=False) or [""]
        lines.append(f"{status:<{widths[0]}}  {host:<{widths[1]}}  {identifier:<{widths[2]}}  {text[0]}")
        lines += [" " * indent + part for part in text[1:]]
        if row["status"] != "ok" and row.get("remedy"):
            remedy = textwrap.wrap(
                f"-> {row['remedy']}", room, subsequent_indent="   ", break_long_words=False, break_on_hyphens=False
            )
            lines += [" " * indent + part for part in remedy]
    return "\n".join([*lines, closing])


def inventory_problems(
    hostvars: Mapping[str, t.Any], nodes: Sequence[str] | None = None, head: str | None = None
) -> list[str]:
    """What in the inventory is missing or still the example's; empty where nothing is."""
    if isinstance(nodes, str):
        return [f"sparkgate_nodes is {nodes!r}. Give a list: [{nodes}]."]
    names = list(hostvars) if nodes is None else list(nodes)
    if not names:
        return ["The inventory names no node. Add the machines that shall serve the model, the head first."]
    problems = []
    if head is not None and head not in names:
        problems.append(f"sparkgate_head is {head}, which is none of the nodes {', '.join(names)}. Correct it.")
    problems += [f"{name}: sparkgate_nodes has it twice." for name in sorted({n for n in names if names.count(n) > 1})]
    names = list(dict.fromkeys(names))
    seen: dict[str, list[str]] = {}
    for name in names:
        if name not in hostvars:
            problems.append(
                f"{name}: sparkgate_nodes names it, and it is not in the inventory. Add it there, or take it out."
            )
            continue
        values = hostvars[name]
        local = values.get("ansible_connection") == "local"
        target = str(values.get("ansible_host") or name)
        if not local and is_placeholder(target):
            problems.append(
                f"{name}: ansible_host is {target}, which is an example. Fill in the address of this node for ssh."
            )
        address = values.get("sparkgate_fabric_address")
        hint = "Fill in this node's IPv4 address on the fast network between the nodes (see `ip -br addr` there)."
        if not address:
            problems.append(f"{name}: sparkgate_fabric_address is not set. {hint}")
            continue
        if is_placeholder(str(address)):
            problems.append(f"{name}: sparkgate_fabric_address is {address}, which is an example. {hint}")
            continue
        try:
            parsed = ipaddress.IPv4Address(str(address))
        except ValueError:
            parsed = None
        if parsed is None or parsed.is_unspecified or parsed.is_multicast or (parsed.is_loopback and len(names) > 1):
            problems.append(
                f"{name}: sparkgate_fabric_address is {address}, which is not an IPv4 address of this node. {hint}"
            )
            continue
        management = str(values.get("sparkgate_management_address") or target)
        if not re.fullmatch(r"[A-Za-z0-9]([A-Za-z0-9.-]*[A-Za-z0-9])?", management) and "{{" not in management:
            problems.append(
                f"{name}: sparkgate_management_address is {management!r}. Give an IPv4 address or a host name alone."
            )
        seen.setdefault(str(address), []).append(str(name))
    for address, owners in seen.items():
        if len(owners) > 1:
            problems.append(
                f"{', '.join(owners)}: sparkgate_fabric_address is {address} on all of them. Each node needs its own."
            )
    return problems
