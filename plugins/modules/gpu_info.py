#!/usr/bin/python
# Copyright (c) 2026, The sparkgate.blackwell authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
module: gpu_info
short_description: Read the GPUs of a node and try one kernel on them
version_added: 0.1.0
description:
  - Reads the kernel driver, the driver's libraries as they are really loaded, and the devices. Runs a kernel on each
    device and reads its result back. Loads PTX of the version that the node's CUDA toolkit writes.
  - It needs nothing but Python. C(nvidia-smi) is asked only where the library NVML is missing.
  - Every section runs in a process of its own with a deadline, so that a call that hangs or crashes loses only what it
    was asked. A reading that failed is listed under C(errors) and its value is V(none), which means that it was asked
    and is not known. What is known to be absent is V(false) or an empty list.
  - The kernel needs a context on the device, which takes a few hundred MiB of its memory for a second.
extends_documentation_fragment:
  - sparkgate.blackwell.attributes
  - sparkgate.blackwell.attributes.info_module
options:
  timeout:
    description:
      - Seconds for the calls into the driver's libraries, all together. A single section gets a third of it.
      - Every command that is run has a time limit of its own.
    type: int
    default: 60
seealso:
  - module: sparkgate.blackwell.recon_info
author:
  - The sparkgate.blackwell authors (@sparkgate)
"""

EXAMPLES = r"""
---
- name: Read the GPUs
  sparkgate.blackwell.gpu_info:
  register: result

- name: Show whether a kernel ran
  ansible.builtin.debug:
    var: result.gpu.kernel_launch
"""

RETURN = r"""
gpu:
  description: What was read.
  returned: always
  type: dict
  contains:
    machine:
      description: The architecture, as the kernel names it.
      returned: always
      type: str
      sample: aarch64
    driver_present:
      description: Whether there is a driver.
      returned: always
      type: bool
      sample: true
    driver_version:
      description: Version of the kernel module.
      returned: always
      type: str
      sample: 580.95.05
    open_kernel_module:
      description: Whether it is the open kernel module, which Blackwell needs.
      returned: always
      type: bool
      sample: true
    cuda_driver_version:
      description: The newest CUDA that the C(libcuda) which was loaded supports.
      returned: always
      type: str
      sample: "13.0"
    libcuda:
      description:
        - The C(libcuda) that the loader really gives; V(false) where there is none.
        - C(forward_compat) tells whether it is one of a newer release on top of this driver. C(note) is what the
          library itself says about that.
      returned: always
      type: raw
      sample:
        path: /usr/lib/aarch64-linux-gnu/libcuda.so.580.95.05
        version: 580.95.05
        forward_compat: false
        note: null
    toolkit_version:
      description: Version of the CUDA toolkit, from C(nvcc); V(false) where there is none.
      returned: always
      type: raw
      sample: "13.0"
    devices:
      description:
        - The devices. C(memory_source) is V(nvml), V(cuda), or V(meminfo) for a GPU that shares the machine's memory.
        - Where C(mig) is V(true), name and memory are those of the part that a program gets.
      returned: always
      type: list
      elements: dict
      sample:
        - index: 0
          name: NVIDIA GB10
          uuid: GPU-00000000-0000-0000-0000-000000000000
          pci_bus_id: "0000000F:01:00.0"
          compute_capability: "12.1"
          integrated: true
          brand: NVIDIA RTX
          memory_total_bytes: 130664833024
          memory_free_bytes: null
          memory_source: meminfo
          mig: false
    kernel_launch:
      description:
        - Whether a kernel ran on every device and its result could be read back.
        - A result that is wrong has the C(code) V(0), and C(error) says what was read.
      returned: always
      type: dict
      sample: {ok: true, code: 0, error: null}
    ptx_jit:
      description:
        - The answer of the driver to PTX of the toolkit's own version; V(false) where there is no toolkit.
      returned: always
      type: raw
      sample: {ptx_version: "9.0", code: 0}
    simulated:
      description: Name of the scenario where the libraries are those of the simulated GPU, which exists for tests.
      returned: always
      type: raw
      sample: false
    errors:
      description: Readings that failed. C(call) is the function of the library that answered so.
      returned: always
      type: list
      elements: dict
      sample:
        - {source: nvml, code: 3, name: NVML_ERROR_NOT_SUPPORTED, call: nvmlDeviceGetMemoryInfo}
"""

import os

from ansible.module_utils.basic import AnsibleModule
from ansible_collections.sparkgate.blackwell.plugins.module_utils._gpu import read_gpu
from ansible_collections.sparkgate.blackwell.plugins.module_utils._recon import Source, parse_meminfo


def main() -> None:
    module = AnsibleModule(
        argument_spec={"timeout": {"type": "int", "default": 60}},
        supports_check_mode=True,
    )
    if module.params["timeout"] < 1:
        module.fail_json(msg=f"timeout is {module.params['timeout']}. Give the probe at least 1 second.")
    module.run_command_environ_update = {"LANG": "C", "LC_ALL": "C"}
    source = Source(module.run_command, module.get_bin_path)
    memory_total = parse_meminfo(source.read("/proc/meminfo")).get("MemTotal")
    gpu, _processes = read_gpu(source, os.uname().machine, memory_total, module.params["timeout"])
    module.exit_json(changed=False, gpu=gpu)


if __name__ == "__main__":
    main()
