# Copyright (c) 2026, The sparkgate.blackwell authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

import copy
import json
import typing as t

import pytest
from ansible_collections.sparkgate.blackwell.plugins.plugin_utils._gate import (
    DEPLOYMENT_PARTS,
    NODE_PARTS,
    fingerprint,
    gate_verdicts,
    smoke_evidence,
    smoke_plan,
)

PARTS: dict[str, dict[str, t.Any]] = {
    host: {
        "image": "sha256:1f0c",
        "manifest": "4f0c",
        "driver": "580.95.05",
        "kernel": "6.14.0-1013-nvidia",
        "gpus": [f"GPU-{host}"],
    }
    for host in ("spark-1", "spark-2")
}
DEPLOYMENT: dict[str, t.Any] = {
    "name": "qwen-sglang",
    "profile_digest": "sha256:2a3b",
    "accelerator": "cuda",
    "engine": "sglang",
    "container": {"argv": ["--network", "host", "--gpus", "all"]},
    "nodes": [
        {"host": "spark-1", "environment": {"HF_HUB_OFFLINE": "1", "SGLANG_HOST_IP": "198.51.100.11"}},
        {"host": "spark-2", "environment": {"HF_HUB_OFFLINE": "1", "SGLANG_HOST_IP": "198.51.100.12"}},
    ],
    "smoke": {"argv": ["sglang", "--dtype", "float16"], "argv_partial": ["partial"], "port": 18080},
    "answer": {"oracle": "transformers", "dtype": "bfloat16", "contains": None},
}
CHANGES = {
    "image": "sha256:9999",
    "manifest": "changed: model-00001-of-00002.safetensors (written again since it was verified)",
    "driver": "580.126.09",
    "kernel": "6.17.0-1001-nvidia",
    "gpus": ["GPU-other"],
}


def evidence(**changes: t.Any) -> dict[str, t.Any]:
    record = {
        "schema": 1,
        "created": "2026-12-01T12:00:00Z",
        "scope": "full",
        "passed": True,
        "verdicts": [],
        "fingerprint": fingerprint(PARTS, DEPLOYMENT, "spark-1"),
    }
    return {**record, **changes}


def refusals(verdicts: list[dict[str, t.Any]]) -> list[tuple[str, str | None, str | None]]:
    return [(v["id"], v["host"], v["subject"]) for v in verdicts if v["status"] != "ok"]


def test_equal_fingerprint_passes() -> None:
    verdicts = gate_verdicts(json.dumps(evidence()), fingerprint(PARTS, DEPLOYMENT), "spark-1")
    assert refusals(verdicts) == []
    assert {v["id"] for v in verdicts} == {"gate.evidence", "gate.passed", "gate.fingerprint"}


@pytest.mark.parametrize("value", ["other", "unknown"])
@pytest.mark.parametrize("host", list(PARTS))
@pytest.mark.parametrize("part", NODE_PARTS)
def test_each_part_of_each_node_is_named(part: str, host: str, value: str) -> None:
    parts = copy.deepcopy(PARTS)
    parts[host][part] = CHANGES[part] if value == "other" else None
    verdicts = gate_verdicts(evidence(), fingerprint(parts, DEPLOYMENT), "spark-1")
    assert refusals(verdicts) == [("gate.fingerprint", host, part)]
    refusal = next(v for v in verdicts if v["status"] == "fail")
    was = PARTS[host][part]
    assert (was[0] if isinstance(was, list) else was) in refusal["summary"]
    assert refusal["evidence"] == {"was": was, "is": parts[host][part]}
    assert ".yml" in refusal["remedy"]


@pytest.mark.parametrize("part", DEPLOYMENT_PARTS)
def test_each_part_of_the_deployment_is_named(part: str) -> None:
    current = {**fingerprint(PARTS, DEPLOYMENT), part: "sha256:0000"}
    assert refusals(gate_verdicts(evidence(), current, "spark-1")) == [("gate.fingerprint", "spark-1", part)]


@pytest.mark.parametrize(
    ("key", "value", "differs"),
    [
        ("container", {"argv": ["--network", "host"]}, True),
        ("engine", "vllm", True),
        ("nodes", [{"host": h["host"], "environment": {"HF_HUB_OFFLINE": "0"}} for h in DEPLOYMENT["nodes"]], True),
        # Addresses belong to a rank and say nothing about the smoke run.
        (
            "nodes",
            [
                {"host": h["host"], "environment": {**h["environment"], "SGLANG_HOST_IP": f"203.0.113.{i}"}}
                for i, h in enumerate(DEPLOYMENT["nodes"])
            ],
            False,
        ),
    ],
)
def test_container_digest(key: str, value: t.Any, differs: bool) -> None:
    other = fingerprint(PARTS, {**DEPLOYMENT, key: value})
    assert (other["container"] != fingerprint(PARTS, DEPLOYMENT)["container"]) is differs


