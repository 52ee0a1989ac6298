# Copyright (c) 2026, The sparkgate.blackwell authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

import copy
import typing as t
from pathlib import Path

import pytest
import yaml
from ansible.errors import AnsibleFilterError
from ansible_collections.sparkgate.blackwell.plugins.filter.cluster_verdicts import cluster_verdicts
from ansible_collections.sparkgate.blackwell.plugins.filter.gpu_verdicts import gpu_verdicts
from ansible_collections.sparkgate.blackwell.plugins.plugin_utils import _gpu_verdicts as rules

DATA = yaml.safe_load((Path(__file__).parents[2] / "cases" / "gpu_verdicts.yml").read_text(encoding="utf-8"))
SPARK, IMAGE, QWEN = (DATA["bases"][name] for name in ("spark", "spark_image", "qwen"))
Verdict = dict[str, t.Any]


def of(verdicts: list[Verdict], identifier: str) -> list[Verdict]:
    return [verdict for verdict in verdicts if verdict["id"] == identifier]


def only(verdicts: list[Verdict], identifier: str) -> Verdict:
    found = of(verdicts, identifier)
    assert len(found) == 1, found
    return found[0]


def with_device(document: dict[str, t.Any], **changes: t.Any) -> dict[str, t.Any]:
    result = copy.deepcopy(document)
    result["devices"][0].update(changes)
    return result


@pytest.mark.parametrize("case", DATA["cases"], ids=lambda case: case["name"])
def test_cases(case: dict[str, t.Any]) -> None:
    verdicts = gpu_verdicts(case["host"], case.get("container"), case.get("requirement"), "spark-1")
    for wanted in case["expect"]:
        found = [verdict for verdict in of(verdicts, wanted["id"]) if verdict["status"] == wanted["status"]]
        assert found, of(verdicts, wanted["id"])
        assert wanted.get("remedy_has", "").lower() in str(found[0]["remedy"]).lower()
    if case.get("only_ok"):
        assert [verdict for verdict in verdicts if verdict["status"] != "ok"] == []
    for verdict in verdicts:
        assert verdict["host"] == "spark-1"
        assert verdict["status"] == "ok" or verdict["remedy"], verdict


def test_the_wording_of_forward_compatibility() -> None:
    verdict = only(gpu_verdicts(SPARK, IMAGE), "cuda.forward_compat")
    assert verdict["summary"] == (
        "driver 580.95.05 (CUDA 13.0) runs this CUDA 13.1 image through forward compatibility, which NVIDIA GB10 supports"
    )


def test_nothing_asked_nothing_said() -> None:
    assert gpu_verdicts({}) == []
    assert gpu_verdicts(SPARK, IMAGE, {**QWEN, "accelerator": "cpu"}) == []


TARGETS = [
    ("sm_80", ["8.0", "8.6", "8.9"], ["9.0", "8.7"]),
    ("sm_86", ["8.6", "8.9"], ["8.0"]),
    ("sm_89", ["8.9"], ["8.6"]),
    ("sm_90", ["9.0"], ["10.0"]),
    ("sm_90a", ["9.0"], ["10.0", "12.0"]),
    ("sm_100", ["10.0", "10.3"], ["10.1", "12.0", "9.0"]),
    ("sm_100f", ["10.0", "10.3"], ["12.1"]),
    ("sm_100a", ["10.0"], ["10.3"]),
    ("sm_103", ["10.3"], ["10.0"]),
    ("sm_120", ["12.0", "12.1"], ["10.0"]),
    ("sm_120f", ["12.0", "12.1"], ["10.3"]),
    ("sm_120a", ["12.0"], ["12.1"]),
    ("sm_121", ["12.1"], ["12.0"]),
    ("sm_121a", ["12.1"], ["12.0"]),
    ("sm_121f", ["12.1"], ["12.0"]),
    ("compute_90", ["9.0", "10.0", "12.1"], ["8.9"]),
    ("compute_120a", ["12.0"], ["12.1"]),
    ("compute_120f", ["12.0", "12.1"], ["10.0"]),
    ("gfx942", [], ["12.1"]),
]


