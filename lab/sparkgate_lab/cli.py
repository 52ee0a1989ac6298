# Copyright (c) 2026, The sparkgate.blackwell authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""lab/up, lab/down and lab/status."""

from __future__ import annotations

import argparse
import os
import sys
import typing as t

import docker
from docker.errors import DockerException

from . import base, engine, images, inventory, networks, nodes, registry
from . import settings as s
from .progress import Progress


def prepare_state() -> None:
    s.STATE.mkdir(mode=0o700, parents=True, exist_ok=True)
    s.STATE.chmod(0o700)
    os.chown(s.STATE, *s.invoking_user())
    (s.STATE / "logs").mkdir(exist_ok=True)
    (s.STATE / "models").mkdir(exist_ok=True)


def up(arguments: argparse.Namespace) -> None:
    progress = Progress(steps=6)
    with progress.step("the container engine"):
        client, url = engine.connect()
        prepare_state()
        engine.remember(url)
        progress.say(f"  {url}, version {client.version()['Version']}, cgroup v{nodes.cgroup_version()}")
        if nodes.cgroup_version() == 2:
            progress.say("  the lab has not been tried with cgroup v2 yet: please report how it went")
        if nodes.capability_missing():
            progress.say("  this machine has no CAP_SYS_RESOURCE: the nodes do without")
    with progress.step("Debian's packages as images"):
        rootfs = images.rootfs(client, progress)
        server = images.build(client, rootfs, images.registry_layer(), progress)
        node = images.build(client, rootfs, images.node_layer(nodes.nameservers()), progress)
    with progress.step("networks and registry"):
        segments = networks.ensure(client, progress)
        keeper = registry.ensure(client, server, segments[networks.REGISTRY], progress)
    with progress.step("the base image and the tiny model"):
        reference = base.ensure(client, rootfs, keeper, progress)
    with progress.step(f"{arguments.nodes} nodes"):
        planned = nodes.plan(arguments.nodes, segments)
        address = segments[networks.REGISTRY].address(registry.ADDRESS)
        nodes.ensure(client, planned, node, segments, address, progress)
    with progress.step("inventory"):
        if inventory.write(planned, reference, url):
            progress.changed(f"wrote {inventory.HOSTS}")
    progress.say(
        f"The lab is up: {progress.changes} change{'s' * (progress.changes != 1)}."
        if progress.changes
        else "The lab is up: nothing changed."
    )


def table(rows: list[list[str]]) -> str:
    widths = [max(len(row[column]) for row in rows) for column in range(len(rows[0]))]
    return "\n".join(
        "  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip() for row in rows
    )


def status(arguments: argparse.Namespace) -> None:
    del arguments
    client, url = engine.connect()
    print(f"engine    {url}{' (of the lab itself)' if engine.is_own() else ''}")
    server = registry.find(client)
    print(f"registry  {s.REGISTRY_NAME}:{s.REGISTRY_PORT}  {server.status if server else 'absent'}")
    print(f"model     {base.MODEL if base.MODEL.is_dir() else 'absent'}")
    rows = [["node", "state", "management", "fabric", "images", "containers", "fabric received", "fabric sent"]]
    for name, container in sorted(nodes.existing(client).items()):
        addresses = {
            network.removeprefix(f"{s.PREFIX}-"): str(entry["IPAMConfig"]["IPv4Address"])
            for network, entry in container.attrs["NetworkSettings"]["Networks"].items()
        }
        row = [name, str(container.status), addresses.get(networks.MANAGEMENT, ""), addresses.get(networks.FABRIC, "")]
        if container.status == "running":
            held = [nodes.execute(container, ["docker", what, "--quiet"])[1].split() for what in ("images", "ps")]
            counters = nodes.fabric_counters(container, addresses[networks.FABRIC])
            row += [str(len(item)) for item in held]
            row += [f"{counters[name] / 2**20:.1f} MiB" for name in ("rx_bytes", "tx_bytes")]
        rows.append(row + [""] * (len(rows[0]) - len(row)))
    print(table(rows) if len(rows) > 1 else "nodes     none: lab/up makes them")


def down(arguments: argparse.Namespace) -> None:
    progress = Progress(steps=2 if arguments.purge else 1)
    try:
        client: docker.DockerClient | None = engine.connect()[0]
    except s.LabError:
        client = None  # nothing runs without an engine; --purge still has files to remove
    with progress.step("nodes, registry and networks"):
        if client is not None:
            remove_running(client, progress, arguments.purge)
        inventory.HOSTS.unlink(missing_ok=True)
    if arguments.purge:
        with progress.step("images, keys, the model and the lab's own engine"):
            if client is not None and not engine.is_own():
                remove_images(client, progress)
            if engine.is_own():
                engine.stop_own()
                progress.changed("the lab's own engine is stopped and undone")
            s.remove_tree(s.STATE)
    progress.say("The lab is down." if progress.changes else "The lab was not up: nothing changed.")


def remove_running(client: docker.DockerClient, progress: Progress, everything: bool) -> None:
    for container in client.containers.list(all=True, filters=s.OURS):
        progress.changed(f"removing {container.name}")
        container.remove(force=True, v=True)
    for volume in client.volumes.list(filters=s.OURS):
        if everything or volume.name != registry.NAME:  # the registry's is the base image: two minutes' work
            volume.remove(force=True)
    for network in client.networks.list(filters=s.OURS):
        network.remove()
    s.remove_tree(nodes.READINGS)


def remove_images(client: docker.DockerClient, progress: Progress) -> None:
    found = client.images.list(filters=s.OURS)
    # children before their parents
    for image in sorted(found, key=lambda item: str(item.attrs["Created"]), reverse=True):
        client.images.remove(image.id, force=True)
        progress.changed(f"removed image {(image.tags or [image.short_id])[0]}")


def main(verb: str, argv: t.Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog=f"lab/{verb}")
    if verb == "up":
        parser.description = "Bring up the lab, or what is missing of it."
        parser.add_argument("--nodes", type=int, default=2, choices=range(1, 9), metavar="N", help="how many nodes (2)")
    elif verb == "down":
        parser.description = "Remove nodes, registry and networks; images stay for the next time."
        parser.add_argument("--purge", action="store_true", help="remove everything that the lab made")
    else:
        parser.description = "Show the lab."
    arguments = parser.parse_args(argv)
    try:
        {"up": up, "down": down, "status": status}[verb](arguments)
    except s.LabError as error:
        print(f"lab/{verb}: {error}", file=sys.stderr)
        return 1
    except DockerException as error:
        print(f"lab/{verb}: the container engine refused: {error}", file=sys.stderr)
        return 1
    return 0
