# Copyright (c) 2026, The sparkgate.blackwell authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""What is wrong with the inventory is said before any node is touched. Needs no lab, but for one test."""

from __future__ import annotations

from pathlib import Path

import yaml

from .conftest import INVENTORY, ROOT, Node, playbook


def test_the_shipped_inventory_says_which_addresses_to_fill_in() -> None:
    run = playbook("deploy_qwen.yml", inventory=[ROOT / "inventory"])
    run.refused("spark-1", "spark-2", "ansible_host", "sparkgate_fabric_address")
    assert "UNREACHABLE" not in run.output
    assert run.output.count("[ERROR]") <= 1 and run.output.count("fatal:") == 1, run.output


def test_an_inventory_without_the_group_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "hosts.yml"
    path.write_text(yaml.safe_dump({"machines": {"hosts": {"one": {}, "two": {}}}}))
    run = playbook("deploy_qwen.yml", inventory=[path])
    run.refused("has no host in the group sparkgate", "sparkgate_group=GROUP")


def test_an_unreachable_node_is_named(tmp_path: Path, nodes: list[Node]) -> None:
    lost = nodes[1].name
    path = tmp_path / "hosts.yml"
    # Nobody listens on the discard port.
    path.write_text(yaml.safe_dump({"sparkgate": {"hosts": {lost: {"ansible_host": "127.0.0.1", "ansible_port": 9}}}}))
    run = playbook("deploy_qwen.yml", inventory=[INVENTORY, path])
    run.refused("1 of 2 nodes cannot be reached", f"{lost} (127.0.0.1)", "nothing was changed")
    assert set(run.changed.values()) <= {0}, run.output
