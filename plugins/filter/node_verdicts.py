# Copyright (c) 2026, The sparkgate.blackwell authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
name: node_verdicts
short_description: Judge whether a node can take its part in a deployment
version_added: 0.1.0
description:
  - Turns what M(sparkgate.blackwell.recon_info) read on one node into verdicts.
    Each that is not fine has a remedy.
  - The questions are C(accelerator.expected), C(container.engine), C(node.tools), C(node.address), C(memory.fit),
    C(disk.free), C(port.in_use), and C(node.leftover).
  - A key that is absent from the document was not asked and gives no verdict.
    A value that is not known gives the status V(unknown).
  - What the deployment itself holds while it runs is not in its way.
    Its memory counts as available and its ports as free.
positional: name, requirement, deployment
options:
  _input:
    description: The RV(sparkgate.blackwell.recon_info#module:recon) document of a node.
    type: dict
    required: true
  name:
    description: The inventory name of the node.
    type: str
  requirement:
    description: The profile's requirement. C(accelerator) and C(nodes) are used.
    type: dict
  deployment:
    description:
      - The name of the deployment, as in the label C(sparkgate.deployment) of its containers.
      - The deployment document will do, or any dictionary with C(name) and C(head).
    type: raw
  ports:
    description:
      - Ports that the deployment needs. Each is a number, a range such as V(10002-10999), or a dictionary with C(port),
        and optionally C(last) for a range, C(purpose), C(proto), C(exposure), and C(node).
      - A port whose C(node) is V(head) is not looked for on the other nodes, if O(deployment) says which the head is.
      - A foreign listener inside of a range is a warning, because the other ports of the range remain.
    type: list
    elements: raw
    default: []
  need_bytes:
    description:
      - Bytes that are needed, by path. What is at a path already is subtracted.
      - Needs on one file system are added up.
      - The paths must have been given to M(sparkgate.blackwell.recon_info).
    type: dict
  memory_bytes:
    description: Bytes of memory that the node's share needs. V(none) means that it is not known.
    type: int
  weight_bytes:
    description:
      - Size of all weights, as an alternative to O(memory_bytes).
      - The node's share is computed from it, with what an engine needs beside the weights on this accelerator.
    type: int
  address:
    description: The node's fabric address according to the inventory. V(none) means that the inventory has none.
    type: str
author:
  - The sparkgate.blackwell authors (@sparkgate)
"""

EXAMPLES = r"""
---
- name: Judge every node
  ansible.builtin.set_fact:
    my_verdicts: >-
      {{ result.recon | sparkgate.blackwell.node_verdicts(
           name=inventory_hostname,
           requirement={'accelerator': 'cuda', 'nodes': 2},
           deployment='qwen',
           ports=[8000, 6379],
           need_bytes={'/var/lib/sparkgate/models': 127000000000},
           weight_bytes=127000000000,
           address='198.51.100.11') }}
"""

RETURN = r"""
_value:
  description:
    - The verdicts, each with C(id), C(status) (V(ok), V(warn), V(fail), or V(unknown)), C(host), C(subject),
      C(summary), C(remedy), C(source), and C(evidence).
  type: list
  elements: dict
  sample:
    - id: port.in_use
      status: fail
      host: spark-a
      subject: "8000"
      summary: Port 8000 is held by container old-server, python3 (pid 4711).
      remedy: Stop it on that node with `docker stop old-server`.
      source: null
      evidence: {port: 8000, process: python3, pid: 4711}
"""

import typing as t
from collections.abc import Mapping

from ansible.errors import AnsibleFilterError
from ansible_collections.sparkgate.blackwell.plugins.plugin_utils._verdicts import Verdict, node_verdicts


def node_verdicts_filter(recon: t.Any, *args: t.Any, **kwargs: t.Any) -> list[Verdict]:
    if not isinstance(recon, Mapping):
        raise AnsibleFilterError(
            f"node_verdicts needs the dictionary that recon_info returns as recon, and got {type(recon).__name__}"
        )
    try:
        return node_verdicts(recon, *args, **kwargs)
    except ValueError as exc:
        raise AnsibleFilterError(f"node_verdicts cannot use its arguments: {exc}") from exc


class FilterModule:
    """Judges one node."""

    def filters(self) -> dict[str, t.Callable[..., t.Any]]:
        return {"node_verdicts": node_verdicts_filter}
