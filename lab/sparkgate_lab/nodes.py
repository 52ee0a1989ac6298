# Copyright (c) 2026, The sparkgate.blackwell authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Nodes: system containers with systemd, sshd and a container engine of their own."""

from __future__ import annotations

import json
import re
import time
import typing as t
from dataclasses import dataclass
from pathlib import Path

import docker
from docker.models.containers import Container

from . import images, keys, networks
from . import settings as s
from .progress import Progress

READINGS = s.STATE / "readings"
FIRST_NODE = 11
FABRIC_COUNTERS = ("rx_bytes", "tx_bytes", "rx_dropped", "tx_dropped")


@dataclass(frozen=True)
class Node:
    name: str
    management: str
    fabric: str
    registry: str | None  # only the head's

    @property
    def container(self) -> str:
        return f"{s.PREFIX}-{self.name}"


def plan(count: int, segments: dict[str, networks.Segment]) -> list[Node]:
    nodes = []
    for index in range(count):
        number = FIRST_NODE + index
        nodes.append(
            Node(
                name=f"node{index + 1}",
                management=segments[networks.MANAGEMENT].address(number),
                fabric=segments[networks.FABRIC].address(number),
                registry=segments[networks.REGISTRY].address(number) if index == 0 else None,
            )
        )
    return nodes


def capability_missing(bit: int = 24) -> bool:
    """Whether this machine may not give CAP_SYS_RESOURCE away, as in many sandboxes."""
    bounding = re.search(r"^CapBnd:\s*([0-9a-f]+)", Path("/proc/self/status").read_text(), re.MULTILINE)
    return bounding is not None and not int(bounding[1], 16) >> bit & 1


def cgroup_version() -> int:
    return 2 if Path("/sys/fs/cgroup/cgroup.controllers").exists() else 1


def nameservers() -> list[str]:
    """Resolvers that containers inside a node can reach: none of this machine's loopback ones."""
    for path in ("/etc/resolv.conf", "/run/systemd/resolve/resolv.conf"):
        if Path(path).exists():
            found = re.findall(r"^nameserver\s+([\d.]+)\s*$", Path(path).read_text(), re.MULTILINE)
            if reachable := [address for address in found if not address.startswith("127.")]:
                return reachable
    return []


def files(node: Node, registry_address: str) -> dict[str, tuple[int, bytes]]:
    _unused, public = keys.ssh_pair(keys.SSH_KEY)
    host_private, host_public = keys.ssh_pair(keys.KEYS / f"host_{node.name}")
    content = {
        f"/home/{s.USER}/.ssh/authorized_keys": (0o600, public),
        "/etc/ssh/ssh_host_ed25519_key": (0o600, host_private),
        "/etc/ssh/ssh_host_ed25519_key.pub": (0o644, host_public),
    }
    if node.registry:
        certificates = keys.registry_certificate(registry_address)
        content[f"/etc/docker/certs.d/{s.REGISTRY_NAME}:{s.REGISTRY_PORT}/ca.crt"] = (0o644, certificates["ca"])
    return content


def existing(client: docker.DockerClient) -> dict[str, Container]:
    found = client.containers.list(all=True, filters={"label": [s.OURS["label"], f"{s.LABEL}.node"]})
    return {str(container.labels[f"{s.LABEL}.node"]): container for container in found}


def remove(client: docker.DockerClient, container: Container) -> None:
    name = str(container.name)
    container.remove(force=True, v=True)
    for volume in client.volumes.list(filters={"label": f"{s.LABEL}.of={name}"}):
        volume.remove()
    (READINGS / f"{name.removeprefix(s.PREFIX + '-')}.json").unlink(missing_ok=True)


