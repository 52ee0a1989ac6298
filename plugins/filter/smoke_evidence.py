# Copyright (c) 2026, The sparkgate.blackwell authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
name: smoke_evidence
short_description: Make the record of a smoke run
version_added: 0.1.0
description:
  - The record says what was seen, with what scope, and of what (the fingerprint).
  - A smoke run passed if nothing failed, a tensor was computed, and the engine generated.
positional: deployment, verdicts, current
options:
  _input:
    description: The RV(sparkgate.blackwell.container_probe#module:document) of the smoke run.
    type: dict
    required: true
  deployment:
    description: The deployment document.
    type: dict
    required: true
  verdicts:
    description: The verdicts about the document.
    type: list
    elements: dict
    required: true
  current:
    description: The fingerprint of what was seen.
    type: dict
    required: true
  scope:
    description: Whether the engine had the whole model.
    type: str
    choices: [full, partial]
    required: true
  created:
    description: When the smoke run ended.
    type: str
    required: true
  seconds:
    description: How long it took.
    type: float
    required: true
author:
  - The sparkgate.blackwell authors (@sparkgate)
"""

EXAMPLES = r"""
---
- name: Make the record
  ansible.builtin.set_fact:
    evidence: >-
      {{ probe.document | sparkgate.blackwell.smoke_evidence(common_deployment, verdicts, current, scope='full',
         created='2026-12-01T12:00:00Z', seconds=probe.seconds) }}
"""

RETURN = r"""
_value:
  description:
    - The evidence, with C(schema), C(deployment), C(created), C(scope), C(passed), C(verdicts), C(document),
      C(timings), and C(fingerprint).
  type: dict
"""

import typing as t

from ansible_collections.sparkgate.blackwell.plugins.plugin_utils._gate import smoke_evidence


class FilterModule:
    """Makes evidence."""

    def filters(self) -> dict[str, t.Callable[..., t.Any]]:
        return {"smoke_evidence": smoke_evidence}
