# Copyright (c) 2026, The sparkgate.blackwell authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The lab is what the other tests take it for: two machines apart, a registry that only the head reaches."""

from __future__ import annotations

import json
import time
import typing as t
from pathlib import Path

import pytest

from .conftest import ROOT, Node, execute, lab_inventory

STATE = Path("/var/lib/sparkgate-lab")


def fabric_counters(node: Node) -> dict[str, int]:
    """Bytes that have gone through the node's fabric interface, for a test to compare before and after."""
    address = node.variables["sparkgate_fabric_address"]
    links: list[dict[str, t.Any]] = json.loads(node.must("ip -json -statistics -4 address show"))
    names = [link["ifname"] for link in links if any(entry["local"] == address for entry in link["addr_info"])]
    assert len(names) == 1, f"{node.name}: no interface, or several, with {address}"
    folder = f"/sys/class/net/{names[0]}/statistics"
    received, sent = node.must(f"cat {folder}/rx_bytes {folder}/tx_bytes").split()
    return {"received": int(received), "sent": int(sent)}


def reading(node: Node) -> dict[str, t.Any]:
    """What lab/up read on the node when it had just started."""
    found: dict[str, t.Any] = json.loads((STATE / "readings" / f"{node.name}.json").read_text())
    return found


def test_every_node_began_with_an_empty_engine(nodes: list[Node]) -> None:
    for node in nodes:
        assert (reading(node)["images"], reading(node)["containers"]) == ([], []), node.name


def test_only_the_head_reaches_the_registry(nodes: list[Node]) -> None:
    for rank, node in enumerate(nodes):
        assert reading(node)["registry_reachable"] is (rank == 0), node.name
    registry = lab_inventory()["_meta"]["hostvars"][nodes[0].name]["sparkgate_base_image"].split("/")[0]
    address = nodes[0].must(f"getent ahostsv4 {registry.split(':')[0]}").split()[0]
    probe = f"timeout 5 bash -c '</dev/tcp/{address}/{registry.split(':')[1]}'"
    assert nodes[0].run(probe).rc == 0
    for worker in nodes[1:]:
        assert worker.run(probe).rc != 0, f"{worker.name} reaches {address}"
        assert worker.run(f"getent hosts {registry.split(':')[0]}").rc != 0, f"{worker.name} knows the registry's name"


def test_the_base_image_is_named_by_digest(head: Node) -> None:
    assert "@sha256:" in head.variables["sparkgate_base_image"]


def test_nodes_are_machines_apart(nodes: list[Node]) -> None:
    assert len({node.must("docker info 2>/dev/null | grep '^ *ID:'") for node in nodes}) == len(nodes)
    assert len({node.must("hostname") for node in nodes}) == len(nodes)
    for node in nodes:
        assert node.must("systemctl is-system-running") == "running", node.name


def test_the_model_is_on_the_head_alone_and_in_several_shards(head: Node, worker: Node) -> None:
    path = head.variables["model_weights_source"]["path"]
    index = json.loads(head.must(f"cat {path}/model.safetensors.index.json"))
    assert len(set(index["weight_map"].values())) >= 3
    assert head.run(f"touch {path}/config.json").rc != 0, "the model can be written to"
    assert worker.run(f"ls {path}").rc != 0


def test_fabric_traffic_is_counted(head: Node, worker: Node) -> None:
    """What goes from node to node over the fabric shows on the interfaces of both."""
    before = [fabric_counters(node) for node in (head, worker)]
    address = worker.variables["sparkgate_fabric_address"]
    # sshd hangs up on what is no greeting, but not before some of it has come
    head.run(f"timeout 10 bash -c 'head -c 1048576 /dev/zero > /dev/tcp/{address}/22'")
    after = [fabric_counters(node) for node in (head, worker)]
    assert after[0]["sent"] - before[0]["sent"] > 1000
    assert after[1]["received"] - before[1]["received"] > 1000


@pytest.mark.parametrize("path", ["", "keys", "keys/id_ed25519"])
def test_keys_are_not_for_others(path: str) -> None:
    assert (STATE / path).stat().st_mode & 0o077 == 0


def test_a_second_up_changes_nothing_and_is_quick() -> None:
    began = time.monotonic()
    run = execute([str(ROOT / "lab" / "up"), "--nodes", str(len(lab_inventory()["sparkgate"]["hosts"]))])
    run.went_well("nothing changed")
    assert time.monotonic() - began < 15  # 2 seconds on a machine that has nothing else to do


def test_status_names_every_node(nodes: list[Node]) -> None:
    run = execute([str(ROOT / "lab" / "status")])
    run.went_well("registry.lab.example", *(node.name for node in nodes))
    for node in nodes:
        assert node.variables["sparkgate_fabric_address"] in run.output
