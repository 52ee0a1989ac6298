# Copyright (c) 2026, The sparkgate.blackwell authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
name: exposure_verdicts
short_description: Judge from where the ports of a deployment can be reached
version_added: 0.1.0
description:
  - Reads the listening sockets of a node and gives a verdict for each one that a process of the deployment holds.
  - A listener is good on loopback, on the fabric, as the API, or where the firewall of the deployment rejects other
    networks.
options:
  _input:
    description: The output of C(ss -Hltnp), run as root.
    type: str
    required: true
  pids:
    description: Process IDs of the deployment on this node.
    type: list
    elements: int
    required: true
  node:
    description: The node, as in C(nodes) of the deployment document.
    type: dict
    required: true
  deployment:
    description: The deployment document.
    type: dict
    required: true
  firewall:
    description: Whether the firewall of the deployment is active on the node.
    type: bool
    required: true
author:
  - The sparkgate.blackwell authors (@sparkgate)
"""

EXAMPLES = r"""
---
- name: Show the listeners that other networks can reach
  ansible.builtin.debug:
    msg: "{{ verdicts | selectattr('status', 'equalto', 'fail') | map(attribute='summary') }}"
  vars:
    verdicts: >-
      {{ sockets.stdout | sparkgate.blackwell.exposure_verdicts(pids=[4711], node=common_deployment.nodes[0],
         deployment=common_deployment, firewall=true) }}
"""

RETURN = r"""
_value:
  description: The verdicts.
  type: list
  elements: dict
"""

import typing as t

from ansible_collections.sparkgate.blackwell.plugins.plugin_utils._serving import exposure_verdicts


class FilterModule:
    """Filters on listening sockets."""

    def filters(self) -> dict[str, t.Callable[..., t.Any]]:
        return {"exposure_verdicts": exposure_verdicts}
