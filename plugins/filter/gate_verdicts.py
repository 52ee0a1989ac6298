# Copyright (c) 2026, The sparkgate.blackwell authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
name: gate_verdicts
short_description: Compare the evidence of a smoke run with what will be launched
version_added: 0.1.0
description:
  - Gives C(gate.evidence) (there is evidence, and it covers the nodes), C(gate.passed), and C(gate.fingerprint).
  - Each part of the fingerprint that differs is a verdict of its own, with the part's name as C(subject). The parts are
    C(image), C(manifest), C(driver), C(kernel), and C(gpus) of every node, and C(profile) and C(container) of the
    deployment.
  - A part that is not known now differs, even from one that was not known then.
positional: current, head
options:
  _input:
    description: The evidence, as a document or as the text of its file. Empty where there is none.
    type: raw
    required: true
  current:
    description: The fingerprint as it is now, from the filter P(sparkgate.blackwell.fingerprint#filter).
    type: dict
    required: true
  head:
    description: The node that the verdicts about the whole deployment are given to.
    type: str
author:
  - The sparkgate.blackwell authors (@sparkgate)
"""

EXAMPLES = r"""
---
- name: Refuse a launch that the smoke run does not speak for
  ansible.builtin.assert:
    that: verdicts | selectattr('status', 'equalto', 'fail') | length == 0
    fail_msg: >-
      {{ verdicts | selectattr('status', 'equalto', 'fail') | map(attribute='summary') | join('; ') }}
  vars:
    verdicts: "{{ evidence | sparkgate.blackwell.gate_verdicts(current, 'spark-1') }}"
"""

RETURN = r"""
_value:
  description:
    - The verdicts, each with C(id), C(status) (V(ok) or V(fail)), C(host), C(subject), C(summary), C(remedy),
      C(source), and C(evidence).
  type: list
  elements: dict
  sample:
    - id: gate.fingerprint
      status: fail
      host: spark-2
      subject: driver
      summary: driver was 580.95.05 when the smoke run passed and is 580.126.09 now
      remedy: Run the smoke stage again (smoke.yml).
      source: null
      evidence: {was: 580.95.05, is: 580.126.09}
"""

import typing as t

from ansible_collections.sparkgate.blackwell.plugins.plugin_utils._gate import gate_verdicts


class FilterModule:
    """Judges evidence."""

    def filters(self) -> dict[str, t.Callable[..., t.Any]]:
        return {"gate_verdicts": gate_verdicts}