@pytest.mark.parametrize(("target", "good", "bad"), TARGETS, ids=[row[0] for row in TARGETS])
def test_where_code_for_a_target_runs(target: str, good: list[str], bad: list[str]) -> None:
    for text, wanted in [*((text, True) for text in good), *((text, False) for text in bad)]:
        pair = rules.capability({"compute_capability": text})
        assert pair is not None
        assert rules.runs_on(target, pair, "13.0") is wanted, text


def test_an_exception_ends_with_a_toolkit() -> None:
    assert rules.runs_on("sm_80", (8, 7), "13.2") and not rules.runs_on("sm_80", (8, 7), "13.1")


@pytest.mark.parametrize(
    ("conditions", "version", "wanted"),
    [
        (">=590,<595", "590.48.01", True),
        (">=590,<595", "595.1", False),
        ("==2.30.4", "2.30.4", True),
        ("<2.29.3", "2.28.9", True),
        ("<2.29.3", "2.29.3", False),
        (">=7.0", "7.0.0-1019-nvidia", True),
        (">=7.0", "6.17.0-1014-nvidia", False),
        (">=2", 2, True),
        (">=2", None, None),
        (">=2", "none", None),
    ],
)
def test_conditions(conditions: str, version: t.Any, wanted: bool | None) -> None:
    assert rules.holds(conditions, version) is wanted


@pytest.mark.parametrize("entry", rules.known_bad(), ids=lambda entry: f"{entry['id']}: {entry['summary'][:40]}")
def test_each_known_bad_combination_fires_on_its_example(entry: dict[str, t.Any]) -> None:
    example = entry["example"]
    host = {"driver_present": True, "machine": example.get("machine", "aarch64")}
    host |= {"driver_version": example["driver"]} if "driver" in example else {}
    host["devices"] = [{"index": 0, "name": example.get("device", "NVIDIA GB10"), "compute_capability": "12.1"}]
    container = {"nccl": {"version": example["nccl"]}} if "nccl" in example else None
    for engine in ("vllm", "sglang"):
        if engine in example:
            container = {**(container or {}), "engine": {"name": engine, "version": example[engine]}}
    requirement = {key: example[key] for key in ("nodes", "num_experts", "quantization") if key in example}
    system = {key: example[key] for key in ("kernel", "kernel_cmdline", "container_toolkit") if key in example}
    verdict = only(gpu_verdicts(host, container, requirement, "n", system), entry["id"])
    assert (verdict["status"], verdict["summary"]) == (entry["status"], entry["summary"])
    assert verdict["source"] and verdict["remedy"]


def test_what_mends_a_known_bad_combination_silences_it() -> None:
    system = {"kernel": "7.0.0-1019-nvidia", "kernel_cmdline": "quiet kho=off"}
    assert of(gpu_verdicts(SPARK, None, None, None, system), "kernel.kho") == []
    verdict = only(gpu_verdicts(SPARK, None, None, None, {"kernel": None, "kernel_cmdline": "quiet"}), "kernel.kho")
    assert verdict["status"] == "unknown"


@pytest.mark.parametrize("code", sorted(rules.cuda()["errors"]["codes"]))
def test_each_error_code_is_explained(code: int) -> None:
    container = {**IMAGE, "kernel_launch": {"ok": False, "code": code, "error": "CUDA_ERROR"}}
    found = [v for v in of(gpu_verdicts(SPARK, container), "gpu.kernel_launch") if v["subject"] == "container"]
    entry = rules.cuda()["errors"]["codes"][code]
    assert (
        found[0]["status"] == "fail"
        and entry["meaning"] in found[0]["summary"]
        and found[0]["remedy"] == entry["remedy"]
    )