def create(
    client: docker.DockerClient,
    node: Node,
    image: str,
    segments: dict[str, networks.Segment],
    spec: str,
    registry_address: str,
) -> Container:
    volume = client.volumes.create(f"{node.container}-docker", labels={**s.LABELS, f"{s.LABEL}.of": node.container})
    binds = [f"{volume.name}:/var/lib/docker", "/lib/modules:/lib/modules:ro"]
    options: dict[str, t.Any] = {}
    if cgroup_version() == 1:
        # with a private cgroup namespace the engine inside cannot start containers
        binds.append("/sys/fs/cgroup:/sys/fs/cgroup:rw")
        options["cgroupns"] = "host"
    else:
        options["cgroupns"] = "private"
    if node.registry:
        binds.append(f"{s.STATE / 'models' / s.MODEL_NAME}:{s.MODEL_ON_HEAD}:ro")
        options["extra_hosts"] = {s.REGISTRY_NAME: registry_address}
    management = segments[networks.MANAGEMENT]
    created = client.api.create_container(
        image,
        name=node.container,
        hostname=node.name,
        labels={**s.LABELS, f"{s.LABEL}.node": node.name, f"{s.LABEL}.spec": spec},
        stop_signal="SIGRTMIN+3",
        tty=True,
        volumes=["/var/lib/docker"],
        environment={"container": "docker"},
        host_config=client.api.create_host_config(
            binds=binds,
            cap_add=["ALL"],
            cap_drop=["SYS_RESOURCE"] if capability_missing() else [],
            security_opt=["seccomp=unconfined", "apparmor=unconfined"],
            tmpfs={"/run": "exec", "/run/lock": ""},
            shm_size=s.NODE_SHM,
            network_mode=str(management.network.name),
            **options,
        ),
        networking_config=client.api.create_networking_config(
            {str(management.network.name): client.api.create_endpoint_config(ipv4_address=node.management)}
        ),
    )
    segments[networks.FABRIC].network.connect(created["Id"], ipv4_address=node.fabric)
    if node.registry:
        segments[networks.REGISTRY].network.connect(created["Id"], ipv4_address=node.registry)
    container = client.containers.get(created["Id"])
    container.put_archive("/", images.archive(files(node, registry_address)))
    return container


def execute(container: Container, command: list[str]) -> tuple[int, str]:
    code, output = container.exec_run(command)
    return int(code), output.decode(errors="replace").strip()


def wait(
    container: Container, command: list[str], wanted: t.Callable[[int, str], bool], what: str, seconds: float = 90
) -> str:
    code, output = -1, ""
    until = time.monotonic() + seconds
    while time.monotonic() < until:
        code, output = execute(container, command)
        if wanted(code, output):
            return output
        time.sleep(0.5)
    raise s.LabError(f"{container.name}: {what} after {seconds:.0f} s. `{' '.join(command)}` said ({code}): {output}")


def ensure(
    client: docker.DockerClient,
    nodes: list[Node],
    image: str,
    segments: dict[str, networks.Segment],
    registry_address: str,
    progress: Progress,
) -> None:
    there = existing(client)
    for name, container in there.items():
        if name not in {node.name for node in nodes}:
            progress.changed(f"{name} is not wanted any more: removing it")
            remove(client, container)
    started = []
    for node in nodes:
        spec = s.digest(
            image, repr(node), registry_address, str(capability_missing()), repr(files(node, registry_address))
        )
        found = there.get(node.name)
        if found is not None and found.labels.get(f"{s.LABEL}.spec") != spec:
            progress.changed(f"{node.name} is not as it should be: making it anew")
            remove(client, found)
            found = None
        if found is None:
            found = create(client, node, image, segments, spec, registry_address)
            progress.changed(f"{node.name}: management {node.management}, fabric {node.fabric}")
        if found.status != "running":
            found.start()
            started.append((node, found))
    for node, container in started:
        state = wait(
            container,
            ["systemctl", "is-system-running", "--wait"],
            lambda code, text: text in ("running", "degraded"),
            "systemd is not up",
        )
        if state != "running":
            failed = execute(container, ["systemctl", "--failed", "--plain", "--no-legend"])[1]
            raise s.LabError(f"{node.name}: systemd is {state}: {failed}")
        wait(container, ["docker", "info"], lambda code, text: code == 0, "the node's own engine does not answer")
        reading = READINGS / f"{node.name}.json"
        if not reading.exists():
            keys.write(reading, json.dumps(read(container, registry_address)).encode())
        progress.changed(f"{node.name} is up")


def read(container: Container, registry_address: str) -> dict[str, t.Any]:
    """What a fresh node's engine holds, and whether the registry answers it: read before anything uses the node."""
    probe = f"timeout 3 bash -c '</dev/tcp/{registry_address}/{s.REGISTRY_PORT}'"
    return {
        "images": execute(container, ["docker", "images", "--all", "--quiet"])[1].split(),
        "containers": execute(container, ["docker", "ps", "--all", "--quiet"])[1].split(),
        "registry_reachable": execute(container, ["bash", "-c", probe])[0] == 0,
    }


def interface(container: Container, address: str) -> str:
    _unused, text = execute(container, ["ip", "-json", "-4", "address", "show"])
    for link in json.loads(text):
        if any(entry["local"] == address for entry in link["addr_info"]):
            return str(link["ifname"])
    raise s.LabError(f"{container.name} has no interface with the address {address}. Run lab/down, then lab/up.")


def fabric_counters(container: Container, address: str) -> dict[str, int]:
    name = interface(container, address)
    paths = [f"/sys/class/net/{name}/statistics/{counter}" for counter in FABRIC_COUNTERS]
    _unused, text = execute(container, ["cat", *paths])
    return dict(zip(FABRIC_COUNTERS, map(int, text.split()), strict=True))
