#!/usr/bin/python
# Copyright (c) 2026, The sparkgate.blackwell authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
module: container_probe
short_description: Look at an engine's container from inside, and let the engine generate
version_added: 0.1.0
description:
  - Runs a program in a container of an image, with the options that a launch uses.
    Returns the document that it prints.
  - The sections of the document are independent.
    What fails, hangs or crashes is an entry in C(errors) and loses no other section.
  - What the image's entrypoint or a library prints does no harm.
  - The image must be on the node. It is never pulled.
author:
  - The sparkgate.blackwell authors (@sparkgate)
extends_documentation_fragment:
  - sparkgate.blackwell.attributes
attributes:
  check_mode:
    support: full
    details:
      - Nothing lasting is changed, so check mode runs the container too.
      - Where the image is not there yet, RV(document) is V(none).
  diff_mode:
    support: N/A
    details:
      - Nothing lasting is changed.
  idempotent:
    support: full
    details:
      - Nothing lasting is changed.
options:
  image:
    description: Image on the node.
    type: str
    required: true
  container_argv:
    description: Options of C(docker run), the same that the launch uses.
    type: list
    elements: str
    default: []
  environment:
    description: Environment of the container. It is handed over in a file, so that no value is in a command line.
    type: dict
    default: {}
  labels:
    description: Further labels of the container.
    type: dict
    default: {}
  name:
    description: Name of the container. It must be free. Default, a name that nobody else has.
    type: str
  entrypoint:
    description:
      - Whether the image's entrypoint runs the program (V(used)) or is left out (V(bypassed)).
      - Some entrypoints set up CUDA's forward compatibility, so leaving them out can change what works.
    type: str
    choices: [used, bypassed]
    default: used
  compare_entrypoint:
    description:
      - Whether a second container, which bypasses the image's entrypoint, is asked for the sections V(toolkit) and
        V(gpu). RV(bypassed) is its document.
      - This shows what a C(docker exec) or a changed entrypoint would get.
    type: bool
    default: false
  sections:
    description:
      - What to look at, in this order.
      - V(gpu) is what M(sparkgate.blackwell.gpu_info) reads, as this container sees it. V(compat) is what the image has
        for CUDA's forward compatibility, used or not.
      - V(graph) captures and replays a CUDA graph, V(copy) measures how fast the GPU copies within its memory, and
        V(fp8_block) compares a product in FP8 with a scale for each block with the same in BF16. They are V(false)
        where there is no GPU.
      - V(generate) starts the engine's own server with O(engine_argv) in this container, asks it once and stops it.
      - V(oracle) lets transformers generate greedily from the same weights, to compare.
    type: list
    elements: str
    choices:
      - python
      - image
      - toolkit
      - gpu
      - compat
      - torch
      - transformers
      - engine
      - ray
      - nccl
      - triton
      - graph
      - copy
      - fp8_block
      - generate
      - oracle
    default: [python, image, toolkit, torch, transformers, engine, ray]
  accelerator:
    description: The device for tensors and O(sections=oracle). With V(auto) the GPU where there is one, else the CPU.
    type: str
    choices: [auto, cuda, cpu]
    default: auto
  engine:
    description: The engine whose version and requirements are read.
    type: str
    choices: [sglang, vllm]
  model_type:
    description: The model type that transformers should know. Where O(model_path) is given, its configuration says it.
    type: str
  model_path:
    description: Directory of the model inside the container.
    type: str
  engine_argv:
    description: Command line of the engine's server. It must listen on O(engine_port) of the loopback address.
    type: list
    elements: str
  engine_port:
    description: Port of the engine's server.
    type: int
  health_path:
    description: Path that answers with 200 when the server is ready.
    type: str
    default: /health
  served_model_name:
    description: Name by which the server is asked.
    type: str
  prompt:
    description: What the engine and transformers are asked.
    type: str
  max_tokens:
    description: How many tokens they may answer with.
    type: int
    default: 16
  dtype:
    description: The type in which transformers computes.
    type: str
    choices: [float16, bfloat16, float32]
    default: bfloat16
  timeout:
    description: Seconds for all sections together.
    type: int
    default: 600
  show_progress:
    description: Whether the action plugin runs it in the background and shows what it is at. For what takes minutes.
    type: bool
    default: false
  program:
    description: Source of the program. The action plugin sets it.
    type: str
seealso:
  - module: sparkgate.blackwell.fingerprint_info
