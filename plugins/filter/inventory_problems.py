# Copyright (c) 2026, The sparkgate.blackwell authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
name: inventory_problems
short_description: Find what has to be filled in in the inventory
version_added: 0.1.0
description:
  - Looks at the variables of the nodes and at nothing else, so it can tell before any node is contacted.
  - Addresses and names that are reserved for documentation, such as V(198.51.100.11), count as not filled in.
positional: nodes, head
options:
  _input:
    description: The variables of all hosts, C(hostvars).
    type: dict
    required: true
  nodes:
    description: The inventory names of the nodes. Default, all hosts.
    type: list
    elements: str
  head:
    description: The node that shall be the head. It must be one of O(nodes).
    type: str
author:
  - The sparkgate.blackwell authors (@sparkgate)
"""

EXAMPLES = r"""
---
- name: Stop where the inventory is not filled in
  ansible.builtin.assert:
    that: hostvars | sparkgate.blackwell.inventory_problems(ansible_play_hosts_all) | length == 0
  run_once: true
"""

RETURN = r"""
_value:
  description:
    - A text for each problem, with the host, the variable and what to fill in. Empty where the inventory is fine.
  type: list
  elements: str
  sample:
    - >-
      spark-a: ansible_host is 192.0.2.11, which is an example.
      Fill in the address of this node for ssh.
"""

import typing as t

from ansible_collections.sparkgate.blackwell.plugins.plugin_utils._verdicts import inventory_problems


class FilterModule:
    """Looks at the inventory."""

    def filters(self) -> dict[str, t.Callable[..., t.Any]]:
        return {"inventory_problems": inventory_problems}
