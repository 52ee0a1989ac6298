# Copyright (c) 2026, The sparkgate.blackwell authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The served answer is compared with transformers' own generate(), and a damaged weight makes the comparison fail."""

from __future__ import annotations

import json
import typing as t

from .conftest import INVENTORY, Node, execute, playbook

MODEL = "/var/lib/sparkgate/models/lab-tiny-qwen3.5-moe"

# Flips the exponent of one bfloat16 weight in the last norm, which makes it huge.
FLIP = """
import json, pathlib, sys
root = pathlib.Path(sys.argv[1])
for shard in sorted(root.glob("*.safetensors")):
    data = bytearray(shard.read_bytes())
    size = int.from_bytes(data[:8], "little")
    header = json.loads(data[8 : 8 + size])
    for name, tensor in header.items():
        if name.endswith("language_model.norm.weight"):
            data[8 + size + tensor["data_offsets"][0] + 1] ^= 0x7F
            shard.write_bytes(data)
            raise SystemExit(0)
raise SystemExit("no such tensor")
"""


def oracle(head: Node, evidence: dict[str, t.Any], weights: str) -> str:
    """What transformers generates from these weights, in the serving image."""
    image = head.must("docker inspect --format '{{.Config.Image}}' sparkgate-engine")
    seen = evidence["document"]["oracle"]
    arguments = {
        "image": image,
        "container_argv": ["--network", "none", "--volume", f"{weights}:/weights:ro"],
        "sections": ["oracle"],
        "model_path": "/weights",
        "prompt": "hello world",
        "max_tokens": 16,
        "dtype": seen["dtype"],
        "timeout": 300,
    }
    argv = ["ansible", head.name, "-i", str(INVENTORY), "-b", "-m", "sparkgate.blackwell.container_probe"]
    done = execute([*argv, "-a", json.dumps(arguments)], ANSIBLE_CALLBACK_RESULT_FORMAT="json")
    assert done.rc == 0, done.output
    result = json.loads(done.output[done.output.index("{") :])
    text = result["document"]["oracle"]["text"]
    assert isinstance(text, str)
    return text


def test_the_served_answer_is_what_the_weights_have_to_give(head: Node, evidence: dict[str, t.Any]) -> None:
    seen = evidence["document"]["oracle"]
    assert seen["text"].strip()
    assert oracle(head, evidence, MODEL) == seen["text"]
    engine = evidence["document"]["engine"]["name"]
    playbook("playbooks/launch.yml", sparkgate_engine=engine).went_well(
        f"the answer equals transformers' own in {seen['dtype']}", seen["text"].strip()
    )


def test_a_flipped_weight_makes_the_comparison_fail(head: Node, evidence: dict[str, t.Any], scratch: str) -> None:
    head.must(f"mkdir -p {scratch} && cp -a {MODEL} {scratch}/flipped && cat > {scratch}/flip.py <<'END'\n{FLIP}\nEND")
    head.must(f"python3 {scratch}/flip.py {scratch}/flipped")
    flipped = {**evidence["document"]["oracle"], "text": oracle(head, evidence, f"{scratch}/flipped")}
    engine = evidence["document"]["engine"]["name"]
    run = playbook("playbooks/launch.yml", sparkgate_engine=engine, model_serving_oracle=flipped)
    run.refused("but transformers itself gives", head.name)