"""

EXAMPLES = r"""
---
- name: See what the base image has
  sparkgate.blackwell.container_probe:
    image: nvcr.io/nvidia/sglang:26.05-py3
    container_argv: [--gpus, all]
    engine: sglang
    model_type: qwen3_5_moe
  register: base

- name: Stop where a tensor cannot be computed
  ansible.builtin.assert:
    that: base.document.torch.tensor_ok
    fail_msg: "{{ base.document.torch.error }}"
"""

RETURN = r"""
document:
  description:
    - What the program found, one key a section, with C(errors) and C(timings).
    - V(none) in check mode where the image is not there.
  returned: success
  type: dict
  sample:
    image: {id: "sha256:1f0c", cuda_version: "13.1", architecture: arm64}
    entrypoint: used
    torch: {version: 2.9.1, cuda: "13.0", arch_list: [sm_120], tensor_ok: true, error: null}
    transformers:
      version: 5.19.0
      known: true
      architecture: Qwen3_5MoeForConditionalGeneration
      num_experts: 256
      moe_intermediate_size: 1024
    engine: {name: sglang, version: 0.5.23, distribution: sglang, requires_dist: ["transformers==5.19.0"]}
    ray: {version: 2.60.0}
    errors: []
bypassed:
  description:
    - With O(compare_entrypoint=true), the document of the container that bypassed the entrypoint.
    - V(none) where that container could not be looked at, with an entry C(bypassed) in the C(errors) of RV(document).
  returned: when O(compare_entrypoint) is true
  type: dict
  sample:
    entrypoint: bypassed
    cuda_driver_version: "13.0"
    ptx_jit: {ptx_version: "9.1", code: 222}
    errors: []
seconds:
  description: How long the container ran.
  returned: success
  type: float
  sample: 12.4
message:
  description: What was done, or why nothing could be done.
  returned: success
  type: str
  sample: The container ran for 12.4 s.
stderr_tail:
  description: The last lines that the container printed besides the document.
  returned: success
  type: list
  elements: str
"""

import json
import os
import secrets
import tempfile
import time
import typing as t

from ansible.module_utils.basic import AnsibleModule
from ansible_collections.sparkgate.blackwell.plugins.module_utils._container_probe import (
    ENTRYPOINT_SECTIONS,
    PROGRESS,
    ProbeError,
    container_command,
    explain,
    parse_document,
    program_text,
    request_from,
)
from ansible_collections.sparkgate.blackwell.plugins.module_utils._fingerprint import config_digest, read_content

# Starting and stopping a container takes time too.
MARGIN_SECONDS = 60
TAIL_LINES = 40


class Probe:
    def __init__(self, module: AnsibleModule) -> None:
        self.module = module
        self.image: str = module.params["image"]
        self.timeout: int = module.params["timeout"]
        self.nonce = secrets.token_hex(8)
        self.name: str = module.params["name"] or f"sparkgate-probe-{self.nonce}"

    def inspect(self) -> dict[str, t.Any] | None:
        rc, out, err = self.module.run_command(["docker", "image", "inspect", self.image])
        if rc == 0:
            return t.cast("dict[str, t.Any]", json.loads(out)[0])
        if "no such image" in err.lower():
            return None
        raise ProbeError(
            f"Docker does not answer about the image {self.image}: {err.strip()}. Check that the container engine runs."
        )

    def run(self) -> dict[str, t.Any]:
        if self.module.get_bin_path("docker") is None:
            raise ProbeError("The docker command is not on this node. Install the container engine.")
        request_from(self.module.params, self.nonce)  # refuses what cannot be asked
        inspection = self.inspect()
        if inspection is None:
            message = f"The image {self.image} is not on this node."
            if not self.module.check_mode:
                raise ProbeError(f"{message} Bring it there first; image.yml does it for the serving image.")
            result: dict[str, t.Any] = {"document": None, "seconds": 0.0, "message": message, "stderr_tail": []}
            return {**result, "bypassed": None} if self.module.params["compare_entrypoint"] else result
        started = time.monotonic()
        params = self.module.params
        document, tail = self.look(inspection, params, self.name, self.nonce)
        result = {"document": document, "stderr_tail": tail}
        if params["compare_entrypoint"]:
            try:
                result["bypassed"], _tail = self.look(
                    inspection,
                    {**params, "entrypoint": "bypassed", "sections": list(ENTRYPOINT_SECTIONS)},
                    f"{self.name}-bypassed",
                    secrets.token_hex(8),
                )
            except ProbeError as error:
                result["bypassed"] = None
                document["errors"].append({"source": "bypassed", "code": error.rc, "name": str(error)})
        seconds = round(time.monotonic() - started, 1)
        return {**result, "seconds": seconds, "message": f"The container ran for {seconds} s."}

    def look(
        self, inspection: dict[str, t.Any], params: t.Mapping[str, t.Any], name: str, nonce: str
    ) -> tuple[dict[str, t.Any], list[str]]:
        """The document of one container, completed with what only the node knows."""
        out, tail = self.run_container(params, name, nonce)
        document = parse_document(out, nonce)
        image = document.get("image") or {}
        image.update({"id": config_digest(inspection, read_content), "architecture": inspection.get("Architecture")})
        document.update({"image": image, "entrypoint": params["entrypoint"]})
        return document, tail

    def run_container(self, params: t.Mapping[str, t.Any], name: str, nonce: str) -> tuple[str, list[str]]:
        descriptor, env_file = tempfile.mkstemp(dir=self.module.tmpdir)  # with mode 0600
        id_file = f"{env_file}.id"
        try:
            with os.fdopen(descriptor, "w", encoding="utf-8") as handle:
                handle.writelines(f"{key}={value}\n" for key, value in params["environment"].items())
            argv = container_command(params, name, env_file, id_file)
            limit = ["timeout", "-k", "5", str(self.timeout + MARGIN_SECONDS)]
            rc, out, err = self.module.run_command(
                [*limit, *argv], data=program_text(params["program"], request_from(params, nonce))
            )
        finally:
            os.unlink(env_file)
            self.remove(id_file)
        tail = [line for line in err.splitlines() if not line.startswith(PROGRESS)][-TAIL_LINES:]
        problem = explain(rc, out, tail, params, nonce)
        if problem:
            raise ProbeError(problem, rc, tail)
        return out, tail

    def remove(self, id_file: str) -> None:
        """A container outlives the command that was to show its output. By its ID, since the name may be another's."""
        try:
            with open(id_file, encoding="ascii") as handle:
                container = handle.read().strip()
        except FileNotFoundError:
            return
        os.unlink(id_file)
        if container:
            self.module.run_command(["docker", "rm", "--force", container])


