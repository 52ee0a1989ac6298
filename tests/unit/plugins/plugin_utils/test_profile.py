# Copyright (c) 2026, The sparkgate.blackwell authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

import copy
import typing as t
from pathlib import Path

import pytest
import yaml
from ansible_collections.sparkgate.blackwell.plugins.plugin_utils import _profile as profiles

SPARK = "qwen3.5-122b-a10b-fp8"
LAB = "lab-tiny-qwen3.5-moe"


def shipped(name: str = LAB) -> dict[str, t.Any]:
    return t.cast("dict[str, t.Any]", yaml.safe_load((profiles.SHIPPED / f"{name}.yml").read_text(encoding="utf-8")))


def put(tree: dict[str, t.Any], key: str, value: t.Any) -> dict[str, t.Any]:
    tree = copy.deepcopy(tree)
    node = tree
    *path, last = key.split(".")
    for part in path:
        node = node[part]
    if value is ...:
        del node[last]
    else:
        node[last] = value
    return tree


@pytest.mark.parametrize("name", profiles.shipped())
def test_shipped_profiles_are_valid(name: str) -> None:
    profile = profiles.load(name)
    assert profile["name"] == name
    assert profile["digest"].startswith("sha256:")


def test_both_are_shipped() -> None:
    assert profiles.shipped() == [LAB, SPARK]


WRONG: list[tuple[str, t.Any, str]] = [
    ("name", ..., "name is missing."),
    ("schema", 2, "schema is 2. Use one of: 1."),
    ("name", "Upper Case", "name is 'Upper Case'. Use lower case letters"),
    ("accelerator", "rocm", "accelerator is 'rocm'. Use one of: cuda, cpu."),
    ("weight_bytes", "many", "weight_bytes is 'many', but must be a whole number. Give the number of bytes"),
    ("weight_bytes", True, "weight_bytes is True, but must be a whole number."),
    ("model.id", "no-owner", "model.id is 'no-owner'. Give owner/name"),
    ("model.source", ..., "model.source is missing. Say where the statement comes from."),
    ("model.source", None, "model.source is empty."),
    (
        "min_versions.transformers",
        5.2,
        "min_versions.transformers is 5.2, but must be a string. Write the version in quotes",
    ),
    ("image.digest", "sha256:12", "image.digest is 'sha256:12'. Give sha256:"),
    ("image.pip", ["transformers>=5"], "image.pip[0] is 'transformers>=5'. Pin it: name==version."),
    ("container.options.ulimit", {}, "container.options.ulimit is not a key of a profile. Did you mean ulimits?"),
    (
        "container.options.privileged",
        True,
        "container.options.privileged is not a key of a profile. Known here: cap_add",
    ),
    ("engines.tgi", [], "engines.tgi is not a key of a profile. Known here: sglang, vllm."),
    ("engines.vllm", [], "engines.vllm is missing, but default_engine is vllm."),
    ("answer.dtype", {"vllm": "bfloat16"}, "answer.dtype.sglang is missing."),
]


@pytest.mark.parametrize(("key", "value", "text"), WRONG, ids=[f"{row[0]}={row[1]!r}" for row in WRONG])
def test_errors_name_file_key_and_remedy(tmp_path: Path, key: str, value: t.Any, text: str) -> None:
    file = tmp_path / "mine.yml"
    file.write_text(yaml.safe_dump(put(shipped(), key, value)), encoding="utf-8")
    with pytest.raises(profiles.ProfileError) as caught:
        profiles.load(str(file))
    assert f"Profile {file}: {text}" in str(caught.value)


def test_extends_merges_maps_and_replaces_lists(tmp_path: Path) -> None:
    (tmp_path / "mine.yml").write_text(
        yaml.safe_dump(
            {"extends": SPARK, "name": "mine", "container": {"options": {"cap_drop": []}}, "answer": {"contains": "42"}}
        ),
        encoding="utf-8",
    )
    mine, parent = profiles.load("mine", [tmp_path]), profiles.load(SPARK)
    assert mine["container"]["options"] == {**parent["container"]["options"], "cap_drop": []}
    assert mine["answer"] == {**parent["answer"], "contains": "42"}
    assert mine["engines"] == parent["engines"]
    assert mine["digest"] != parent["digest"]
    assert "extends" not in mine


def test_digest_ignores_the_order_of_keys(tmp_path: Path) -> None:
    (tmp_path / "a.yml").write_text(yaml.safe_dump(shipped(), sort_keys=False), encoding="utf-8")
    (tmp_path / "b.yml").write_text(yaml.safe_dump(shipped(), sort_keys=True), encoding="utf-8")
    assert (
        profiles.load("a", [tmp_path])["digest"]
        == profiles.load("b", [tmp_path])["digest"]
        == profiles.load(LAB)["digest"]
    )


UNREADABLE = [
    ("a: [", "cannot be read"),
    ("- a\n", "holds list, not a mapping"),
    ("extends: loop\n", "comes back to loop.yml. Break the circle."),
    ("extends: [a]\n", "extends is ['a']. Give the name or the path of one profile."),
    ("extends: absent\n", "There is no profile called absent"),
]


@pytest.mark.parametrize(("text", "problem"), UNREADABLE)
def test_files_that_cannot_be_used(tmp_path: Path, text: str, problem: str) -> None:
    (tmp_path / "loop.yml").write_text(text, encoding="utf-8")
    with pytest.raises(profiles.ProfileError) as caught:
        profiles.load("loop", [tmp_path])
    assert problem in str(caught.value)


def test_unknown_name_and_path() -> None:
    with pytest.raises(profiles.ProfileError, match=f"Did you mean {SPARK}"):
        profiles.load("qwen3.5-122b-a10b-fp4")
    with pytest.raises(profiles.ProfileError, match="There is no profile file /nowhere/x.yml"):
        profiles.load("/nowhere/x.yml")
