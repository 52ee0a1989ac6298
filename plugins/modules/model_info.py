#!/usr/bin/python
# Copyright (c) 2026, The sparkgate.blackwell authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
module: model_info
short_description: Check the weights of a model on a node
version_added: 0.1.0
description:
  - Checks a directory with a model in the safetensors format, as far as that is possible without loading it.
  - With O(depth=headers) it reads the configuration, the index and the header of every shard, which takes seconds
    whatever the size of the model. It finds shards that are missing or cut, damaged headers, tensors that are not
    where the index places them, unfinished downloads, and links that lead nowhere.
  - With O(depth=full) it also computes the sha256 of every file, and returns a manifest.
  - Damage never makes the module fail. It is listed in RV(model.problems), and RV(model.ok) is V(false).
  - The directories C(.cache) and C(.git) at the top are no part of a model, nor are the parts of files that a broken
    transfer of this collection left in C(.sparkgate-partial).
extends_documentation_fragment:
  - sparkgate.blackwell.attributes
attributes:
  check_mode:
    support: full
    details:
      - The module changes nothing but O(hash_cache), and that not in check mode.
  diff_mode:
    support: N/A
    details:
      - The module does not change the model.
  idempotent:
    support: full
options:
  path:
    description: The directory of the model. A directory that does not exist is a problem of the model, and no failure.
    type: path
    required: true
  depth:
    description: How much is read.
    type: str
    choices:
      headers: The configuration, the index, and the headers of the shards.
      full: The content of every file as well.
    default: headers
  expected:
    description:
      - What the configuration must say. V(none) as a value means that nothing is expected.
      - C(architecture) is compared with the first of C(architectures), C(model_type) with the top level.
      - Every other key is looked up in RV(model.config), then in the configuration itself.
    type: dict
    default: {}
  manifest:
    description:
      - A manifest that the directory must match, as an earlier run returned it. Each difference is a problem.
      - With O(depth=headers) only names and sizes are compared.
    type: dict
  model:
    description: The name of the model in RV(model.manifest). By default the name of the directory.
    type: str
  revision:
    description: The revision of the model in RV(model.manifest).
    type: str
  hash_cache:
    description:
      - A file in which the hashes are kept, with the size, time of modification, and inode of each file.
      - A file is not read again while all three are unchanged.
      - It is the only thing that the module may write. Its directory must exist.
    type: path
  threads:
    description: How many files are hashed at a time. By default one for each processor, at most eight.
    type: int
author:
  - The sparkgate.blackwell authors (@sparkgate)
"""

EXAMPLES = r"""
---
- name: Check the model without reading its weights
  sparkgate.blackwell.model_info:
    path: /var/lib/sparkgate/models/qwen
    expected:
      model_type: qwen3_5_moe
  register: result

- name: Hash the model
  sparkgate.blackwell.model_info:
    path: /var/lib/sparkgate/models/qwen
    depth: full
    model: Qwen/Qwen3.5-122B-A10B-FP8
    hash_cache: /var/lib/sparkgate/hashes.json
  become: true
  register: result

- name: Check that a copy is equal
  sparkgate.blackwell.model_info:
    path: /var/lib/sparkgate/models/qwen
    depth: full
    manifest: "{{ result.model.manifest }}"
"""

RETURN = r"""
model:
  description: What is in the directory, and what is wrong with it.
  returned: always
  type: dict
  contains:
    ok:
      description: Whether there are no problems.
      type: bool
      returned: always
      sample: false
    path:
      description: The directory.
      type: str
      returned: always
      sample: /var/lib/sparkgate/models/qwen
    architecture:
      description: The first of C(architectures) in the configuration.
      type: str
      returned: always
      sample: Qwen3_5MoeForConditionalGeneration
    model_type:
      description: The type of the model.
      type: str
      returned: always
      sample: qwen3_5_moe
    config:
      description:
        - The dimensions of the model, wherever the configuration keeps them and under one name each.
        - V(none) where there is no configuration, and for each that it does not have.
      type: dict
      returned: always
      sample:
        num_hidden_layers: 48
        num_experts: 256
        moe_intermediate_size: 1024
        quantization: fp8
    tensor_bytes:
      description: Size of all tensors. V(none) where a shard is missing or damaged.
      type: int
      returned: always
      sample: 127000000000
    total_bytes:
      description: Size of all files.
      type: int
      returned: always
      sample: 127020000000
    files:
      description: The files, by relative path.
      type: list
      elements: dict
      returned: always
      sample:
        - path: config.json
          size: 4096
    problems:
      description: What is wrong, with what can be done about it.
      type: list
      elements: dict
      returned: always
      sample:
        - file: model-00002-of-00004.safetensors
          kind: missing
          detail: the shard is not there
          remedy: Fetch this file again.
    notes:
      description: What is unusual and harmless.
      type: list
      elements: str
      returned: always
      sample: []
    manifest:
      description: The files with their hashes. V(none) with O(depth=headers) and where a file could not be read.
      returned: always
      type: dict
      sample:
        schema: 1
        model: qwen
        revision: null
        files:
          - path: config.json
            size: 4096
            sha256: e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855
    manifest_digest:
      description: The sha256 of the manifest's lines C(sha256  size  path).
      returned: always
      type: str
      sample: e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855
    hashed:
      description: Whether and how much of the content was read.
      returned: always
      type: dict
      contains:
        files:
          description: Files that were read now.
          type: int
          returned: always
          sample: 4
        cached:
          description: Files whose hash was known.
          type: int
          returned: always
          sample: 0