def test_a_wrong_value_is_a_finding_of_its_own() -> None:
    host = {**SPARK, "kernel_launch": {"ok": False, "code": 0, "error": "41 was read back"}}
    verdict = only(gpu_verdicts(host), "gpu.kernel_launch")
    assert verdict["status"] == "fail" and "wrong" in verdict["summary"] and "41" in verdict["summary"]


COMPAT = [
    (package, branch, branch in branches)
    for package, branches in rules.cuda()["forward_compatibility"]["branches"].items()
    for branch in (535, 570, 580, 590, 595, 610)
]


@pytest.mark.parametrize(("package", "branch", "supported"), COMPAT)
def test_each_pair_of_compatibility_package_and_driver(package: str, branch: int, supported: bool) -> None:
    """For a library without a note, which is the one that the table is for."""
    version = f"{rules.driver_for(package)}.99"
    if rules.numbers(version) <= (branch, 99, 99):  # type: ignore[operator]
        supported = False
    host = {**SPARK, "driver_version": f"{branch}.99.99"}
    library = {"path": "/usr/local/cuda/compat/libcuda.so.1", "version": version, "forward_compat": True, "note": None}
    container = {"libcuda": library, "cuda_driver_version": package}
    status = only(gpu_verdicts(host, container), "cuda.forward_compat")["status"]
    assert status == ("ok" if supported else "fail")


@pytest.mark.parametrize(
    ("changes", "status", "words"),
    [
        ({"brand": "GeForce"}, "fail", "GeForce"),
        ({"brand": "Titan"}, "fail", "Titan"),
        ({"brand": "Tesla"}, "ok", "supports"),
        ({"brand": None}, "unknown", "not known"),
    ],
)
def test_brands(changes: dict[str, t.Any], status: str, words: str) -> None:
    verdict = only(gpu_verdicts(with_device(SPARK, **changes), with_device(IMAGE, **changes)), "cuda.forward_compat")
    assert verdict["status"] == status and words in verdict["summary"]


@pytest.mark.parametrize(
    ("image", "driver", "loaded", "status"),
    [
        ("13.0", "580.95.05", "13.0", "ok"),
        ("12.8", "580.95.05", "13.0", "ok"),
        ("13.1", "580.95.05", "13.0", "warn"),
        ("13.0", "570.124.06", "12.8", "fail"),
        ("12.9", "535.54.03", "12.2", "warn"),
        ("12.0", "520.61.05", "11.8", "fail"),
        (None, "580.95.05", "13.0", "unknown"),
        ("13.0", "580.95.05", None, "unknown"),
    ],
)
def test_compatibility(image: str | None, driver: str, loaded: str | None, status: str) -> None:
    container = {"image": {"cuda_version": image, "architecture": "arm64"}, "cuda_driver_version": loaded}
    host = {**SPARK, "driver_version": driver}
    assert only(gpu_verdicts(host, container), "cuda.compatibility")["status"] == status


@pytest.mark.parametrize(
    ("name", "driver", "status"),
    [
        ("NVIDIA GB10", "580.95.05", "ok"),
        ("NVIDIA GB10", "580.82.07", "fail"),
        ("NVIDIA GB10", None, "unknown"),
        ("NVIDIA RTX PRO 6000 Blackwell Server Edition", "570.133.07", "fail"),
        ("NVIDIA RTX PRO 6000 Blackwell Workstation Edition", "570.133.07", "ok"),
        ("NVIDIA B300", "580.65.06", "fail"),
        ("NVIDIA GB300", "580.82.07", "ok"),
        ("NVIDIA B200", "570.86.15", "ok"),
    ],
)
def test_device_floor(name: str, driver: str | None, status: str) -> None:
    host = {"driver_present": True, "driver_version": driver, "devices": [{"index": 0, "name": name}]}
    assert only(gpu_verdicts(host), "driver.device_floor")["status"] == status


