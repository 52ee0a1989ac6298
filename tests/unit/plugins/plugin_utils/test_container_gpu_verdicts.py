# Copyright (c) 2026, The sparkgate.blackwell authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""What is said about what was tried on the GPU inside a container."""

from __future__ import annotations

import copy
import typing as t

import pytest
from ansible_collections.sparkgate.blackwell.plugins.plugin_utils._container_verdicts import (
    check_entrypoint,
    container_rules,
    container_verdicts,
    joined,
    start_verdict,
)
from ansible_collections.sparkgate.blackwell.plugins.plugin_utils._verdicts import Verdicts

TORCH = {"version": "2.12.1+cu130", "tensor_ok": True, "error": None, "device": {"type": "cuda", "name": "NVIDIA GB10"}}
KERNEL = {"name": "torch", "relative_error": 0.0372, "finite": True, "error": None}
GOOD: dict[str, t.Any] = {
    "torch": TORCH,
    "graph": {"ok": True, "replays": 3, "error": None},
    "copy": {"device": "NVIDIA GB10", "bytes": 1 << 29, "bytes_per_second": 230_000_000_000},
    "fp8_block": {"block": [128, 128], "kernels": [KERNEL, {**KERNEL, "name": "sglang.srt.f.w8a8_block_fp8_matmul"}]},
    "errors": [],
}
FP8 = {"accelerator": "cuda", "fp8_block": [128, 128]}
DEAD = [{"source": "graph", "code": None, "name": "no answer within 120 s"}]


def judge(document: dict[str, t.Any], requirement: dict[str, t.Any] | None = None) -> dict[str, dict[str, t.Any]]:
    needs = FP8 if requirement is None else requirement
    return {v["id"]: v for v in container_verdicts(document, needs, "spark-1") if v["id"].startswith("gpu.")}


def test_a_good_gpu() -> None:
    found = judge(GOOD)
    assert {identifier: v["status"] for identifier, v in found.items()} == dict.fromkeys(
        ("gpu.graph", "gpu.copy", "gpu.fp8_block"), "ok"
    )
    assert found["gpu.copy"]["summary"] == "NVIDIA GB10 copies 230 GB/s, 84% of what its memory can do"
    assert found["gpu.fp8_block"]["summary"] == "the FP8 product of w8a8_block_fp8_matmul is 3.7% away from BF16"


@pytest.mark.parametrize(
    "document", [{}, {"torch": TORCH}, {"torch": TORCH, "graph": False, "copy": False, "fp8_block": False}]
)
def test_nothing_is_said_where_nothing_was_asked_or_there_is_no_gpu(document: dict[str, t.Any]) -> None:
    assert judge(document) == {}


@pytest.mark.parametrize(
    ("change", "identifier", "status", "words"),
    [
        ({"graph": {"ok": False, "replays": 1, "error": "wrong numbers"}}, "gpu.graph", "fail", "wrong numbers"),
        ({"graph": None, "errors": DEAD}, "gpu.graph", "fail", "no answer within 120 s"),
        ({"graph": None}, "gpu.graph", "unknown", "no CUDA graph"),
        # The tensor is what must be cured.
        ({"graph": None, "errors": DEAD, "torch": {**TORCH, "tensor_ok": False}}, "gpu.graph", "unknown", "no CUDA"),
        ({"graph": None, "errors": DEAD, "torch": None}, "gpu.graph", "unknown", "no CUDA"),
        ({"copy": {"device": "NVIDIA GB10", "bytes_per_second": 100_000_000_000}}, "gpu.copy", "warn", "100 GB/s, 37%"),
        ({"copy": {"device": "NVIDIA X1", "bytes_per_second": 100_000_000_000}}, "gpu.copy", "unknown", "not known"),
        ({"copy": None}, "gpu.copy", "unknown", "could not be measured"),
        (
            {"copy": {"device": "NVIDIA RTX PRO 6000 Blackwell Server Edition", "bytes_per_second": 1_500_000_000_000}},
            "gpu.copy",
            "ok",
            "84%",
        ),
        ({"fp8_block": {"kernels": [{**KERNEL, "relative_error": 0.0743}]}}, "gpu.fp8_block", "fail", "7.4% away"),
        ({"fp8_block": {"kernels": [{**KERNEL, "relative_error": 1.2}, KERNEL]}}, "gpu.fp8_block", "ok", "3.7%"),
        (
            {"fp8_block": {"kernels": [{**KERNEL, "relative_error": None, "finite": False}]}},
            "gpu.fp8_block",
            "fail",
            "not finite",
        ),
        (
            {"fp8_block": {"kernels": [{**KERNEL, "relative_error": None, "error": "OutOfResources: shared memory"}]}},
            "gpu.fp8_block",
            "warn",
            "OutOfResources",
        ),
        ({"fp8_block": {"kernels": [{"name": "torch"}]}}, "gpu.fp8_block", "unknown", "not known"),
        ({"fp8_block": None, "errors": [{**DEAD[0], "source": "fp8_block"}]}, "gpu.fp8_block", "fail", "no answer"),
        ({"fp8_block": None}, "gpu.fp8_block", "unknown", "no product"),
    ],
)
def test_what_is_not_fine(change: dict[str, t.Any], identifier: str, status: str, words: str) -> None:
    verdict = judge({**GOOD, **change})[identifier]
    assert (verdict["status"], words in verdict["summary"]) == (status, True)
    assert verdict["remedy"] or status == "ok"


