# Copyright (c) 2026, The sparkgate.blackwell authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

import typing as t

import pytest
from ansible_collections.sparkgate.blackwell.plugins.plugin_utils._container_verdicts import container_verdicts

REQUIREMENT = {
    "accelerator": "cuda",
    "model_type": "qwen3_5_moe",
    "architecture": "Qwen3_5MoeForConditionalGeneration",
    "num_experts": 256,
    "moe_intermediate_size": 1024,
    "min_transformers": "5.2.0",
    "engine": "sglang",
    "min_engine": "0.5.9",
}
CUDA = {"type": "cuda", "name": "NVIDIA GB10", "compute_capability": "12.1", "memory_total_bytes": 130664833024}
TORCH = {"version": "2.12.1+cu130", "cuda": "13.0", "tensor_ok": True, "error": None, "device": CUDA}
TRANSFORMERS = {
    "version": "5.2.0",
    "known": True,
    "architecture": "Qwen3_5MoeForConditionalGeneration",
    "num_experts": 256,
    "moe_intermediate_size": 1024,
    "error": None,
}
GENERATION = {"text": "four five", "ready_seconds": 12.5, "error": None, "log": []}
ORACLE = {"text": "four five", "margin": 0.25}
GOOD: dict[str, t.Any] = {
    "torch": TORCH,
    "transformers": TRANSFORMERS,
    "engine": {"name": "sglang", "version": "0.5.10rc0"},
    "ray": {"version": "2.60.0"},
    "generation": GENERATION,
    "oracle": ORACLE,
    "errors": [],
}


def test_good_document() -> None:
    verdicts = container_verdicts(GOOD, REQUIREMENT, "spark-1")
    assert {v["status"] for v in verdicts} == {"ok"}
    assert {v["host"] for v in verdicts} == {"spark-1"}
    assert {v["id"] for v in verdicts} == {
        "device.tensor",
        "model.transformers",
        "model.engine",
        "model.architecture",
        "model.experts",
        "image.ray",
        "smoke.generation",
        "smoke.oracle",
    }
    assert "GPU (NVIDIA GB10, 121.7 GiB)" in next(v["summary"] for v in verdicts if v["id"] == "device.tensor")


@pytest.mark.parametrize(
    ("part", "identifier", "status", "words"),
    [
        ({"transformers": {"version": "4.57.1", "known": False}}, "model.transformers", "fail", "5.2.0"),
        ({"transformers": {**TRANSFORMERS, "version": "5.0.0"}}, "model.transformers", "fail", "older than 5.2.0"),
        ({"transformers": {**TRANSFORMERS, "error": "bad rope"}}, "model.transformers", "fail", "bad rope"),
        ({"transformers": False}, "model.transformers", "fail", "no transformers"),
        (
            {"transformers": None, "errors": [{"source": "transformers", "name": "no answer within 120 s"}]},
            "model.transformers",
            "unknown",
            "no answer within 120 s",
        ),
        ({"transformers": {**TRANSFORMERS, "architecture": "LlamaForCausalLM"}}, "model.architecture", "fail", "Llama"),
        ({"transformers": {**TRANSFORMERS, "architecture": None}}, "model.architecture", "unknown", "no architecture"),
        ({"transformers": {**TRANSFORMERS, "num_experts": 128}}, "model.experts", "fail", "128 in the model"),
        ({"transformers": {**TRANSFORMERS, "num_experts": False}}, "model.experts", "fail", "absent in the model"),
        ({"transformers": {**TRANSFORMERS, "moe_intermediate_size": 512}}, "model.experts", "fail", "512"),
        ({"engine": {"name": "sglang", "version": "0.5.4"}}, "model.engine", "fail", "0.5.9"),
        ({"engine": {"name": "sglang", "version": "git-abc"}}, "model.engine", "unknown", "git-abc"),
        ({"engine": {"name": "vllm", "version": "0.32.0"}}, "model.engine", "fail", "not sglang"),
        ({"engine": False}, "model.engine", "fail", "no sglang"),
        ({"engine": None}, "model.engine", "unknown", "could not"),
        ({"ray": False}, "image.ray", "fail", "no Ray"),
        ({"ray": None}, "image.ray", "unknown", "could not"),
        ({"torch": {**TORCH, "tensor_ok": False, "error": "CUDA error 222"}}, "device.tensor", "fail", "222"),
        ({"torch": {**TORCH, "device": {"type": "cpu"}}}, "device.tensor", "fail", "CPU, not on a GPU"),
        (
            {"torch": None, "errors": [{"source": "torch", "name": "ModuleNotFoundError"}]},
            "device.tensor",
            "fail",
            "ModuleNotFoundError",
        ),
        ({"torch": None}, "device.tensor", "unknown", "could not"),
        ({"generation": {**GENERATION, "text": " "}}, "smoke.generation", "fail", "empty text"),
        ({"generation": {**GENERATION, "text": "no"}}, "smoke.generation", "fail", "does not contain"),
        (
            {"generation": {"text": None, "error": "it ended with code 1", "log": ["ValueError: bad flag", "bye"]}},
            "smoke.generation",
            "fail",
            "its log: ValueError: bad flag",
        ),
        (
            {"generation": None, "errors": [{"source": "generate", "name": "no answer within 9 s"}]},
            "smoke.generation",
            "fail",
            "no answer within 9 s",
        ),
        ({"oracle": {**ORACLE, "text": "six"}}, "smoke.oracle", "fail", "'six'"),
        ({"oracle": None, "errors": [{"source": "oracle", "name": "KeyError"}]}, "smoke.oracle", "fail", "KeyError"),
    ],
)
def test_each_finding(part: dict[str, t.Any], identifier: str, status: str, words: str) -> None:
    verdicts = container_verdicts({**GOOD, **part}, REQUIREMENT, "spark-1", contains="FOUR")
    found = [v for v in verdicts if v["status"] != "ok" and v["id"] != "smoke.oracle"] or [
        v for v in verdicts if v["status"] != "ok"
    ]
    assert [(v["id"], v["status"]) for v in found] == [(identifier, status)]
    assert words in f"{found[0]['summary']} {found[0]['remedy']}"
    assert found[0]["remedy"]


def test_cpu_is_fine_where_it_is_meant() -> None:
    document = {"torch": {**TORCH, "device": {"type": "cpu", "name": "a processor", "memory_total_bytes": None}}}
    verdicts = container_verdicts(document, {"accelerator": "cpu"}, "n")
    assert [(v["id"], v["status"]) for v in verdicts] == [("device.tensor", "ok")]
    assert "CPU (a processor)" in verdicts[0]["summary"]


def test_text_of_a_part_of_the_model_is_not_judged() -> None:
    document = {"generation": {**GENERATION, "text": ""}}
    verdicts = container_verdicts(document, {}, "n", scope="partial", contains="four")
    assert [(v["id"], v["status"], v["subject"]) for v in verdicts] == [("smoke.generation", "ok", "partial")]


@pytest.mark.parametrize("document", [None, {}, {"errors": []}])
def test_what_was_not_asked_gives_no_verdict(document: t.Any) -> None:
    assert container_verdicts(document, REQUIREMENT, "n") == []
