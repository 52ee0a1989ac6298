# Copyright (c) 2026, The sparkgate.blackwell authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
name: verdict_table
short_description: Show verdicts as a plain text table
version_added: 0.1.0
description:
  - The worst comes first. A verdict that is not fine is followed by its remedy, and the last line counts.
  - A failure that was accepted with P(sparkgate.blackwell.verdict_accept#filter) is shown as such.
positional: width
options:
  _input:
    description: Verdicts, of any number of nodes.
    type: list
    elements: dict
    required: true
  width:
    description: Columns to use. The text is wrapped, never cut.
    type: int
    default: 120
seealso:
  - plugin: sparkgate.blackwell.node_verdicts
    plugin_type: filter
author:
  - The sparkgate.blackwell authors (@sparkgate)
"""

EXAMPLES = r"""
---
- name: Show the verdicts
  ansible.builtin.debug:
    msg: "{{ (my_verdicts | sparkgate.blackwell.verdict_table(100)).splitlines() }}"
"""

RETURN = r"""
_value:
  description: The table.
  type: str
  sample: |-
    STATUS  NODE     CHECK       RESULT
    FAIL    spark-a  port.in_use Port 8000 is held by nginx (pid 815).
                                 -> Stop process 815 on that node.
    1 failed
"""

import typing as t

from ansible_collections.sparkgate.blackwell.plugins.plugin_utils._verdicts import table


class FilterModule:
    """Shows verdicts."""

    def filters(self) -> dict[str, t.Callable[..., t.Any]]:
        return {"verdict_table": table}