"""

import os
import typing as t

from ansible.module_utils.basic import AnsibleModule
from ansible.module_utils.common.text.converters import to_bytes
from ansible_collections.sparkgate.blackwell.plugins.module_utils._manifest import (
    compare,
    digest,
    dump_cache,
    hash_files,
    parse_cache,
)
from ansible_collections.sparkgate.blackwell.plugins.module_utils._model import Check


class ModelInfo:
    def __init__(self, module: AnsibleModule) -> None:
        self.module = module
        self.directory: str = os.path.normpath(module.params["path"])
        self.hash_cache: str | None = module.params["hash_cache"]
        self.threads: int = module.params["threads"] or min(8, os.cpu_count() or 1)
        self.wanted: dict[str, t.Any] | None = module.params["manifest"]
        if self.wanted is not None and not self._is_manifest(self.wanted):
            module.fail_json(
                msg="manifest must be as this module returns it, with a list files, each with path, size and sha256"
            )

    @staticmethod
    def _is_manifest(value: dict[str, t.Any]) -> bool:
        files = value.get("files")
        return isinstance(files, list) and all(
            isinstance(item, dict) and {"path", "size", "sha256"} <= set(item) for item in files
        )

    def _read_cache(self) -> dict[str, list[t.Any]]:
        if self.hash_cache is None:
            return {}
        try:
            with open(self.hash_cache, encoding="utf-8") as stream:
                return parse_cache(stream.read())
        except (OSError, ValueError):
            # It only saves time, so one that cannot be read is written anew.
            return {}

    def _write_cache(self, cache: dict[str, list[t.Any]]) -> None:
        if self.hash_cache is None or self.module.check_mode:
            return
        temporary = f"{self.hash_cache}.{os.getpid()}.tmp"
        try:
            with open(os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), "wb") as stream:
                stream.write(to_bytes(dump_cache(cache)))
            os.replace(temporary, self.hash_cache)
        except OSError as exc:
            # What was hashed is right all the same.
            self.module.warn(
                f"The hashes could not be kept in hash_cache {self.hash_cache}: {exc.strerror or exc}. "
                "The next run reads every file again. Check that the directory exists and can be written."
            )

    def run(self) -> dict[str, t.Any]:
        check = Check(self.directory)
        check.run(self.module.params["expected"] or {})
        manifest = None
        counts = {"files": 0, "cached": 0}
        hashed = None
        if self.module.params["depth"] == "full" and check.listed.files:
            before = self._read_cache()
            done = hash_files(self.directory, check.listed.files, before, self.threads)
            for path, text in done.errors.items():
                remedy = "Check its owner and mode, and run again."
                check.problem(path, "unreadable", f"the file cannot be hashed: {text}", remedy)
            hashed = {item["path"]: item["sha256"] for item in done.entries}
            counts = {"files": done.read, "cached": len(done.entries) - done.read}
            if done.cache != before:
                self._write_cache(done.cache)
            if not done.errors:
                manifest = {
                    "schema": 1,
                    "model": self.module.params["model"] or os.path.basename(self.directory),
                    "revision": self.module.params["revision"],
                    "files": done.entries,
                }
        if self.wanted is not None and check.listed.files:
            for path, kind, detail in compare(self.wanted, check.listed.files, hashed):
                remedy = "Remove it from the copy." if kind == "unexpected" else "Copy this file again."
                check.problem(path, kind, detail, remedy)
        return {
            "changed": False,
            "model": {
                **check.document(),
                "manifest": manifest,
                "manifest_digest": digest(manifest["files"]) if manifest else None,
                "hashed": counts,
            },
        }


def main() -> None:
    module = AnsibleModule(
        argument_spec={
            "path": {"type": "path", "required": True},
            "depth": {"type": "str", "choices": ["headers", "full"], "default": "headers"},
            "expected": {"type": "dict", "default": {}},
            "manifest": {"type": "dict"},
            "model": {"type": "str"},
            "revision": {"type": "str"},
            "hash_cache": {"type": "path"},
            "threads": {"type": "int"},
        },
        supports_check_mode=True,
    )
    module.exit_json(**ModelInfo(module).run())


if __name__ == "__main__":
    main()
