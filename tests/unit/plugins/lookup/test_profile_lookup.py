# Copyright (c) 2026, The sparkgate.blackwell authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

import typing as t
from pathlib import Path

import pytest
from ansible.errors import AnsibleError
from ansible_collections.sparkgate.blackwell.plugins.filter.deployment import FilterModule
from ansible_collections.sparkgate.blackwell.plugins.lookup.profile import LookupModule


def look(*terms: str, **options: t.Any) -> list[dict[str, t.Any]]:
    # Ansible knows a plugin's options by its file; here they are given.
    plugin = LookupModule()
    plugin.set_options = lambda **_more: None
    plugin.get_option = lambda name: options.get(name, [])
    return plugin.run(list(terms), {}, **options)


def test_lookup_and_filter(tmp_path: Path) -> None:
    (tmp_path / "mine.yml").write_text("extends: lab-tiny-qwen3.5-moe\nname: mine\n", encoding="utf-8")
    shipped, mine = look("lab-tiny-qwen3.5-moe", "mine", search=[str(tmp_path)])
    assert (shipped["name"], mine["name"]) == ("lab-tiny-qwen3.5-moe", "mine")
    node = {
        "host": "a",
        "fabric_address": "198.51.100.1",
        "fabric_interface": "eth1",
        "management_address": "192.0.2.1",
    }
    assert FilterModule().filters()["deployment"](mine, nodes=[node])["name"] == "mine-vllm"
    with pytest.raises(AnsibleError, match="There is no node to deploy to"):
        FilterModule().filters()["deployment"](mine, nodes=[])


def test_a_wrong_profile_is_an_error_of_ansible() -> None:
    with pytest.raises(AnsibleError, match="There is no profile called nothing"):
        look("nothing")
