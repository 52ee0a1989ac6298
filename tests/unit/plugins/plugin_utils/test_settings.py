# Copyright (c) 2026, The sparkgate.blackwell authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""What a user may set, and what is refused before anything is changed."""

from __future__ import annotations

import typing as t

import pytest
from ansible_collections.sparkgate.blackwell.plugins.plugin_utils._deployment import DeploymentError, describe
from ansible_collections.sparkgate.blackwell.plugins.plugin_utils._profile import load
from ansible_collections.sparkgate.blackwell.plugins.plugin_utils._verdicts import accept, inventory_problems

DIGEST = "sha256:" + "0" * 64
NODES = [
    {"host": "a", "fabric_address": "10.0.0.1", "fabric_interface": "f0", "management_address": "10.1.0.1"},
    {"host": "b", "fabric_address": "10.0.0.2", "fabric_interface": "f0", "management_address": "10.1.0.2"},
]


def deployment(**settings: t.Any) -> dict[str, t.Any]:
    return describe(load("lab-tiny-qwen3.5-moe", []), nodes=NODES, **settings)


@pytest.mark.parametrize(
    "settings",
    [
        {"state_dir": "/srv/sparkgate"},
        {"models_dir": "/models"},
        {"api_port": "8001"},
        {"base_image": "owner/name:1.0"},
        {"base_image": f"registry.example:5000/owner/name@{DIGEST}"},
        {"base_image": f"registry.example:5000/owner/name:1@{DIGEST}"},
        {"container_options": {"cap_add": ["IPC_LOCK"], "volumes": ["{state_dir}/x:/x"], "ulimits": {"core": "0"}}},
    ],
)
def test_good_settings(settings: dict[str, t.Any]) -> None:
    assert deployment(**settings)["head"] == "a"


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        *[
            ({"state_dir": value}, "sparkgate_state_dir is")
            for value in ("/", "", "/srv", "rel/dir", "/srv/my state", "/a/../b")
        ],
        *[
            ({"models_dir": value}, "sparkgate_models_dir is")
            for value in ("models", "~/models", "/srv/a:b", "/srv/my models")
        ],
        *[
            ({"api_port": value}, "sparkgate_api_port is")
            for value in (0, -1, 70000, "abc", True, 6379, 6500, 18080, 25000, 40000)
        ],
        *[
            ({"base_image": value}, "sparkgate_base_image is")
            for value in ("Not An Image", "img:1\nRUN rm -rf /", "name@sha256:abc", "a b:1", 5)
        ],
        ({"container_options": {"privileged": True}}, "privileged is not a key"),
        ({"container_options": {"cap_add": "SYS_ADMIN"}}, "must be a list"),
        ({"container_options": {"cap_add": ["CAP_SYS_ADMIN"]}}, "as good as a privileged container"),
        ({"container_options": {"cap_add": ["ALL"]}}, "as good as a privileged container"),
        ({"container_options": {"volumes": ["/:/host"]}}, "gives the container the node"),
        ({"container_options": {"volumes": ["/var/run/docker.sock:/s"]}}, "gives the container the node"),
        ({"container_options": {"devices": 5}}, "must be a list"),
    ],
)
def test_bad_settings_are_refused(settings: dict[str, t.Any], words: str) -> None:
    with pytest.raises(DeploymentError) as caught:
        deployment(**settings)
    assert words in str(caught.value)


def hosts(**values: t.Any) -> dict[str, t.Any]:
    return {
        "a": {"ansible_host": "10.1.0.1", "sparkgate_fabric_address": "10.0.0.1", **values},
        "b": {"ansible_host": "10.1.0.2", "sparkgate_fabric_address": "10.0.0.2"},
    }


@pytest.mark.parametrize(
    ("hostvars", "nodes", "head", "words"),
    [
        (hosts(sparkgate_fabric_address="999.1.1.1"), ["a", "b"], None, "not an IPv4 address"),
        (hosts(sparkgate_fabric_address="0.0.0.0"), ["a", "b"], None, "not an IPv4 address"),
        (hosts(sparkgate_fabric_address="127.0.0.1"), ["a", "b"], None, "not an IPv4 address"),
        (hosts(sparkgate_management_address="http://x y"), ["a", "b"], None, "a host name alone"),
        (hosts(), ["a", "b"], "c", "sparkgate_head is c"),
        (hosts(), ["a", "a"], None, "has it twice"),
        (hosts(), "a", None, "Give a list: [a]"),
    ],
)
def test_bad_inventories(hostvars: dict[str, t.Any], nodes: t.Any, head: str | None, words: str) -> None:
    problems = inventory_problems(hostvars, nodes, head)
    assert len(problems) == 1 and words in problems[0], problems


def test_a_good_inventory() -> None:
    assert inventory_problems(hosts(), ["a", "b"], "b") == []


@pytest.mark.parametrize("names", [["memory.fit"], "memory.fit", "disk.free, memory.fit@a"])
def test_accepted_names_may_be_text(names: t.Any) -> None:
    verdict = {"id": "memory.fit", "status": "fail", "host": "a"}
    assert accept([verdict], names)[0]["accepted"] is True
