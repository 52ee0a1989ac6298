#!/usr/bin/python
# Copyright (c) 2026, The sparkgate.blackwell authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
module: recon_info
short_description: Read what a node has to offer and what is in the way
version_added: 0.1.0
description:
  - Reads the GPU and its driver, the network interfaces, memory, disk space, the container engine, listening sockets
    with their owners, and who holds memory or a GPU, in one round trip.
  - Every command that is run has a time limit of a few seconds. A reading that fails is listed under C(errors) and its
    value is V(none), which means that it was asked and is not known. What is known to be absent is V(false) or an
    empty list.
  - The owners of sockets and the memory of containers are known only when the module runs as root.
  - Command lines and environments of processes and containers can hold secrets. They are not read.
extends_documentation_fragment:
  - sparkgate.blackwell.attributes
  - sparkgate.blackwell.attributes.info_module
options:
  paths:
    description:
      - Directories for which free space and the size of what is in them is wanted. They need not exist.
      - The data directory of the container engine is always added.
    type: list
    elements: path
    default: []
  ports:
    description:
      - TCP ports that are looked for among the listening sockets. Without it all listening sockets are returned.
    type: list
    elements: int
seealso:
  - module: sparkgate.blackwell.gpu_info
  - plugin: sparkgate.blackwell.node_verdicts
    plugin_type: filter
author:
  - The sparkgate.blackwell authors (@sparkgate)
"""

EXAMPLES = r"""
---
- name: Read the node
  sparkgate.blackwell.recon_info:
    paths:
      - /var/lib/sparkgate/models
  become: true
  register: result

- name: Show the GPUs
  ansible.builtin.debug:
    var: result.recon.gpu.devices
"""

RETURN = r"""
recon:
  description: What was read.
  returned: always
  type: dict
  contains:
    gpu:
      description:
        - Driver and devices, and whether a kernel ran on them, as M(sparkgate.blackwell.gpu_info) returns it.
      type: dict
      returned: always
      sample:
        machine: aarch64
        driver_present: true
        driver_version: 580.95.05
        open_kernel_module: true
        cuda_driver_version: "13.0"
        libcuda:
          path: /usr/lib/aarch64-linux-gnu/libcuda.so.580.95.05
          version: 580.95.05
          forward_compat: false
          note: null
        toolkit_version: "13.0"
        devices:
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
        kernel_launch: {ok: true, code: 0, error: null}
        ptx_jit: {ptx_version: "9.0", code: 0}
        simulated: false
        errors: []
    fabric:
      description: The network interfaces that can carry traffic between nodes, and what of the host matters for them.
      type: dict
      returned: always
      sample:
        ports:
          - name: enp1s0f1np1
            pci: "0000:01:00.1"
            rdma_device: rocep1s0f1
            twin: null
            up: true
            speed_mbit: 200000
            mtu: 9000
            rdma_active_mtu: null
            ipv4: [198.51.100.11/24]
            link_layer: Ethernet
            gid_index: null
            peer: null
        host:
          kernel: 6.17.0-1014-nvidia
          cmdline: quiet
          cma_total_bytes: 67108864
          cma_free_bytes: 60000000
          firmware: 5.36_0ACUM018
        errors: []
    system:
      description:
        - Operating system, memory, disks, container engine, tools, addresses, listening sockets, and holders of memory
          or a GPU.
      type: dict
      returned: always
      sample:
        hostname: spark-a
        os: {name: Ubuntu, version: "24.04", dgx_release: 7.2.3}
        kernel: 6.17.0-1014-nvidia
        cmdline: quiet
        machine: aarch64
        cpu_count: 20
        memory: {total_bytes: 130664833024, available_bytes: 124415922176, swap_total_bytes: 0}
        shm: {total_bytes: 65332416512, free_bytes: 65332416512}
        disks:
          - path: /var/lib/sparkgate/models
            filesystem: 66306
            total_bytes: 3936818806784
            free_bytes: 3500000000000
            content_bytes: 0
        container_engine:
          name: docker
          answers: true
          version: 28.5.1
          storage_driver: overlay2
          data_root: /var/lib/docker
          free_bytes: 3500000000000
          nvidia_runtime: true
        systemd: true
        tools: {rsync: 3.2.7, ssh: 9.6p1, systemd: "255", nft: 1.0.9}
        addresses:
          - {interface: enp1s0f1np1, address: 198.51.100.11/24}
        listeners:
          - address: 0.0.0.0
            port: 8000
            process: python3
            pid: 4711
            container: old-server
            unit: null
            deployment: null
        holders:
          - kind: container
            name: old-server
            id: 0123456789ab
            image: vllm/vllm-openai:v0.23.0
            deployment: null
            unit: null
            memory_bytes: 4294967296
            gpu: true
            gpu_memory_bytes: 68719476736
        errors: []
    python:
      description: The Python interpreters on the path.
      type: list
      elements: dict
      returned: always
      sample:
        - {path: /usr/bin/python3, version: 3.12.3}
"""

import os

from ansible.module_utils.basic import AnsibleModule
from ansible_collections.sparkgate.blackwell.plugins.module_utils._fabric import read_fabric
from ansible_collections.sparkgate.blackwell.plugins.module_utils._gpu import read_gpu
from ansible_collections.sparkgate.blackwell.plugins.module_utils._recon import (
    Source,
    parse_meminfo,
    read_addresses,
    read_python,
    read_system,
)


def main() -> None:
    module = AnsibleModule(
        argument_spec={
            "paths": {"type": "list", "elements": "path", "default": []},
            "ports": {"type": "list", "elements": "int"},
        },
        supports_check_mode=True,
    )
    module.run_command_environ_update = {"LANG": "C", "LC_ALL": "C"}
    uname = os.uname()
    # Each part has a source of its own, so that errors are listed where they belong.
    gpu_source, fabric_source, system_source = (Source(module.run_command, module.get_bin_path) for _part in range(3))
    memory_total = parse_meminfo(gpu_source.read("/proc/meminfo")).get("MemTotal")
    gpu, gpu_processes = read_gpu(gpu_source, uname.machine, memory_total)
    addresses = read_addresses(fabric_source)
    module.exit_json(
        changed=False,
        recon={
            "gpu": gpu,
            "fabric": read_fabric(fabric_source, uname, addresses),
            "system": read_system(
                system_source, uname, module.params["paths"], module.params["ports"], gpu_processes, addresses
            ),
            "python": read_python(system_source),
        },
    )


if __name__ == "__main__":
    main()