def test_each_kernel_has_its_verdict() -> None:
    document = {"fp8_block": {"kernels": [{**KERNEL, "relative_error": 0.9}, {**KERNEL, "name": "a.b"}]}}
    found = [(v["subject"], v["status"]) for v in container_verdicts(document, FP8)]
    assert found == [("torch", "fail"), ("a.b", "ok")]


def test_wrong_fp8_is_a_warning_for_a_model_that_does_not_need_it() -> None:
    document = {"fp8_block": {"kernels": [{**KERNEL, "relative_error": 0.9}]}}
    assert judge(document, {"accelerator": "cuda"})["gpu.fp8_block"]["status"] == "warn"


USED: dict[str, t.Any] = {
    "cuda_driver_version": "13.1",
    "libcuda": {"version": "590.48.01", "forward_compat": True},
    "kernel_launch": {"ok": True, "code": 0, "error": None},
    "ptx_jit": {"ptx_version": "9.1", "code": 0},
    "errors": [],
}
HOST_LIBRARY: dict[str, t.Any] = {**USED, "cuda_driver_version": "13.0", "libcuda": {"version": "580.95.05"}}
NO_KERNEL = {"ok": False, "code": 803, "error": "CUDA_ERROR_SYSTEM_DRIVER_MISMATCH"}


@pytest.mark.parametrize(
    ("used", "bypassed", "status", "summary", "remedy"),
    [
        (
            USED,
            USED,
            "ok",
            "590.48.01 (CUDA 13.1), and without it too; a kernel runs, PTX 9.1 is taken either way",
            None,
        ),
        (USED, HOST_LIBRARY, "ok", "without it libcuda 580.95.05 (CUDA 13.0); a kernel runs", None),
        (
            USED,
            {**HOST_LIBRARY, "ptx_jit": {"ptx_version": "9.1", "code": 222}},
            "warn",
            "without it libcuda 580.95.05 (CUDA 13.0): a kernel runs, PTX 9.1 is refused (error 222)",
            "through the image's entrypoint",
        ),
        ({**USED, "kernel_launch": NO_KERNEL, "ptx_jit": None}, HOST_LIBRARY, "warn", "no kernel runs", "without the"),
        (
            USED,
            {**USED, "libcuda": False, "kernel_launch": None, "ptx_jit": None},
            "warn",
            "without it no libcuda",
            "through",
        ),
        ({**USED, "errors": [{"source": "bypassed", "name": "no python3"}]}, None, "unknown", "no python3", "through"),
    ],
)
def test_entrypoint(used: t.Any, bypassed: t.Any, status: str, summary: str, remedy: str | None) -> None:
    found = Verdicts("spark-1")
    check_entrypoint(found, used, bypassed)
    (verdict,) = found.all
    assert (verdict["id"], verdict["status"], summary in verdict["summary"]) == ("cuda.entrypoint", status, True)
    assert remedy in verdict["remedy"] if remedy else verdict["remedy"] is None


def test_entrypoint_was_not_asked() -> None:
    found = Verdicts(None)
    check_entrypoint(found, {"torch": TORCH}, None)
    assert found.all == []


@pytest.mark.parametrize("rule", container_rules()["start"], ids=lambda rule: rule["pattern"])
def test_a_container_that_does_not_start(rule: dict[str, str]) -> None:
    verdict = start_verdict(f"Docker could not start a container of a:1: {rule['example']}", "spark-1")
    assert (verdict["id"], verdict["status"], verdict["remedy"]) == ("container.start", "fail", rule["remedy"])
    assert rule["example"] in verdict["summary"]
    assert rule["source"].startswith("https://")


def test_a_container_that_does_not_start_for_another_reason() -> None:
    verdict = start_verdict("no python3")
    assert (verdict["status"], verdict["summary"], "by hand" in verdict["remedy"]) == ("fail", "no python3", True)


def test_no_question_is_answered_twice() -> None:
    first: list[dict[str, t.Any]] = [{"id": "a", "subject": 0}, {"id": "a", "subject": 1}]
    second: list[dict[str, t.Any]] = [{"id": "a", "subject": 2}, {"id": "b"}, {"id": "b"}]
    assert joined(first, second) == [*first, *second[1:]]


def test_the_rules_have_sources() -> None:
    rules = copy.deepcopy(container_rules())
    for entry in [rules["copy"], rules["fp8_block"], *rules["copy"]["devices"], *rules["start"]]:
        assert "https://" in entry["source"]