@pytest.mark.parametrize(
    ("triton", "capability", "status", "words"),
    [
        ({"version": "3.5.1", "ptxas": "12.8", "ptxas_blackwell": False}, "12.0", "ok", ""),
        ({"version": "3.5.1", "ptxas": "12.8", "ptxas_blackwell": False}, "12.1", "fail", "TRITON_PTXAS_PATH"),
        (
            {"version": "3.6.0", "ptxas": "13.0", "ptxas_blackwell": "12.8"},
            "12.1",
            "fail",
            "TRITON_PTXAS_BLACKWELL_PATH",
        ),
        (
            {"version": "3.6.0", "ptxas": "12.8", "ptxas_blackwell": False},
            "12.1",
            "fail",
            "TRITON_PTXAS_BLACKWELL_PATH",
        ),
        ({"version": "3.6.0", "ptxas": "12.8", "ptxas_blackwell": "12.9"}, "12.1", "ok", ""),
        ({"version": "3.9.0", "ptxas": None, "ptxas_blackwell": "13.4"}, "9.0", "ok", ""),
        ({"version": "3.7.1", "ptxas": None, "ptxas_blackwell": "13.1"}, "9.0", "unknown", "ptxas"),
        (None, "12.1", "unknown", ""),
    ],
)
def test_triton(triton: dict[str, t.Any] | None, capability: str, status: str, words: str) -> None:
    container = with_device({**IMAGE, "triton": triton}, compute_capability=capability)
    verdict = only(gpu_verdicts(SPARK, container), "gpu.triton")
    assert verdict["status"] == status and words in str(verdict["remedy"])


@pytest.mark.parametrize(
    ("quantization", "capability", "status"),
    [
        ("fp8", "8.9", "ok"),
        ("fp8", "12.1", "ok"),
        ("fp8", "8.6", "warn"),
        ("fp8", "7.5", "fail"),
        ("nvfp4", "12.1", "ok"),
        ("mxfp4", "9.0", "warn"),
        ("modelopt_fp4", "10.0", "ok"),
        ("awq", "8.0", "ok"),
        ("gptq", "7.5", "warn"),
        (False, "12.1", "ok"),
        (False, "7.5", "fail"),
        (None, "12.1", "unknown"),
        ("q4_k_m", "12.1", "unknown"),
    ],
)
def test_quantization(quantization: t.Any, capability: str, status: str) -> None:
    host = with_device(SPARK, compute_capability=capability)
    assert only(gpu_verdicts(host, None, {"quantization": quantization}), "model.quantization")["status"] == status


@pytest.mark.parametrize(
    ("requirement", "status"),
    [
        ({"dtype_kv": "auto"}, "ok"),
        ({"dtype_kv": "bfloat16"}, "ok"),
        ({"dtype_kv": "fp8_e4m3"}, "unknown"),
        ({"dtype_kv": "fp8_e5m2", "kv_scales": False}, "warn"),
        ({"dtype_kv": "fp8_e4m3", "kv_scales": True}, "ok"),
        ({"dtype_kv": None}, "unknown"),
    ],
)
def test_kv_dtype(requirement: dict[str, t.Any], status: str) -> None:
    assert only(gpu_verdicts(SPARK, None, requirement), "model.kv_dtype")["status"] == status


MODEL = {"num_attention_heads": 32, "num_key_value_heads": 2, "linear_num_key_heads": 16, "linear_num_value_heads": 64}


