# Copyright (c) 2026, The sparkgate.blackwell authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
name: interface_of
short_description: Name of the network interface that has an address
version_added: 0.1.0
description:
  - Looks an IPv4 address up in the network facts of a node.
positional: address
options:
  _input:
    description: The facts that M(ansible.builtin.setup) returns, with the C(network) subset.
    type: dict
    required: true
  address:
    description: The IPv4 address, without a prefix length.
    type: str
    required: true
author:
  - The sparkgate.blackwell authors (@sparkgate)
"""

EXAMPLES = r"""
---
- name: Show the interface of the fabric
  ansible.builtin.debug:
    msg: "{{ ansible_facts | sparkgate.blackwell.interface_of('198.51.100.11') }}"
"""

RETURN = r"""
_value:
  description: The interface's name, or V(none) where no interface has the address.
  type: str
"""

import typing as t
from collections.abc import Mapping


def interface_of(facts: Mapping[str, t.Any], address: str) -> str | None:
    for name in facts.get("interfaces") or []:
        # Ansible's fact keys replace what cannot stand in a variable's name.
        detail = facts.get(name.replace("-", "_").replace(":", "_").replace(".", "_")) or {}
        found = [detail.get("ipv4") or {}, *(detail.get("ipv4_secondaries") or [])]
        if any(entry.get("address") == address for entry in found):
            return str(detail.get("device", name))
    return None


class FilterModule:
    """Filters that read a node's network facts."""

    def filters(self) -> dict[str, t.Callable[..., t.Any]]:
        return {"interface_of": interface_of}
