# Copyright (c) 2026, The sparkgate.blackwell authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
name: cluster_verdicts
short_description: Judge what differs between the nodes
version_added: 0.1.0
description:
  - Compares architecture, driver, CUDA, GPUs, toolkit, kernel, image, and NCCL of all nodes, as far as their documents have them.
  - Fewer than two nodes give no verdict.
options:
  _input:
    description:
      - By the name of the node, its RV(sparkgate.blackwell.gpu_info#module:gpu), with the keys of a container's document beside it where
        there is one, or what M(sparkgate.blackwell.recon_info) returns.
    type: dict
    required: true
author:
  - The sparkgate.blackwell authors (@sparkgate)
"""

EXAMPLES = r"""
---
- name: Compare the nodes
  ansible.builtin.set_fact:
    verdicts: "{{ dict(ansible_play_hosts | zip(ansible_play_hosts | map('extract', hostvars, 'found'))) | sparkgate.blackwell.cluster_verdicts }}"
"""

RETURN = r"""
_value:
  description: The verdicts, in the form of P(sparkgate.blackwell.gpu_verdicts#filter), without a C(host).
  type: list
  elements: dict
  sample:
    - id: cluster.driver
      status: warn
      host: null
      subject: null
      summary: "driver differs between the nodes (spark-1: 580.95.05, spark-2: 580.126.09)"
      remedy: Bring all nodes to one driver version.
      source: null
      evidence: {spark-1: 580.95.05, spark-2: 580.126.09}
"""

import typing as t

from ansible.errors import AnsibleFilterError
from ansible_collections.sparkgate.blackwell.plugins.plugin_utils import _gpu_verdicts


def cluster_verdicts(documents: t.Any) -> list[dict[str, t.Any]]:
    try:
        return _gpu_verdicts.cluster_verdicts(documents)
    except (ValueError, TypeError, AttributeError) as error:
        raise AnsibleFilterError(
            f"cluster_verdicts: {error}. Give it the documents of gpu_info or recon_info by host."
        ) from error


class FilterModule:
    """Compares nodes."""

    def filters(self) -> dict[str, t.Callable[..., t.Any]]:
        return {"cluster_verdicts": cluster_verdicts}