@pytest.mark.parametrize(
    ("changes", "status", "words"),
    [
        ({"tensor_parallel": 2, "moe_intermediate_size": 1024, "fp8_block": [128, 128]}, "ok", ""),
        ({"tensor_parallel": 8, "moe_intermediate_size": 512, "fp8_block": [128, 128]}, "fail", "FP8 block"),
        ({"tensor_parallel": 8, "moe_intermediate_size": 512}, "ok", ""),
        ({"tensor_parallel": 3}, "fail", "num_attention_heads"),
        ({"tensor_parallel": 4, "num_experts": 6, "expert_parallel": True}, "fail", "num_experts"),
        ({"tensor_parallel": None}, "unknown", ""),
        ({"tensor_parallel": 0}, "unknown", ""),
    ],
)
def test_tensor_parallel(changes: dict[str, t.Any], status: str, words: str) -> None:
    verdict = only(gpu_verdicts(SPARK, None, {**MODEL, **changes}), "model.tensor_parallel")
    assert verdict["status"] == status and words in verdict["summary"]


def test_devices_that_differ_have_a_verdict_each() -> None:
    host = copy.deepcopy(SPARK)
    host["devices"] += [
        {**host["devices"][0], "index": index, "name": "NVIDIA B200", "compute_capability": "10.0"} for index in (1, 2)
    ]
    container = {**IMAGE, "devices": [], "torch": {**IMAGE["torch"], "arch_list": ["sm_120"]}}
    found = {verdict["subject"]: verdict["status"] for verdict in of(gpu_verdicts(host, container), "gpu.binary")}
    assert found == {"0": "ok", "1,2": "fail"}


def test_memory_that_is_not_known_is_unknown_and_never_zero() -> None:
    for total in (None, 0):
        verdict = only(gpu_verdicts(with_device(SPARK, memory_total_bytes=total)), "memory.reading")
        assert verdict["status"] == "unknown"
    assert "121.7 GiB" in only(gpu_verdicts(SPARK), "memory.reading")["summary"]


def test_a_simulated_gpu_is_named() -> None:
    assert only(gpu_verdicts({**SPARK, "simulated": "gb10"}), "gpu.simulated")["status"] == "warn"


@pytest.mark.parametrize(
    ("changes", "identifier", "status"),
    [
        ({"driver_version": "580.126.09"}, "cluster.driver", "warn"),
        ({"driver_version": None}, "cluster.driver", "unknown"),
        ({"machine": "x86_64"}, "cluster.machine", "fail"),
        ({"devices": []}, "cluster.devices", "warn"),
        ({"image": {"id": "sha256:2"}}, "cluster.image", "fail"),
        ({"system": {"kernel": "7.0"}}, "cluster.kernel", "warn"),
        ({}, "cluster.driver", "ok"),
    ],
)
def test_differences_between_nodes(changes: dict[str, t.Any], identifier: str, status: str) -> None:
    base = {**SPARK, "image": {"id": "sha256:1"}, "system": {"kernel": "6.17"}}
    verdicts = cluster_verdicts({"a": base, "b": {**base, **changes}})
    assert only(verdicts, identifier)["status"] == status
    others = [verdict for verdict in verdicts if verdict["id"] != identifier]
    assert others and all(verdict["status"] == "ok" for verdict in others)
    assert cluster_verdicts({"a": base}) == []


def test_nodes_without_gpus_are_compared_by_what_they_have() -> None:
    none = {
        "machine": "x86_64",
        "driver_present": False,
        "driver_version": None,
        "cuda_driver_version": None,
        "devices": [],
    }
    assert [verdict["id"] for verdict in cluster_verdicts({"a": none, "b": none})] == ["cluster.machine"]
    verdict = only(cluster_verdicts({"a": none, "b": SPARK}), "cluster.driver")
    assert verdict["status"] == "warn" and "a: none" in verdict["summary"]


def test_recon_documents_are_compared_too() -> None:
    documents = {host: {"gpu": SPARK, "system": {"kernel": kernel}} for host, kernel in (("a", "6.17"), ("b", "7.0"))}
    verdicts = cluster_verdicts(documents)
    assert only(verdicts, "cluster.kernel")["status"] == "warn" and only(verdicts, "cluster.driver")["status"] == "ok"


