# Copyright (c) 2026, The sparkgate.blackwell authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""One variable serves the same weights with the other engine, through the same gate."""

from __future__ import annotations

import json

from .conftest import INVENTORY, Node, execute, playbook


def test_a_running_deployment_is_not_replaced_unasked() -> None:
    run = playbook("playbooks/preflight.yml", sparkgate_engine="sglang")
    run.refused("port.in_use", "stop.yml")


def test_sglang_on_ray_takes_over(head: Node) -> None:
    playbook("playbooks/stop.yml").went_well()
    argv = ["ansible-playbook", "deploy_qwen.yml", "-i", str(INVENTORY), "-e", "sparkgate_engine=sglang"]
    run = execute(argv, limit=1200)
    run.went_well("the answer equals transformers' own in float16", "2 accelerators")
    unit = head.must("systemctl cat sparkgate-engine.service")
    assert "sglang.launch_server" in unit and "--use-ray" in unit
    evidence = json.loads(head.must("cat /var/lib/sparkgate/evidence/*sglang.json"))
    assert evidence["passed"] and evidence["document"]["engine"]["name"] == "sglang"
    # The other engine's evidence is its own, so that going back needs no new smoke run.
    assert json.loads(head.must("cat /var/lib/sparkgate/evidence/*vllm.json"))["passed"]


def test_stop_leaves_nothing_running(nodes: list[Node]) -> None:
    run = playbook("playbooks/stop.yml")
    run.went_well()
    for node in nodes:
        assert node.must("docker ps --quiet --filter label=sparkgate.deployment") == ""
        assert node.run("nft list table inet sparkgate").rc != 0