def test_smoke_passes_while_the_worker_still_lacks_image_and_weights() -> None:
    parts = copy.deepcopy(PARTS)
    parts["spark-2"].update(image=None, manifest=None)
    assert refusals(gate_verdicts(evidence(), fingerprint(parts, DEPLOYMENT, "spark-1"), "spark-1")) == []
    assert refusals(gate_verdicts(evidence(), fingerprint(parts, DEPLOYMENT), "spark-1")) == [
        ("gate.fingerprint", "spark-2", "image"),
        ("gate.fingerprint", "spark-2", "manifest"),
    ]


@pytest.mark.parametrize(
    ("record", "expected", "words"),
    [
        (None, ("gate.evidence", "spark-1"), "no evidence"),
        ("", ("gate.evidence", "spark-1"), "no evidence"),
        ("{broken", ("gate.evidence", "spark-1"), "not readable"),
        ({"schema": 2}, ("gate.evidence", "spark-1"), "unknown form"),
        (
            evidence(passed=False, verdicts=[{"id": "smoke.generation", "status": "fail", "summary": "it broke"}]),
            ("gate.passed", "spark-1"),
            "smoke.generation: it broke",
        ),
        (
            evidence(fingerprint=fingerprint({"spark-1": PARTS["spark-1"]}, DEPLOYMENT)),
            ("gate.evidence", "spark-2"),
            "does not cover spark-2",
        ),
        (
            evidence(fingerprint=fingerprint({**PARTS, "spark-3": PARTS["spark-2"]}, DEPLOYMENT)),
            ("gate.evidence", "spark-3"),
            "no node of this deployment",
        ),
    ],
)
def test_unusable_evidence(record: t.Any, expected: tuple[str, str], words: str) -> None:
    verdicts = [v for v in gate_verdicts(record, fingerprint(PARTS, DEPLOYMENT), "spark-1") if v["status"] == "fail"]
    assert [(v["id"], v["host"]) for v in verdicts] == [expected]
    assert words in verdicts[0]["summary"]
    assert "smoke.yml" in verdicts[0]["remedy"]


GIB = 1 << 30
SPARK = {
    "gpu": {"devices": [{"integrated": True, "memory_total_bytes": 121 * GIB}]},
    "system": {"memory": {"available_bytes": 115 * GIB}},
}
PRO_6000 = {
    "gpu": {"devices": [{"integrated": False, "memory_total_bytes": 95 * GIB}]},
    "system": {"memory": {"available_bytes": 500 * GIB}},
}


@pytest.mark.parametrize(
    ("weights", "recon", "scope", "expected"),
    [
        (20 * GIB, SPARK, "auto", "full"),
        (118 * GIB, SPARK, "auto", "partial"),
        (118 * GIB, PRO_6000, "auto", "partial"),
        (60 * GIB, PRO_6000, "auto", "full"),
        (None, SPARK, "auto", "partial"),
        (20 * GIB, {"gpu": {"devices": []}, "system": {}}, "auto", "partial"),
        (118 * GIB, SPARK, "full", "full"),
        (20 * GIB, SPARK, "partial", "partial"),
    ],
)
def test_scope(weights: int | None, recon: dict[str, t.Any], scope: str, expected: str) -> None:
    plan = smoke_plan(DEPLOYMENT, weights, recon, scope)
    assert plan["scope"] == expected
    assert plan["refuse"] is None
    assert plan["argv"] == DEPLOYMENT["smoke"]["argv" if expected == "full" else "argv_partial"]
    assert ("oracle" in plan["sections"]) is (expected == "full")
    if expected == "full":
        assert plan["dtype"] == "float16", "the engine's own type, or the comparison would not be fair"


def test_scope_that_cannot_be() -> None:
    deployment = {**DEPLOYMENT, "smoke": {**DEPLOYMENT["smoke"], "argv_partial": None}}
    plan = smoke_plan(deployment, 118 * GIB, SPARK)
    assert "one node cannot hold the model (118.0 GiB of weights, 115.0 GiB available)" in plan["refuse"]


@pytest.mark.parametrize(
    ("statuses", "passed"),
    [
        ({"device.tensor": "ok", "smoke.generation": "ok"}, True),
        ({"device.tensor": "ok", "smoke.generation": "ok", "image.ray": "fail"}, False),
        ({"device.tensor": "unknown", "smoke.generation": "ok"}, False),
        ({"device.tensor": "ok"}, False),
        ({}, False),
    ],
)
def test_what_passes(statuses: dict[str, str], passed: bool) -> None:
    verdicts = [{"id": name, "status": status} for name, status in statuses.items()]
    record = smoke_evidence({}, DEPLOYMENT, verdicts, {}, scope="full", created="now", seconds=1.0)
    assert record["passed"] is passed


def test_digests_are_shortened_in_the_text_only() -> None:
    parts = copy.deepcopy(PARTS)
    parts["spark-1"]["image"] = "sha256:" + "a1" * 32
    verdict = gate_verdicts(evidence(), fingerprint(parts, DEPLOYMENT), "spark-1")[-1]
    assert verdict["summary"].endswith("and is sha256:a1a1a1a1a1a1 now")
    assert verdict["evidence"]["is"] == parts["spark-1"]["image"]