@pytest.mark.parametrize(
    "broken", ["text", 7, [1], {"devices": "none", "driver_present": True}, {"devices": [1], "driver_present": True}]
)
def test_what_is_no_document_is_refused_with_a_message(broken: t.Any) -> None:
    with pytest.raises(AnsibleFilterError, match="gpu_info"):
        gpu_verdicts(broken)
    if not isinstance(broken, dict):
        with pytest.raises(AnsibleFilterError, match="cluster_verdicts"):
            cluster_verdicts(broken)


H100 = {"index": 0, "name": "NVIDIA H100", "compute_capability": "9.0", "brand": "NVIDIA"}
FEATURES = [
    ("8.6", ["bf16_mma", "cp_async"], ["fp8_mma", "wgmma", "tma"]),
    ("8.9", ["fp8_mma"], ["wgmma", "tma", "clusters", "shared_memory_227k"]),
    ("9.0", ["wgmma", "tma", "clusters", "setmaxnreg", "shared_memory_227k"], ["tcgen05", "fp4_convert"]),
    ("10.0", ["tcgen05", "fp4_convert", "tma", "shared_memory_227k"], ["wgmma", "mma_block_scale"]),
    ("10.3", ["tcgen05", "fp4_convert"], ["wgmma", "mma_block_scale"]),
    ("10.7", ["tcgen05"], ["mma_block_scale"]),
    ("11.0", ["tcgen05"], ["mma_block_scale"]),
    ("12.0", ["tma", "fp4_convert", "mma_block_scale", "setmaxnreg"], ["wgmma", "tcgen05", "shared_memory_227k"]),
    ("12.1", ["tma", "fp4_convert", "mma_block_scale", "setmaxnreg"], ["wgmma", "tcgen05", "shared_memory_227k"]),
]


@pytest.mark.parametrize(("text", "has", "lacks"), FEATURES, ids=[row[0] for row in FEATURES])
def test_each_feature_by_capability(text: str, has: list[str], lacks: list[str]) -> None:
    pair = rules.capability({"compute_capability": text})
    assert pair is not None
    assert set(has) <= rules.features_of(pair) and not set(lacks) & rules.features_of(pair)


@pytest.mark.parametrize(
    ("backend", "text", "status"),
    [
        ("fa3", "9.0", "ok"),
        ("fa3", "12.1", "fail"),
        ("fa4", "10.0", "ok"),
        ("fa4", "12.0", "fail"),
        ("flashinfer_trtllm", "10.3", "ok"),
        ("flashinfer_trtllm", "12.1", "fail"),
        ("triton", "12.1", None),
    ],
)
def test_backends(backend: str, text: str, status: str | None) -> None:
    host = with_device(SPARK, compute_capability=text)
    found = of(gpu_verdicts(host, None, {"backends": [backend]}), "engine.backend")
    assert [verdict["status"] for verdict in found] == ([status] if status else [])


@pytest.mark.parametrize(
    ("driver", "status"),
    [("590.44.01", "fail"), ("590.48.01", "ok"), ("595.44.01", "fail"), ("595.44.02", "ok"), ("610.43.02", "ok")],
)
def test_a_later_branch_can_know_a_device_later(driver: str, status: str) -> None:
    assert only(gpu_verdicts({**SPARK, "driver_version": driver}), "driver.device_floor")["status"] == status


