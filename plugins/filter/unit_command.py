# Copyright (c) 2026, The sparkgate.blackwell authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
name: unit_command
short_description: Write a command line for a systemd unit
version_added: 0.1.0
description:
  - Joins arguments to a line for C(ExecStart=), with specifiers and variables escaped, and quotes where they are
    needed.
options:
  _input:
    description: The arguments.
    type: list
    elements: str
    required: true
author:
  - The sparkgate.blackwell authors (@sparkgate)
"""

EXAMPLES = r"""
---
- name: Show a line of a unit
  ansible.builtin.debug:
    msg: "ExecStart={{ ['/usr/bin/echo', '100 %'] | sparkgate.blackwell.unit_command }}"
"""

RETURN = r"""
_value:
  description: The line.
  type: str
"""

import typing as t

from ansible_collections.sparkgate.blackwell.plugins.plugin_utils._serving import quote_unit


class FilterModule:
    """Filters for units."""

    def filters(self) -> dict[str, t.Callable[..., t.Any]]:
        return {"unit_command": quote_unit}
