# Copyright (c) 2026, The sparkgate.blackwell authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
name: fingerprint
short_description: Join the nodes' parts of a fingerprint
version_added: 0.1.0
description:
  - Joins what M(sparkgate.blackwell.fingerprint_info) read on every node with the digests of the profile and of the
    container's options and environment, as far as they are the same on every node.
positional: deployment, head
options:
  _input:
    description: The RV(sparkgate.blackwell.fingerprint_info#module:fingerprint) of every node, by host.
    type: dict
    required: true
  deployment:
    description: The deployment document.
    type: dict
    required: true
  head:
    description:
      - Take image and weights of every node to be those of this one.
      - A smoke run on the head is recorded like this, because it passes while they are still being copied.
    type: str
author:
  - The sparkgate.blackwell authors (@sparkgate)
"""

EXAMPLES = r"""
---
- name: Join the parts
  ansible.builtin.set_fact:
    current: "{{ parts_by_host | sparkgate.blackwell.fingerprint(common_deployment) }}"
"""

RETURN = r"""
_value:
  description: The fingerprint of the deployment.
  type: dict
  sample:
    nodes:
      spark-1: {image: "sha256:1f0c", manifest: 4f0c, driver: 580.95.05, kernel: 6.14.0-1013-nvidia, gpus: [GPU-8c1e]}
    profile: sha256:2a3b
    container: sha256:4c5d
"""

import typing as t

from ansible_collections.sparkgate.blackwell.plugins.plugin_utils._gate import fingerprint


class FilterModule:
    """Joins a fingerprint."""

    def filters(self) -> dict[str, t.Callable[..., t.Any]]:
        return {"fingerprint": fingerprint}
