# Copyright (c) 2026, The sparkgate.blackwell authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
name: smoke_plan
short_description: Decide what of a model the smoke run loads
version_added: 0.1.0
description:
  - The whole model is loaded where one node can hold it, else a part of it.
  - For a GPU with memory of its own that memory counts.
    For one that shares the machine's memory, and for the CPU, the machine's counts.
positional: weight_bytes, recon, scope
options:
  _input:
    description: The deployment document.
    type: dict
    required: true
  weight_bytes:
    description: Size of the weights. V(none) where it is not known.
    type: int
  recon:
    description: The RV(sparkgate.blackwell.recon_info#module:recon) document of the head.
    type: dict
    required: true
  scope:
    description: What to load. V(auto) decides by the memory.
    type: str
    choices: [auto, full, partial]
    default: auto
author:
  - The sparkgate.blackwell authors (@sparkgate)
"""

EXAMPLES = r"""
---
- name: Decide what is loaded
  ansible.builtin.set_fact:
    plan: "{{ common_deployment | sparkgate.blackwell.smoke_plan(127087423488, recon) }}"
"""

RETURN = r"""
_value:
  description: The plan.
  type: dict
  contains:
    scope:
      description: V(full) or V(partial).
      type: str
    why:
      description: The reason for the scope.
      type: str
    refuse:
      description: Why there can be no smoke run. V(none) where there can.
      type: str
    argv:
      description: Command line of the engine.
      type: list
      elements: str
    dtype:
      description: The type in which transformers computes for the comparison.
      type: str
    sections:
      description: Sections of M(sparkgate.blackwell.container_probe).
      type: list
      elements: str
"""

import typing as t

from ansible_collections.sparkgate.blackwell.plugins.plugin_utils._gate import smoke_plan


class FilterModule:
    """Plans a smoke run."""

    def filters(self) -> dict[str, t.Callable[..., t.Any]]:
        return {"smoke_plan": smoke_plan}
