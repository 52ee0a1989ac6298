# Copyright (c) 2026, The sparkgate.blackwell authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""What cannot work is refused before it costs anything, in one clear message."""

from __future__ import annotations

import json
from collections.abc import Iterator

import pytest

from .conftest import Node, lab_inventory, playbook


@pytest.fixture
def busy_port(worker: Node) -> Iterator[int]:
    """A foreign process on the worker listens on a port."""
    port = 18777
    unit = "foreign-listener"
    listener = f"python3 -m http.server --bind 0.0.0.0 {port}"
    worker.must(f"systemctl reset-failed {unit} 2>/dev/null; systemd-run --quiet --unit {unit} {listener}")
    worker.must(f"for n in $(seq 50); do ss -Hltn 'sport = :{port}' | grep -q . && exit 0; sleep 0.1; done; exit 1")
    yield port
    worker.must(f"systemctl stop {unit}")


def source_of_weights(head: Node) -> str:
    """The directory that the lab's inventory names as the source on the head."""
    variables = lab_inventory()["_meta"]["hostvars"][head.name]
    path = variables["model_weights_source"]["path"]
    assert isinstance(path, str)
    return path


@pytest.fixture
def copy_of_weights(head: Node, scratch: str) -> str:
    """A copy of the source on the head, to be damaged."""
    head.must(f"mkdir -p {scratch} && cp -a --reflink=auto {source_of_weights(head)} {scratch}/source")
    return f"{scratch}/source"


def test_a_missing_shard_is_named(head: Node, scratch: str, copy_of_weights: str) -> None:
    shard = head.must(f"ls {copy_of_weights} | grep safetensors$ | sed -n 2p")
    head.must(f"rm {copy_of_weights}/{shard}")
    run = playbook(
        "playbooks/model.yml",
        sparkgate_state_dir=scratch,
        model_weights_source={"kind": "directory", "path": copy_of_weights},
    )
    run.refused(shard, head.name, "nothing was copied")
    assert head.run(f"ls {scratch}/models/*/*.safetensors").rc != 0


def test_another_architecture_is_refused(head: Node, scratch: str, copy_of_weights: str) -> None:
    config = json.loads(head.must(f"cat {copy_of_weights}/config.json"))
    head.must(f"""sed -i 's/"{config["architectures"][0]}"/"LlamaForCausalLM"/' {copy_of_weights}/config.json""")
    run = playbook(
        "playbooks/model.yml",
        sparkgate_state_dir=scratch,
        model_weights_source={"kind": "directory", "path": copy_of_weights},
    )
    run.refused("LlamaForCausalLM", config["architectures"][0], head.name)


def test_a_port_in_use_is_named_with_its_holder(worker: Node, busy_port: int) -> None:
    """The API's port is wanted on the head, so that the worker is made the head here."""
    run = playbook("playbooks/preflight.yml", sparkgate_api_port=busy_port, sparkgate_head=worker.name)
    run.refused("port.in_use", str(busy_port), worker.name, "python3")
    assert set(run.changed.values()) <= {0}, run.output


# What a deployment leaves on a node, but for the content of its state directory.
TRACES = """
    docker images --quiet --no-trunc | sort -u; docker ps --all --quiet | sort; ls /etc/systemd/system /var/lib
    systemctl list-units --all --plain --no-legend 'sparkgate-*' | cut -d' ' -f1,3-5; cat /home/*/.ssh/authorized_keys; nft list tables
"""


def test_check_mode_of_a_first_run_changes_nothing(nodes: list[Node], scratch: str) -> None:
    """Another base image and state directory make it a first run: nothing of it is there yet."""
    before = [node.must(TRACES) for node in nodes]
    base = f"registry.lab.example:5000/not/there@sha256:{'0' * 64}"
    run = playbook("deploy_qwen.yml", "--check", sparkgate_state_dir=scratch, sparkgate_base_image=base)
    run.went_well("would be pulled", "would try lab/lab-tiny-qwen3.5-moe", "refused until a smoke run has passed")
    assert before == [node.must(TRACES) for node in nodes]
    for node in nodes:
        assert node.run(f"test -e {scratch}").rc != 0, f"{node.name} has {scratch} after a run in check mode"


@pytest.fixture
def slow_fabric(head: Node) -> Iterator[None]:
    """The head sends slowly, so that a transfer lasts longer than the smoke run."""
    address = head.variables["sparkgate_fabric_address"]
    interface = head.must(f"ip -4 -oneline addr | awk '$4 ~ /^{address}\\//{{print $2}}'")
    head.must(f"tc qdisc add dev {interface} root tbf rate 2mbit burst 32kb latency 400ms")
    yield
    head.must(f"tc qdisc del dev {interface} root")


def test_a_failed_smoke_run_cancels_the_transfers(
    nodes: list[Node], head: Node, scratch: str, copy_of_weights: str, slow_fabric: None
) -> None:
    """Nothing is launched, and neither a unit nor an rsync is left."""
    # At two megabits a second this takes two minutes, and the smoke run ends after three seconds.
    head.must(f"head -c 30000000 /dev/urandom > {copy_of_weights}/notes.bin")
    before = [node.must("systemctl show -P ActiveEnterTimestamp sparkgate-engine.service") for node in nodes]
    run = playbook(
        "playbooks/deploy.yml",
        sparkgate_state_dir=scratch,
        model_weights_source={"kind": "directory", "path": copy_of_weights},
        smoke_gate_timeout=3,
    )
    run.refused("The smoke run failed", "transfers to the other nodes were cancelled", "nothing was launched")
    # The copy was under way: it had begun, and did not end.
    assert nodes[1].run(f"ls -d {scratch}/models/*").rc == 0
    assert nodes[1].run(f"ls {scratch}/models/*/notes.bin").rc != 0
    for node in nodes:
        assert node.must("systemctl list-units --all --plain --no-legend 'sparkgate-transfer-*'") == ""
        assert node.run("pgrep -x rsync").rc == 1
    # What served before goes on.
    assert before == [node.must("systemctl show -P ActiveEnterTimestamp sparkgate-engine.service") for node in nodes]


def test_stale_evidence_is_refused_and_the_part_named(worker: Node, nodes: list[Node]) -> None:
    """Somebody wrote to a file of the weights on the worker since the smoke run."""
    path = worker.must("ls /var/lib/sparkgate/models/*/*.safetensors | tail -n 1")
    stamp = worker.must(f"stat -c %y {path}")
    worker.must(f"touch {path}")
    try:
        run = playbook("playbooks/launch.yml")
        run.refused("Nothing is launched", worker.name, "manifest")
    finally:
        worker.must(f"touch -d '{stamp}' {path}")
    for node in nodes:
        assert node.must("systemctl is-active sparkgate-ray.service") == "active"
