# Copyright (c) 2026, The sparkgate.blackwell authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
name: stage_durations
short_description: Turn the starts of stages into durations
version_added: 0.1.0
description:
  - A stage ends where the next one starts, and the last one now.
positional: now
options:
  _input:
    description: Stages with C(stage) and C(started), in seconds since the epoch.
    type: list
    elements: dict
    required: true
  now:
    description: The time now, in seconds since the epoch.
    type: float
    required: true
author:
  - The sparkgate.blackwell authors (@sparkgate)
"""

EXAMPLES = r"""
---
- name: Show how long each stage took
  ansible.builtin.debug:
    msg: "{{ sparkgate_stage_times | sparkgate.blackwell.stage_durations(now().timestamp()) }}"
"""

RETURN = r"""
_value:
  description: The stages with C(stage) and C(seconds).
  type: list
  elements: dict
"""

import typing as t

from ansible_collections.sparkgate.blackwell.plugins.plugin_utils._serving import stage_durations


class FilterModule:
    """Filters on times."""

    def filters(self) -> dict[str, t.Callable[..., t.Any]]:
        return {"stage_durations": stage_durations}
