# Copyright (c) 2026, The sparkgate.blackwell authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
name: gpu_verdicts
short_description: Judge a node's GPUs, their driver, and the image that is to run on them
version_added: 0.1.0
description:
  - Turns what M(sparkgate.blackwell.gpu_info) found on a node, and what the same probe found inside a container, into verdicts.
    Each that is not fine has a remedy, the least invasive first.
  - A key that is absent was not asked and gives no verdict. V(null) is not known and gives C(unknown). V(false) and an empty list say
    that there is none.
  - The questions are C(driver.present), C(driver.open_module), C(driver.device_floor), C(driver.known_bad), C(cuda.compatibility),
    C(cuda.forward_compat), C(cuda.ptx_jit), C(gpu.kernel_launch), C(gpu.binary), C(gpu.triton), C(gpu.simulated), C(memory.reading),
    C(image.architecture), C(nccl.version), C(kernel.kho), C(container_toolkit.known_bad), C(engine.known_bad), C(engine.backend),
    C(model.transformers), C(model.engine), C(model.quantization), C(model.kv_dtype), and C(model.tensor_parallel).
  - Where the requirement's accelerator is V(cpu) there is nothing to say.
positional: container, requirement, name, system
options:
  _input:
    description: The RV(sparkgate.blackwell.gpu_info#module:gpu) of the node.
    type: dict
    required: true
  container:
    description: The document of the probe inside the container.
    type: dict
  requirement:
    description:
      - What the model needs, and its dimensions under the names of its configuration where they are known.
      - C(backends) is a list of back ends that the engine is told to use, such as V(fa3).
      - Where C(runs_in) is V(container) and O(container) is not given, what the node's own CUDA toolkit lacks is a warning.
    type: dict
  name:
    description: The inventory name of the node.
    type: str
  system:
    description: The C(system) of M(sparkgate.blackwell.recon_info), for what depends on the kernel.
    type: dict
author:
  - The sparkgate.blackwell authors (@sparkgate)
"""

EXAMPLES = r"""
---
- name: Judge the GPUs of a node
  ansible.builtin.set_fact:
    verdicts: "{{ found.gpu | sparkgate.blackwell.gpu_verdicts(name=inventory_hostname) }}"
"""

RETURN = r"""
_value:
  description:
    - The verdicts, each with C(id), C(status) (V(ok), V(warn), V(fail), or V(unknown)), C(host), C(subject), C(summary), C(remedy),
      C(source), and C(evidence). Where devices differ, there is one for each kind, with the indices as C(subject).
  type: list
  elements: dict
  sample:
    - id: driver.open_module
      status: ok
      host: spark-1
      subject: null
      summary: the driver's open kernel module is loaded
      remedy: null
      source: null
      evidence: null
"""

import typing as t

from ansible.errors import AnsibleFilterError
from ansible_collections.sparkgate.blackwell.plugins.plugin_utils import _gpu_verdicts


def gpu_verdicts(host: t.Any, *arguments: t.Any, **options: t.Any) -> list[dict[str, t.Any]]:
    try:
        return _gpu_verdicts.gpu_verdicts(host, *arguments, **options)
    except (ValueError, TypeError, AttributeError, KeyError) as error:
        raise AnsibleFilterError(
            f"gpu_verdicts: these are not documents of the GPU probe: {error}. Give it what gpu_info returns."
        ) from error


class FilterModule:
    """Judges GPUs."""

    def filters(self) -> dict[str, t.Callable[..., t.Any]]:
        return {"gpu_verdicts": gpu_verdicts}
