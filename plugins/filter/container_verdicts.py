# Copyright (c) 2026, The sparkgate.blackwell authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
name: container_verdicts
short_description: Judge an engine's container and its smoke run
version_added: 0.1.0
description:
  - Turns what M(sparkgate.blackwell.container_probe) found into verdicts. Each that is not fine has a remedy.
  - The questions are C(device.tensor), C(model.transformers), C(model.engine), C(model.architecture), C(model.experts),
    C(image.ray), C(gpu.graph), C(gpu.copy), C(gpu.fp8_block), C(smoke.generation), and C(smoke.oracle).
  - A section that was not asked for gives no verdict.
positional: requirement, name
options:
  _input:
    description: The RV(sparkgate.blackwell.container_probe#module:document).
    type: dict
    required: true
  requirement:
    description: The requirement in the deployment document.
    type: dict
    required: true
  name:
    description: The inventory name of the node on which the container ran.
    type: str
  scope:
    description: Whether the engine had the whole model. The text is judged only then.
    type: str
    choices: [full, partial]
    default: full
  contains:
    description: What the engine's text must contain, in upper or lower case.
    type: str
author:
  - The sparkgate.blackwell authors (@sparkgate)
"""

EXAMPLES = r"""
---
- name: Judge the serving image
  ansible.builtin.set_fact:
    verdicts: >-
      {{ probe.document
         | sparkgate.blackwell.container_verdicts(common_deployment.requirement, inventory_hostname) }}
"""

RETURN = r"""
_value:
  description:
    - The verdicts, each with C(id), C(status) (V(ok), V(warn), V(fail), or V(unknown)), C(host), C(subject),
      C(summary), C(remedy), C(source), and C(evidence).
  type: list
  elements: dict
  sample:
    - id: model.transformers
      status: fail
      host: spark-1
      subject: null
      summary: transformers 5.1.0 does not know qwen3_5_moe
      remedy: Build the serving image with transformers 5.2.0 or newer (image.yml does it).
      source: the model's profile
      evidence: {version: 5.1.0, known: false}
"""

import typing as t

from ansible_collections.sparkgate.blackwell.plugins.plugin_utils._container_verdicts import container_verdicts


class FilterModule:
    """Judges a container."""

    def filters(self) -> dict[str, t.Callable[..., t.Any]]:
        return {"container_verdicts": container_verdicts}
