# Copyright (c) 2026, The sparkgate.blackwell authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
name: verdict_accept
short_description: Mark the verdicts that the user accepts
version_added: 0.1.0
description:
  - Adds C(accepted) to every verdict. A failure that is accepted stays visible and no longer stops the deployment.
positional: names
options:
  _input:
    description: Verdicts, of any number of nodes.
    type: list
    elements: dict
    required: true
  names:
    description: What is accepted, as C(id) for all nodes or C(id@host) for one.
    type: list
    elements: str
    default: []
seealso:
  - plugin: sparkgate.blackwell.verdict_failures
    plugin_type: filter
author:
  - The sparkgate.blackwell authors (@sparkgate)
"""

EXAMPLES = r"""
---
- name: Accept what is known to be fine on one node
  ansible.builtin.set_fact:
    my_verdicts: "{{ my_verdicts | sparkgate.blackwell.verdict_accept(['disk.free@spark-b']) }}"
"""

RETURN = r"""
_value:
  description: The verdicts with C(accepted).
  type: list
  elements: dict
"""

import typing as t

from ansible_collections.sparkgate.blackwell.plugins.plugin_utils._verdicts import accept


class FilterModule:
    """Marks verdicts."""

    def filters(self) -> dict[str, t.Callable[..., t.Any]]:
        return {"verdict_accept": accept}