@pytest.mark.parametrize(
    ("torch", "container", "status", "words"),
    [
        (False, {}, "fail", "no torch"),
        ({"cuda": "13.0", "arch_list": []}, {}, "fail", "no GPU at all"),
        ({"cuda": "13.0", "arch_list": None}, {}, "unknown", "does not say"),
        ({"cuda": "13.0", "arch_list": ["compute_90"]}, {}, "ok", "compute_90"),
        ({"cuda": "13.2", "arch_list": ["compute_90"]}, {}, "fail", "PTX"),
        ({"cuda": "13.2", "arch_list": ["compute_90"]}, {"cuda_driver_version": None}, "unknown", "PTX"),
        ({"cuda": "13.2", "arch_list": ["sm_120", "compute_120"]}, {}, "ok", "sm_120"),
        ({"cuda": "13.0", "arch_list": ["compute_121a"]}, {}, "ok", "compute_121a"),
        (
            {"cuda": "13.0", "arch_list": ["sm_120"], "error": "CUDA error: no kernel image is available"},
            {},
            "fail",
            "no kernel",
        ),
    ],
)
def test_what_torch_has_code_for(torch: t.Any, container: dict[str, t.Any], status: str, words: str) -> None:
    torch = {"version": "2.13.0", **torch} if torch else torch
    verdict = only(gpu_verdicts(SPARK, {**IMAGE, "torch": torch, **container}), "gpu.binary")
    assert verdict["status"] == status and words in verdict["summary"]


@pytest.mark.parametrize(
    ("host", "container", "requirement", "identifier", "status", "words"),
    [
        # What the container sees is the host's GPU; the host alone knows its brand.
        ({}, {"devices": [{**IMAGE["devices"][0], "brand": None}]}, {}, "cuda.forward_compat", "ok", "GB10"),
        # The two documents contradict each other: neither is left out.
        (
            {"devices": [{**SPARK["devices"][0], **H100}]},
            {},
            {"quantization": "nvfp4"},
            "model.quantization",
            "warn",
            "H100",
        ),
        ({"devices": None}, {"devices": None}, {"quantization": "fp8"}, "model.quantization", "unknown", "not known"),
        ({"devices": None}, {"devices": None}, {}, "gpu.triton", "unknown", "which GPU"),
        ({"devices": None}, {"devices": None}, {}, "memory.reading", "unknown", "which GPUs"),
        (
            {"open_kernel_module": False, "devices": []},
            {"devices": []},
            {},
            "driver.open_module",
            "fail",
            "no GPU answers",
        ),
        ({"machine": "x86_64"}, {"torch": {"version": "2.9", "cuda": False}}, {}, "gpu.binary", "fail", "CPUs"),
        # A library of the driver's own version is as good as the driver's own.
        ({"driver_version": "590.48.01"}, {}, {}, "cuda.forward_compat", "ok", "not needed"),
        ({"driver_version": "595.58.03"}, {}, {}, "cuda.forward_compat", "fail", "older"),
        ({"driver_version": None}, {"driver_version": None}, {}, "cuda.forward_compat", "unknown", "not known"),
        ({}, {"libcuda": None}, {}, "cuda.forward_compat", "unknown", "not known"),
        # Triton: the assemblers of its wheel where they were not asked for, and code that is too new for the driver.
        ({}, {"triton": {"version": "3.5.1"}}, {}, "gpu.triton", "fail", "12.8"),
        ({}, {"triton": {"version": "3.6.0"}}, {}, "gpu.triton", "ok", "12.9"),
        ({}, {"cuda_driver_version": "12.8"}, {}, "gpu.triton", "warn", "need not take"),
        ({}, {"image": None}, {}, "image.architecture", "unknown", "not known"),
        ({"machine": None}, {}, {}, "image.architecture", "unknown", "not known"),
        ({}, {"nccl": False}, {"nodes": 2}, "nccl.version", "fail", "no NCCL"),
        ({}, {"nccl": {"version": "2.28.9"}}, {"nodes": 1}, "nccl.version", "ok", "2.28.9"),
        ({"machine": "x86_64"}, {"nccl": {"version": "2.28.9"}}, {"nodes": 2}, "nccl.version", "ok", "2.28.9"),
        # 256 experts, as the container read them.
        ({}, {"nccl": {"version": "2.30.4"}}, {"nodes": 2}, "nccl.version", "warn", "NVLS"),
        ({}, {}, {"dtype_kv": "fp8_e4m3", "kv_scales": True}, "model.kv_dtype", "ok", "scales"),
        # Dimensions that the container read: 1024 / 16 = 64.
        ({}, {}, {"tensor_parallel": 16, "fp8_block": [128, 128]}, "model.tensor_parallel", "fail", "FP8 block"),
        ({}, {}, {"tensor_parallel": 2, "num_attention_heads": None}, "model.tensor_parallel", "unknown", "heads"),
        (
            {},
            {"kernel_launch": {"ok": False, "code": None, "error": "it hung"}},
            {},
            "gpu.kernel_launch",
            "fail",
            "hung",
        ),
    ],
)
def test_single_rules(
    host: dict[str, t.Any],
    container: dict[str, t.Any],
    requirement: dict[str, t.Any],
    identifier: str,
    status: str,
    words: str,
) -> None:
    verdicts = of(gpu_verdicts({**SPARK, **host}, {**IMAGE, **container}, requirement), identifier)
    assert [verdict for verdict in verdicts if verdict["status"] == status and words in verdict["summary"]], verdicts


