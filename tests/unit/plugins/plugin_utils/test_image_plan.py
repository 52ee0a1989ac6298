# Copyright (c) 2026, The sparkgate.blackwell authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

import typing as t

import pytest
from ansible_collections.sparkgate.blackwell.plugins.plugin_utils._image_plan import image_plan

OLD = {"version": "5.1.0", "known": False}
SGLANG = {
    "name": "sglang",
    "version": "0.5.23",
    "requires_dist": [
        "torch==2.14.1",
        "transformers==5.19.0",
        "tokenizers==0.23.2",
        'ray[default]>=2.55.1; extra == "ray"',
        'sentence_transformers; extra == "test"',
    ],
}
VLLM = {"name": "vllm", "version": "0.32.0", "requires_dist": ["transformers<5.20.0,>=5.16.1", "tokenizers>=0.23.2"]}
PINS = ["transformers==5.19.0", "huggingface_hub==2.4.0", "tokenizers==0.23.3"]


def profile(pins: list[str], minimum: str = "5.2.0") -> dict[str, t.Any]:
    return {
        "name": "tiny",
        "config": {"model_type": "qwen3_5_moe"},
        "min_versions": {"transformers": minimum, "sglang": "0.5.9", "vllm": "0.17.0"},
        "image": {"pip": pins},
    }


def engine(name: str, version: str, *requires: str) -> dict[str, t.Any]:
    return {"name": name, "version": version, "requires_dist": list(requires)}


@pytest.mark.parametrize(
    ("document", "pins", "expected", "pip", "why"),
    [
        pytest.param(
            {"transformers": OLD, "engine": VLLM, "ray": {"version": "2.60.0"}},
            PINS,
            "5.19.0",
            PINS,
            "transformers 5.1.0 does not know qwen3_5_moe",
            id="too old, the pins fit",
        ),
        pytest.param(
            {"transformers": OLD, "engine": SGLANG, "ray": {"version": "2.60.0"}},
            PINS,
            "5.19.0",
            ["transformers==5.19.0", "huggingface_hub==2.4.0", "tokenizers==0.23.2"],
            "sglang requires tokenizers==0.23.2",
            id="a pin beside transformers is not what the engine requires",
        ),
        pytest.param(
            {"transformers": OLD, "engine": SGLANG, "ray": False},
            ["transformers==5.19.0"],
            "5.19.0",
            ["transformers==5.19.0", "ray[default]>=2.55.1"],
            "lacks Ray",
            id="Ray by the engine's extra",
        ),
        pytest.param(
            {"transformers": OLD, "engine": VLLM, "ray": False},
            ["transformers==5.19.0"],
            "5.19.0",
            ["transformers==5.19.0", "ray[cgraph]>=2.48.0"],
            "lacks Ray",
            id="Ray where the engine has no such extra",
        ),
        pytest.param(
            {
                "transformers": OLD,
                "engine": engine("sglang", "0.5.10", "transformers==5.3.0"),
                "ray": {"version": "2.60.0"},
            },
            PINS,
            "5.3.0",
            ["transformers==5.3.0"],
            "sglang 0.5.10 requires transformers ==5.3.0",
            id="the engine's own pin wins over the profile's, whose companions go with it",
        ),
        pytest.param(
            {
                "transformers": OLD,
                "engine": engine("vllm", "0.24.0", "transformers>=5.5.3"),
                "ray": {"version": "2.60.0"},
            },
            [],
            "5.5.3",
            ["transformers==5.5.3"],
            "5.5.3 satisfies both",
            id="no pin, the engine's floor",
        ),
        pytest.param(
            {"transformers": OLD, "engine": engine("vllm", "0.24.0"), "ray": {"version": "2.60.0"}},
            [],
            "5.2.0",
            ["transformers==5.2.0"],
            "sets no bounds",
            id="no pin and no bounds, the model's minimum",
        ),
        pytest.param(
            {"transformers": {"version": "5.17.0", "known": True}, "engine": VLLM, "ray": {"version": "2.60.0"}},
            PINS,
            "5.17.0",
            [],
            "Nothing has to be built",
            id="new enough already",
        ),
        pytest.param(
            {"transformers": {"version": "5.17.0", "known": True}, "engine": VLLM, "ray": False},
            PINS,
            "5.17.0",
            ["ray[cgraph]>=2.48.0"],
            "lacks Ray",
            id="only Ray is missing",
        ),
        pytest.param(
            {"transformers": {"version": "5.17.0", "known": True}, "engine": SGLANG, "ray": {"version": "2.60.0"}},
            ["transformers==5.19.0"],
            "5.19.0",
            ["transformers==5.19.0"],
            "not what the engine requires",
            id="new enough for the model, but not what the engine requires",
        ),
        pytest.param(
            {"transformers": False, "engine": SGLANG, "ray": {"version": "2.60.0"}},
            ["transformers==5.19.0"],
            "5.19.0",
            ["transformers==5.19.0"],
            "is missing",
            id="no transformers",
        ),
    ],
)
def test_plan(document: dict[str, t.Any], pins: list[str], expected: str, pip: list[str], why: str) -> None:
    plan = image_plan(document, profile(pins), document["engine"]["name"])
    assert plan["refuse"] is None
    assert plan["transformers"] == expected
    assert plan["pip"] == pip
    assert plan["build"] is bool(pip)
    assert why in " ".join(plan["why"])
    assert plan["labels"]["sparkgate.transformers"] == expected


@pytest.mark.parametrize(
    ("document", "name", "words"),
    [
        (
            {"transformers": OLD, "engine": engine("sglang", "0.5.9", "transformers==4.57.1")},
            "sglang",
            ["5.2.0 or newer", "==4.57.1", "sglang 0.5.10 or newer"],
        ),
        (
            {"transformers": OLD, "engine": engine("vllm", "0.17.0", "transformers<5,>=4.56.0")},
            "vllm",
            ["5.2.0 or newer", "vllm 0.19.1 or newer"],
        ),
        ({"engine": engine("sglang", "0.5.4")}, "sglang", ["has sglang 0.5.4", "needs 0.5.9"]),
        ({"engine": False}, "vllm", ["has no vllm", "sparkgate_base_image"]),
        ({"engine": None, "errors": [{"source": "engine", "name": "it hung"}]}, "vllm", ["it hung"]),
        (None, "vllm", ["has no vllm"]),
    ],
)
def test_refusal(document: dict[str, t.Any] | None, name: str, words: list[str]) -> None:
    plan = image_plan(document, profile([]), name)
    assert plan["build"] is False
    for word in words:
        assert word in plan["refuse"]
