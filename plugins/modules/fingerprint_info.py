#!/usr/bin/python
# Copyright (c) 2026, The sparkgate.blackwell authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
module: fingerprint_info
short_description: Read what identifies a node's part of a deployment
version_added: 0.1.0
description:
  - Reads the digests of the serving image and of the verified weights, the NVIDIA driver, the kernel and the GPUs.
  - The gate compares this with what a smoke run recorded. A launch on anything else is refused.
  - Weights are not read again.
    A file whose size or time of writing is not as it was when it was verified shows as changed.
author:
  - The sparkgate.blackwell authors (@sparkgate)
extends_documentation_fragment:
  - sparkgate.blackwell.attributes
  - sparkgate.blackwell.attributes.info_module
options:
  image:
    description: Name of the serving image.
    type: str
    required: true
  model:
    description: Name of the model's directory, which names its manifest too.
    type: str
    required: true
  model_path:
    description: Directory of the weights on this node.
    type: path
    required: true
  state_dir:
    description: Directory of evidence and manifests on this node.
    type: path
    default: /var/lib/sparkgate
seealso:
  - module: sparkgate.blackwell.container_probe
"""

EXAMPLES = r"""
---
- name: Read the fingerprint of the node
  sparkgate.blackwell.fingerprint_info:
    image: sparkgate/qwen:0123456789ab
    model: Qwen3.5-122B-A10B-FP8
    model_path: /var/lib/sparkgate/models/Qwen3.5-122B-A10B-FP8
  register: fingerprint
"""

RETURN = r"""
fingerprint:
  description: This node's part of the fingerprint.
  returned: success
  type: dict
  contains:
    image:
      description: Digest of the image's configuration. V(none) where the node has no such image or it cannot be read.
      type: str
      sample: sha256:1f0c1f3a9f2a7f1f4d0b9c0d1b6b1d0b3cf2c1a4a5e6f708192a3b4c5d6e7f80
    manifest:
      description:
        - Digest of the manifest of the weights. V(none) where there is no manifest.
        - V(changed) and the file's name where a file is not as it was when it was verified.
      type: str
      sample: 4f0c1f3a9f2a7f1f4d0b9c0d1b6b1d0b3cf2c1a4a5e6f708192a3b4c5d6e7f80
    driver:
      description: Version of the NVIDIA kernel module, V(false) where none is loaded.
      type: raw
      sample: 580.95.05
    kernel:
      description: Release of the kernel.
      type: str
      sample: 6.14.0-1013-nvidia
    gpus:
      description: UUIDs of the GPUs. V(none) where there is a driver that does not tell them.
      type: list
      elements: str
      sample: [GPU-8c1e7c1b-31ab-9b06-1f3c-7a3f3a4a5b6c]
weight_bytes:
  description: Size of the model's files by the manifest. V(none) where there is no manifest.
  returned: success
  type: int
  sample: 127087423488
"""

import glob
import json
import os
import typing as t

from ansible.module_utils.basic import AnsibleModule
from ansible_collections.sparkgate.blackwell.plugins.module_utils._fingerprint import (
    changed_file,
    config_digest,
    gpu_uuid,
    manifest_digest,
    read_content,
)
from ansible_collections.sparkgate.blackwell.plugins.module_utils._gpu import parse_driver_version

DRIVER_FILE = "/proc/driver/nvidia/version"
GPU_FILES = "/proc/driver/nvidia/gpus/*/information"


class Reader:
    def __init__(self, module: AnsibleModule) -> None:
        self.module = module
        self.image: str = module.params["image"]
        self.model: str = module.params["model"]
        self.model_path: str = module.params["model_path"]
        self.weight_bytes: int | None = None
        self.manifests = os.path.join(module.params["state_dir"], "manifests")

    def command(self, argv: list[str]) -> str | None:
        """The output of a command, bounded in time; None where it failed or is not there."""
        if self.module.get_bin_path(argv[0]) is None:
            return None
        rc, out, _err = self.module.run_command(["timeout", "-k", "1", "20", *argv], handle_exceptions=False)
        return out if rc == 0 else None

    def read_image(self) -> str | None:
        out = self.command(["docker", "image", "inspect", self.image])
        if out is None:
            return None
        try:
            return config_digest(json.loads(out)[0], read_content)
        except (ValueError, IndexError, AttributeError):
            return None

    def read_json(self, name: str) -> t.Any:
        path = os.path.join(self.manifests, name)
        try:
            with open(path, encoding="utf-8") as handle:
                return json.load(handle)
        except FileNotFoundError:
            return None
        except (OSError, ValueError) as error:
            self.module.fail_json(
                msg=f"{path} cannot be read: {error}. Remove it and run model.yml again; it verifies the weights anew."
            )

    def read_manifest(self) -> str | None:
        manifest = self.read_json(f"{self.model}.json")
        if not manifest:
            return None
        self.weight_bytes = sum(entry["size"] for entry in manifest["files"])
        cache = self.read_json(f"{self.model}.hashes.json") or {}
        changed = changed_file(self.model_path, manifest["files"], cache.get("files", cache))
        return f"changed: {changed}" if changed else manifest_digest(manifest["files"])

    def read_driver(self) -> str | bool | None:
        try:
            with open(DRIVER_FILE, encoding="utf-8", errors="replace") as handle:
                return parse_driver_version(handle.read())[0]
        except FileNotFoundError:
            return False

    def read_gpus(self) -> list[str] | None:
        found = []
        for path in glob.glob(GPU_FILES):
            with open(path, encoding="utf-8", errors="replace") as handle:
                found.append(gpu_uuid(handle.read()))
        if None not in found:
            return sorted(t.cast("list[str]", found))
        # The driver reads the UUID only when the GPU is first used.
        out = self.command(["nvidia-smi", "--query-gpu=uuid", "--format=csv,noheader"])
        return None if out is None else sorted(line.strip() for line in out.splitlines() if line.strip())

    def read(self) -> dict[str, t.Any]:
        return {
            "image": self.read_image(),
            "manifest": self.read_manifest(),
            "driver": self.read_driver(),
            "kernel": os.uname().release,
            "gpus": self.read_gpus(),
        }


def main() -> None:
    module = AnsibleModule(
        argument_spec={
            "image": {"type": "str", "required": True},
            "model": {"type": "str", "required": True},
            "model_path": {"type": "path", "required": True},
            "state_dir": {"type": "path", "default": "/var/lib/sparkgate"},
        },
        supports_check_mode=True,
    )
    reader = Reader(module)
    fingerprint = reader.read()
    module.exit_json(changed=False, fingerprint=fingerprint, weight_bytes=reader.weight_bytes)


if __name__ == "__main__":
    main()