def main() -> None:
    module = AnsibleModule(
        argument_spec={
            "image": {"type": "str", "required": True},
            "container_argv": {"type": "list", "elements": "str", "default": []},
            "environment": {"type": "dict", "default": {}},
            "labels": {"type": "dict", "default": {}},
            "name": {"type": "str"},
            "entrypoint": {"type": "str", "choices": ["used", "bypassed"], "default": "used"},
            "compare_entrypoint": {"type": "bool", "default": False},
            "sections": {
                "type": "list",
                "elements": "str",
                "choices": [
                    "python",
                    "image",
                    "toolkit",
                    "gpu",
                    "compat",
                    "torch",
                    "transformers",
                    "engine",
                    "ray",
                    "nccl",
                    "triton",
                    "graph",
                    "copy",
                    "fp8_block",
                    "generate",
                    "oracle",
                ],
                "default": ["python", "image", "toolkit", "torch", "transformers", "engine", "ray"],
            },
            "accelerator": {"type": "str", "choices": ["auto", "cuda", "cpu"], "default": "auto"},
            "engine": {"type": "str", "choices": ["sglang", "vllm"]},
            "model_type": {"type": "str"},
            "model_path": {"type": "str"},
            "engine_argv": {"type": "list", "elements": "str"},
            "engine_port": {"type": "int"},
            "health_path": {"type": "str", "default": "/health"},
            "served_model_name": {"type": "str"},
            "prompt": {"type": "str"},
            "max_tokens": {"type": "int", "default": 16, "no_log": False},
            "dtype": {"type": "str", "choices": ["float16", "bfloat16", "float32"], "default": "bfloat16"},
            "timeout": {"type": "int", "default": 600},
            "show_progress": {"type": "bool", "default": False},
            "program": {"type": "str"},
        },
        supports_check_mode=True,
    )
    try:
        result = Probe(module).run()
    except ProbeError as error:
        if error.rc is None:
            module.fail_json(msg=str(error))
        module.fail_json(msg=str(error), rc=error.rc, stderr_tail=error.tail)
    module.exit_json(changed=False, **result)


if __name__ == "__main__":
    main()
