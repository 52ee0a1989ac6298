# Copyright (c) 2026, The sparkgate.blackwell authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
name: deployment
short_description: Describe everything that a deployment runs
version_added: 0.1.0
description:
  - Computes, from a profile and a list of nodes, the deployment document that every stage reads.
  - The document holds the container options, which are the same for the probe, the smoke run and the launch, the
    environment of each rank, and the
    command lines of Ray and of the engine. It holds no secret.
  - The filter is pure. It looks at no node.
options:
  _input:
    description: A profile, as P(sparkgate.blackwell.profile#lookup) returns it.
    type: dict
    required: true
  nodes:
    description:
      - The nodes, the head first, each with C(host), C(fabric_address), C(fabric_interface) and C(management_address).
      - C(rdma_devices) and C(gid_index) are used where they are known.
    type: list
    elements: dict
    required: true
  engine:
    description: The inference engine. Default, the profile's.
    type: str
    choices: [sglang, vllm]
  state_dir:
    description: Directory on the nodes for evidence, manifests and secrets.
    type: path
    default: /var/lib/sparkgate
  models_dir:
    description: Directory on the nodes for weights. Default, C(models) in O(state_dir).
    type: path
  api_port:
    description: TCP port of the API.
    type: int
    default: 8000
  base_image:
    description: The base image. Default, the profile's.
    type: str
  revision:
    description: The revision of the model. Default, the profile's.
    type: str
  container_options:
    description: Overrides of the profile's container options, by the same keys.
    type: dict
    default: {}
  engine_version:
    description: >-
      Version of the engine in the image, where it is known. It selects the arguments. Default, the
      profile's first entry.
    type: str
author:
  - The sparkgate.blackwell authors (@sparkgate)
"""

EXAMPLES = r"""
---
- name: Show the command line of the engine
  ansible.builtin.debug:
    msg: >-
      {{ (lookup('sparkgate.blackwell.profile', 'qwen3.5-122b-a10b-fp8')
      | sparkgate.blackwell.deployment(nodes=nodes)).engine_argv }}
  vars:
    nodes:
      - {host: spark-1, fabric_address: 198.51.100.11, fabric_interface: enp1s0f0np0, management_address: 192.0.2.11}
      - {host: spark-2, fabric_address: 198.51.100.12, fabric_interface: enp1s0f0np0, management_address: 192.0.2.12}
"""

RETURN = r"""
_value:
  description: The deployment document.
  type: dict
"""

import typing as t
from collections.abc import Mapping

from ansible.errors import AnsibleFilterError
from ansible_collections.sparkgate.blackwell.plugins.plugin_utils._deployment import DeploymentError, describe


def deployment(profile: Mapping[str, t.Any], **kwargs: t.Any) -> dict[str, t.Any]:
    try:
        return describe(profile, **kwargs)
    except DeploymentError as exc:
        raise AnsibleFilterError(str(exc)) from exc


class FilterModule:
    """Filters that describe a deployment."""

    def filters(self) -> dict[str, t.Callable[..., t.Any]]:
        return {"deployment": deployment}
