# Copyright (c) 2026, The sparkgate.blackwell authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
name: verdict_failures
short_description: Select the verdicts that must stop a deployment
version_added: 0.1.0
description:
  - Selects the verdicts with the status V(fail) that are not accepted.
  - Warnings and what is unknown do not stop a deployment.
positional: accept
options:
  _input:
    description: Verdicts, of any number of nodes.
    type: list
    elements: dict
    required: true
  accept:
    description: What is accepted, as C(id) for all nodes or C(id@host) for one.
    type: list
    elements: str
    default: []
seealso:
  - plugin: sparkgate.blackwell.verdict_accept
    plugin_type: filter
author:
  - The sparkgate.blackwell authors (@sparkgate)
"""

EXAMPLES = r"""
---
- name: Stop where a node is not fit
  ansible.builtin.assert:
    that: my_verdicts | sparkgate.blackwell.verdict_failures(accept=['memory.fit@spark-b']) | length == 0
"""

RETURN = r"""
_value:
  description: The verdicts that remain.
  type: list
  elements: dict
"""

import typing as t
from collections.abc import Iterable, Mapping

from ansible_collections.sparkgate.blackwell.plugins.plugin_utils._verdicts import Verdict, failures


def verdict_failures(verdicts: Iterable[Mapping[str, t.Any]], accept: Iterable[str] = ()) -> list[Verdict]:
    return failures(verdicts, accept)


class FilterModule:
    """Selects verdicts."""

    def filters(self) -> dict[str, t.Callable[..., t.Any]]:
        return {"verdict_failures": verdict_failures}
