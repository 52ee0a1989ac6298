# Copyright (c) 2026, The sparkgate.blackwell authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""What a deployment has left behind on the nodes, looked at from outside."""

from __future__ import annotations

import socket
import typing as t

import pytest

from .conftest import Node, playbook

SECRETS = "/var/lib/sparkgate/secrets"


def test_both_nodes_serve(nodes: list[Node]) -> None:
    for node in nodes:
        assert node.must("systemctl is-active sparkgate-ray.service") == "active"
    assert nodes[0].must("systemctl is-active sparkgate-engine.service") == "active"


def test_the_evidence_is_the_same_on_every_node(nodes: list[Node], evidence: dict[str, t.Any]) -> None:
    assert evidence["passed"] is True
    assert evidence["scope"] in ("full", "partial")
    assert set(evidence["fingerprint"]["nodes"]) == {node.name for node in nodes}
    name = evidence["deployment"]
    assert len({node.must(f"sha256sum < /var/lib/sparkgate/evidence/{name}.json") for node in nodes}) == 1


def test_image_and_weights_are_the_same_on_every_node(evidence: dict[str, t.Any]) -> None:
    parts = list(evidence["fingerprint"]["nodes"].values())
    assert parts[0]["image"] and all(part["image"] == parts[0]["image"] for part in parts)
    assert parts[0]["manifest"] and all(part["manifest"] == parts[0]["manifest"] for part in parts)


def test_the_worker_got_its_image_from_the_head(head: Node, worker: Node) -> None:
    """It never pulled one, and the registry that the head pulls from does not answer it."""
    digests = worker.must("docker images --digests --format '{{.Digest}}' | sort -u")
    assert digests in ("", "<none>")
    pulled = head.must("docker images --digests --format '{{.Repository}}@{{.Digest}}' | grep @sha256: | head -n 1")
    name, port = pulled.split("/")[0].split(":")
    address = head.must(f"getent ahostsv4 {name} | awk '{{print $1; exit}}'")
    knock = f"timeout 5 bash -c '</dev/tcp/{address}/{port}'"
    assert head.run(knock).rc == 0
    assert worker.run(knock).rc != 0


def test_image_and_weights_went_over_the_fabric(worker: Node) -> None:
    fabric = worker.variables["sparkgate_fabric_address"]
    interface = worker.must(f"ip -4 -oneline addr | awk '$4 ~ /^{fabric}\\//{{print $2}}'")
    received = int(worker.must(f"cat /sys/class/net/{interface}/statistics/rx_bytes"))
    weights = int(worker.must("du -sb /var/lib/sparkgate/models | cut -f1"))
    image = max(int(size) for size in worker.must("docker image inspect -f '{{.Size}}' $(docker images -q)").split())
    assert received > weights + image, f"{interface}: {received} bytes; image {image}, weights {weights}"


def test_every_secret_is_a_file_for_root_alone(nodes: list[Node]) -> None:
    for node in nodes:
        assert node.must(f"stat -c '%a %U' {SECRETS}") == "700 root"
        assert set(node.must(f"find {SECRETS} -type f -printf '%m %u\\n'").splitlines()) == {"600 root"}


PLACES = {
    "command lines": "cat /proc/[0-9]*/cmdline",
    "environments": "cat /proc/[0-9]*/environ",
    "units": "cat /etc/systemd/system/*.service",
    "transient units": "systemctl show 'sparkgate-*'",
    "the journal": "journalctl --no-pager --unit 'sparkgate-*'",
    "containers": "docker ps --all --quiet | xargs docker inspect",
    "the log of Ray": "docker logs sparkgate-ray",
    "other files": f"find /var/lib/sparkgate /run/sparkgate -type f -size -4M -not -path '{SECRETS}/*' -print0 | xargs -0 cat",
}


@pytest.mark.parametrize("where", PLACES)
def test_no_secret_is_anywhere_else(nodes: list[Node], where: str) -> None:
    """The values themselves are looked for, with a program that does not put them on a command line either."""
    # Processes end while one looks, so that complaints go away; that there was something to read is counted.
    script = f"""
        values=$(mktemp) text=$(mktemp); trap 'rm -f $values $text' EXIT
        for file in {SECRETS}/api_key {SECRETS}/ray_token; do
          [ -f $file ] && {{ cat $file; echo; }}
        done | grep . > $values
        [ -s $values ] || {{ echo 'no secrets to look for'; exit 2; }}
        {{ {PLACES[where]}; }} 2>&1 | tr '\\0' '\\n' > $text
        [ $(wc -c < $text) -gt 200 ] || {{ echo 'nothing to look through'; exit 2; }}
        grep --text --fixed-strings --file $values --count $text
        true
    """
    for node in nodes:
        assert node.must(script).splitlines()[-1] == "0", f"{node.name}: a secret is in {where}"


def reachable(address: str, port: int) -> bool:
    try:
        with socket.create_connection((address, port), timeout=3):
            return True
    except OSError:
        return False


def test_only_the_api_is_open_on_the_management_network(nodes: list[Node]) -> None:
    """From here, which is the management network: sshd and the API answer, whatever else listens does not."""
    for node in nodes:
        address = node.variables["ansible_host"]
        listening = {int(port) for port in node.must("ss -Hltn | awk '{print $4}' | sed 's/.*://' | sort -un").split()}
        allowed = {int(node.variables.get("ansible_port", 22))} | ({8000} if node is nodes[0] else set())
        assert len(listening - allowed) > 2, "Ray should listen on ports of its own"
        assert {port for port in listening if reachable(address, port)} <= allowed, node.name


def test_the_api_needs_its_key(head: Node) -> None:
    url = f"http://{head.variables['ansible_host']}:8000/v1/models"
    ask = f"import urllib.request as r; r.urlopen({url!r}, timeout=10)"
    done = head.run(f'python3 -c "{ask}"')
    assert done.rc != 0 and "401" in done.output, done.output


def test_status_says_that_it_answers() -> None:
    run = playbook("playbooks/status.yml")
    run.went_well("tok/s")
    assert set(run.changed.values()) == {0}


def test_check_mode_of_a_finished_deployment_changes_nothing() -> None:
    run = playbook("deploy_qwen.yml", "--check")
    run.went_well()
    assert set(run.changed.values()) == {0}, run.output
