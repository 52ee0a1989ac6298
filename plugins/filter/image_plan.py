# Copyright (c) 2026, The sparkgate.blackwell authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
name: image_plan
short_description: Decide what a base image needs to serve a model
version_added: 0.1.0
description:
  - Compares what M(sparkgate.blackwell.container_probe) found in a base image with what the model's profile and the
    engine's own requirements (C(Requires-Dist), as read in the image) demand.
  - The transformers that is chosen satisfies both. The profile's pin is preferred.
positional: profile, engine
options:
  _input:
    description: The RV(sparkgate.blackwell.container_probe#module:document) of the base image.
    type: dict
    required: true
  profile:
    description: The model's profile.
    type: dict
    required: true
  engine:
    description: The engine that will serve.
    type: str
    choices: [sglang, vllm]
    required: true
author:
  - The sparkgate.blackwell authors (@sparkgate)
"""

EXAMPLES = r"""
---
- name: Decide what the image needs
  ansible.builtin.set_fact:
    plan: "{{ base.document | sparkgate.blackwell.image_plan(profile, 'sglang') }}"
"""

RETURN = r"""
_value:
  description: The plan.
  type: dict
  contains:
    build:
      description: Whether an image must be built on the base image.
      type: bool
    why:
      description: What was found and what follows from it, one sentence each.
      type: list
      elements: str
    transformers:
      description: The version of transformers that the serving image will have.
      type: str
    pip:
      description: What is to be installed.
      type: list
      elements: str
    labels:
      description: Labels of the image that will be built.
      type: dict
    refuse:
      description: Why nothing can be built on this base image. V(none) where it can.
      type: str
  sample:
    build: true
    why:
      - >-
        The base image's transformers 5.1.0 does not know qwen3_5_moe; sglang 0.5.23 requires transformers ==5.19.0,
        and 5.19.0 satisfies both.
    transformers: 5.19.0
    pip: ["transformers==5.19.0"]
    labels: {sparkgate.engine: "sglang 0.5.23"}
    refuse: null
"""

import typing as t

from ansible_collections.sparkgate.blackwell.plugins.plugin_utils._image_plan import image_plan


class FilterModule:
    """Decides about the serving image."""

    def filters(self) -> dict[str, t.Callable[..., t.Any]]:
        return {"image_plan": image_plan}
