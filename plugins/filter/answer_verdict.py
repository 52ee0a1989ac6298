# Copyright (c) 2026, The sparkgate.blackwell authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
name: answer_verdict
short_description: Judge the answer of a served model
version_added: 0.1.0
description:
  - Compares a chat completion with what the profile says about it.
  - Where the profile names transformers as the oracle, the text must equal the oracle's text in the same data type.
options:
  _input:
    description: The completion, as M(sparkgate.blackwell.endpoint_info) returns it.
    type: dict
    required: true
  deployment:
    description: The deployment document.
    type: dict
    required: true
  oracle:
    description: The text of transformers' own generation and its C(dtype), or nothing where there is none.
    type: dict
author:
  - The sparkgate.blackwell authors (@sparkgate)
"""

EXAMPLES = r"""
---
- name: Judge an answer
  ansible.builtin.debug:
    msg: "{{ asked.endpoint.completion | sparkgate.blackwell.answer_verdict(deployment=common_deployment) }}"
"""

RETURN = r"""
_value:
  description: The verdict.
  type: dict
"""

import typing as t

from ansible_collections.sparkgate.blackwell.plugins.plugin_utils._serving import answer_verdict


class FilterModule:
    """Filters on answers."""

    def filters(self) -> dict[str, t.Callable[..., t.Any]]:
        return {"answer_verdict": answer_verdict}