@pytest.mark.parametrize("text", ["8.6", "8.0"])
def test_a_cache_in_fp8_below_what_converts_it(text: str) -> None:
    host = with_device(SPARK, compute_capability=text)
    for scales in (True, None):
        requirement = {"dtype_kv": "fp8_e4m3", "kv_scales": scales}
        assert only(gpu_verdicts(host, None, requirement), "model.kv_dtype")["status"] == "warn"


def test_what_ran_in_the_container_need_not_run_on_the_host() -> None:
    found = of(gpu_verdicts({**SPARK, "kernel_launch": None}, IMAGE), "gpu.kernel_launch")
    assert [(verdict["subject"], verdict["status"]) for verdict in found] == [("container", "ok")]


@pytest.mark.parametrize(("driver", "status"), [("580.95.05", "ok"), ("570.26", "fail"), (None, None)])
def test_the_branch_says_what_was_not_asked(driver: str | None, status: str | None) -> None:
    host = {"driver_present": True, "driver_version": driver, "toolkit_version": "13.0"}
    assert [v["status"] for v in of(gpu_verdicts(host), "cuda.compatibility")] == ([status] if status else [])


@pytest.mark.parametrize(("branch", "cuda"), sorted(rules.cuda()["branch_cuda"]["branches"].items()))
def test_each_branch_and_each_toolkit_agree(branch: str, cuda: str) -> None:
    """The two tables say the same from both sides; a toolkit without an entry has no driver of its own."""
    assert rules.cuda_of_branch(f"{branch}.1") == cuda
    assert str(rules.driver_for(cuda) or branch).partition(".")[0] == branch


def test_the_toolkit_of_a_node_on_which_containers_compute_stops_nothing() -> None:
    host = {**SPARK, "toolkit_version": "14.0", "ptx_jit": {"ptx_version": "9.9", "code": 222}}
    for requirement, status in (({}, "fail"), ({"runs_in": "container"}, "warn")):
        verdicts = gpu_verdicts(host, None, requirement)
        assert only(verdicts, "cuda.ptx_jit")["status"] == only(verdicts, "cuda.compatibility")["status"] == status


@pytest.mark.parametrize(
    ("container", "words"),
    [
        ({"torch": "2.13"}, "torch in container"),
        ({"nccl": "2.29.3"}, "nccl in container"),
        ({"devices": {}, "torch": {"arch_list": "sm_120"}}, "arch_list"),
        ({"devices": "GB10"}, "devices in container"),
    ],
)
def test_a_wrong_type_is_named(container: dict[str, t.Any], words: str) -> None:
    with pytest.raises(AnsibleFilterError, match=words):
        gpu_verdicts(SPARK, container)
    with pytest.raises(AnsibleFilterError, match="null"):
        gpu_verdicts(None)
