# Copyright (c) 2026, The sparkgate.blackwell authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

import hashlib
import json
import os
import struct
import typing as t
from pathlib import Path

import pytest
from ansible_collections.sparkgate.blackwell.plugins.module_utils import _manifest, _model, _safetensors
from ansible_collections.sparkgate.blackwell.plugins.modules import model_info

RunModule = t.Callable[..., dict[str, t.Any]]


def shard(header: t.Any, data: bytes = b"", length: int | None = None) -> bytes:
    raw = header if isinstance(header, bytes) else json.dumps(header).encode()
    return struct.pack("<Q", len(raw) if length is None else length) + raw + data


def tensor(begin: int, end: int, dtype: str = "BF16", shape: list[int] | None = None) -> dict[str, t.Any]:
    return {"dtype": dtype, "shape": [(end - begin) // 2] if shape is None else shape, "data_offsets": [begin, end]}


GOOD = {"__metadata__": {"format": "pt"}, "a": tensor(0, 8), "b": tensor(8, 12)}


@pytest.mark.parametrize(
    ("content", "expected"),
    [
        (shard(GOOD, b"x" * 12), {"a": (0, 8), "b": (8, 12)}),
        (shard({}), {}),
        (shard({"s": tensor(0, 2, shape=[])}, b"xx"), {"s": (0, 2)}),
        (shard({"e": tensor(0, 0, shape=[0, 7])}), {"e": (0, 0)}),
        (shard({"f": tensor(0, 2, "F4", [4])}, b"xx"), {"f": (0, 2)}),
        (shard({"n": tensor(0, 3, "NEW", [1])}, b"xxx"), {"n": (0, 3)}),
        # Padding behind the header belongs to it.
        (shard(json.dumps({"a": tensor(0, 2)}).encode() + b"   ", b"xx"), {"a": (0, 2)}),
    ],
)
def test_read_spans(tmp_path: Path, content: bytes, expected: dict[str, tuple[int, int]]) -> None:
    file = tmp_path / "a.safetensors"
    file.write_bytes(content)
    assert _safetensors.read_spans(str(file)) == expected


@pytest.mark.parametrize(
    ("content", "kind", "text"),
    [
        (b"", "size", "no header"),
        (b"\x01\x02", "size", "no header"),
        (shard(GOOD, b"x" * 11), "size", "promises"),
        (shard(GOOD, b"x" * 13), "size", "promises"),
        (shard(GOOD)[:30], "size", "ends within its header"),
        (shard(b"{}", length=100_000_001), "header", "100000000 are allowed"),
        (struct.pack("<Q", 2**64 - 1) + b"{}", "header", "are allowed"),
        (shard(b"\xff\xfe"), "header", "not JSON"),
        (shard(b"{"), "header", "not JSON"),
        (shard(b"[" * 100000), "header", "not JSON"),
        (shard([]), "header", "not a JSON object"),
        (shard({"a": 7}), "header", "a is not a JSON object"),
        (shard({"a": {"dtype": "BF16", "shape": [1]}}), "header", "no valid data_offsets"),
        (shard({"a": {"dtype": "BF16", "shape": [1], "data_offsets": [0, -2]}}), "header", "no valid data_offsets"),
        (shard({"a": {"dtype": "BF16", "shape": [1], "data_offsets": [0, 2.5]}}), "header", "no valid data_offsets"),
        (shard({"a": {"dtype": "BF16", "shape": None, "data_offsets": [0, 2]}}, b"xx"), "header", "no valid shape"),
        (shard({"a": tensor(0, 4, shape=[3])}, b"xxxx"), "header", "does not fit"),
        (shard({"a": tensor(4, 2, "NEW", [1])}), "header", "ends before"),
        (shard({"a": tensor(0, 4), "b": tensor(2, 6)}, b"x" * 6), "header", "gap or an overlap"),
        (shard({"a": tensor(0, 4), "b": tensor(6, 8)}, b"x" * 8), "header", "gap or an overlap"),
        (shard({"a": tensor(2, 4)}, b"x" * 4), "header", "gap or an overlap"),
    ],
)
def test_read_spans_of_damage(tmp_path: Path, content: bytes, kind: str, text: str) -> None:
    file = tmp_path / "a.safetensors"
    file.write_bytes(content)
    with pytest.raises(_safetensors.SafetensorsError, match=text) as info:
        _safetensors.read_spans(str(file))
    assert info.value.kind == kind


CONFIG = {
    "architectures": ["Qwen3_5MoeForConditionalGeneration"],
    "model_type": "qwen3_5_moe",
    "text_config": {
        "model_type": "qwen3_5_moe_text",
        "num_experts": 256,
        "moe_intermediate_size": 1024,
        "hidden_size": 3072,
    },
    "quantization_config": {"quant_method": "fp8", "weight_block_size": [128, 128]},
}


@pytest.fixture
def model(tmp_path: Path) -> Path:
    directory = tmp_path / "model"
    directory.mkdir()
    (directory / "config.json").write_text(json.dumps(CONFIG))
    (directory / "tokenizer.json").write_text("{}")
    first, second = "model-00001-of-00002.safetensors", "model-00002-of-00002.safetensors"
    (directory / first).write_bytes(shard({"a": tensor(0, 8)}, b"x" * 8))
    (directory / second).write_bytes(shard({"b": tensor(0, 4)}, b"y" * 4))
    index = {"metadata": {"total_size": 12}, "weight_map": {"a": first, "b": second}}
    (directory / _model.INDEX).write_text(json.dumps(index))
    return directory


def check(directory: Path, expected: dict[str, t.Any] | None = None) -> dict[str, t.Any]:
    found = _model.Check(str(directory))
    found.run(expected or {})
    return found.document()


def test_sound_model(model: Path) -> None:
    document = check(
        model,
        {
            "architecture": "Qwen3_5MoeForConditionalGeneration",
            "model_type": "qwen3_5_moe",
            "num_experts": 256,
            "unknown": None,
        },
    )
    assert document["problems"] == []
    assert document["ok"] is True
    assert (document["tensor_bytes"], document["notes"]) == (12, [])
    assert document["config"]["num_experts"] == 256
    assert document["config"]["moe_intermediate_size"] == 1024
    assert (document["config"]["quantization"], document["config"]["fp8_block"]) == ("fp8", [128, 128])
    assert document["config"]["intermediate_size"] is None


def unlink(directory: Path, name: str) -> None:
    (directory / name).unlink()


def replace_by_link(directory: Path, name: str, target: str) -> None:
    (directory / name).unlink()
    os.symlink(target, directory / name)


def index_of(directory: Path, weight_map: dict[str, t.Any], total: int = 12) -> None:
    (directory / _model.INDEX).write_text(json.dumps({"metadata": {"total_size": total}, "weight_map": weight_map}))


SECOND = "model-00002-of-00002.safetensors"


@pytest.mark.parametrize(
    ("damage", "file", "kind"),
    [
        (lambda d: unlink(d, "config.json"), "config.json", "missing"),
        (lambda d: (d / "config.json").write_text("{"), "config.json", "invalid_json"),
        (lambda d: (d / "config.json").write_text("[]"), "config.json", "invalid_json"),
        (lambda d: (d / "config.json").write_bytes(b"\xff"), "config.json", "invalid_json"),
        (lambda d: unlink(d, "tokenizer.json"), "tokenizer.json", "missing"),
        (lambda d: unlink(d, SECOND), SECOND, "missing"),
        (lambda d: os.truncate(d / SECOND, 20), SECOND, "size"),
        (lambda d: os.truncate(d / SECOND, 0), SECOND, "size"),
        (lambda d: (d / SECOND).write_bytes(shard({"c": tensor(0, 4)}, b"yyyy")), SECOND, "tensor_missing"),
        (lambda d: (d / _model.INDEX).write_text("{"), _model.INDEX, "invalid_json"),
        (lambda d: (d / _model.INDEX).write_text("{}"), _model.INDEX, "index"),
        (lambda d: unlink(d, _model.INDEX), _model.INDEX, "missing"),
        (lambda d: index_of(d, {"a": "../outside.safetensors"}), _model.INDEX, "outside"),
        (lambda d: index_of(d, {"a": "/etc/passwd"}), _model.INDEX, "outside"),
        (lambda d: index_of(d, {"a": 7}), _model.INDEX, "outside"),
        (lambda d: replace_by_link(d, SECOND, "../blobs/1"), SECOND, "dangling_link"),
        (lambda d: (d / "x.incomplete").write_text(""), "x.incomplete", "incomplete"),
        (
            lambda d: (
                (d / ".cache" / "huggingface").mkdir(parents=True),
                (d / ".cache" / "huggingface" / "1.incomplete").write_text(""),
            ),
            ".cache/huggingface/1.incomplete",
            "incomplete",
        ),
        (lambda d: os.symlink("/etc", d / "more"), "more", "unreadable"),
        (lambda d: os.mkfifo(d / "pipe"), "pipe", "unreadable"),
    ],
)
def test_damaged_model(model: Path, damage: t.Callable[[Path], t.Any], file: str, kind: str) -> None:
    damage(model)
    document = check(model)
    assert document["ok"] is False
    assert (file, kind) in [(item["file"], item["kind"]) for item in document["problems"]]
    assert all(item["detail"] and item["remedy"] for item in document["problems"])


def test_only_the_cause_is_a_problem(model: Path) -> None:
    unlink(model, SECOND)
    document = check(model)
    assert len(document["problems"]) == 1
    assert document["tensor_bytes"] is None


def test_missing_shard_without_an_index(model: Path) -> None:
    unlink(model, _model.INDEX)
    unlink(model, SECOND)
    assert {item["file"] for item in check(model)["problems"]} == {_model.INDEX, SECOND}


def test_one_file_needs_no_index(model: Path) -> None:
    for path in model.glob("model*"):
        path.unlink()
    assert check(model)["problems"][0]["file"] == "model.safetensors"
    (model / "model.safetensors").write_bytes(shard({"a": tensor(0, 8)}, b"x" * 8))
    assert check(model)["ok"] is True


def test_wrong_total_is_a_note(model: Path) -> None:
    index_of(model, {"a": "model-00001-of-00002.safetensors", "b": SECOND}, total=13)
    (model / "old.safetensors").write_bytes(b"")
    document = check(model)
    assert document["ok"] is True
    assert len(document["notes"]) == 2


def test_a_snapshot_of_links_is_sound(model: Path, tmp_path: Path) -> None:
    (tmp_path / "blobs").mkdir()
    (model / SECOND).rename(tmp_path / "blobs" / "1")
    os.symlink("../blobs/1", model / SECOND)
    assert check(model)["ok"] is True


@pytest.mark.parametrize(
    ("expected", "kind", "text"),
    [
        (
            {"architecture": "LlamaForCausalLM"},
            "architecture",
            "architecture is Qwen3_5MoeForConditionalGeneration; the profile expects LlamaForCausalLM",
        ),
        ({"model_type": "qwen3_5_moe_text"}, "model_type", "model_type is qwen3_5_moe"),
        ({"num_experts": 128}, "config", "num_experts is 256; the profile expects 128"),
        ({"no_such_key": 1}, "config", "no_such_key is None"),
    ],
)
def test_unexpected_model(model: Path, expected: dict[str, t.Any], kind: str, text: str) -> None:
    problem = check(model, expected)["problems"][0]
    assert (problem["file"], problem["kind"]) == ("config.json", kind)
    assert text in problem["detail"]


@pytest.mark.parametrize("make", [lambda path: None, lambda path: path.write_text("")])
def test_no_directory(tmp_path: Path, make: t.Callable[[Path], t.Any]) -> None:
    make(tmp_path / "model")
    document = check(tmp_path / "model")
    assert [item["kind"] for item in document["problems"]] == ["missing_directory"]


def test_digest_and_order() -> None:
    files = [{"path": path, "size": 1, "sha256": "0" * 64} for path in _manifest.order(["é", "b", "B", "a/b", "a-b"])]
    assert [item["path"] for item in files] == ["B", "a-b", "a/b", "b", "é"]
    lines = "".join(f"{'0' * 64}  1  {item['path']}\n" for item in files)
    assert _manifest.digest(files) == hashlib.sha256(lines.encode()).hexdigest()


@pytest.mark.parametrize(
    "text",
    [
        None,
        "",
        "{",
        "[]",
        "7",
        '{"schema": 2, "files": {}}',
        '{"schema": 1}',
        '{"schema": 1, "files": []}',
        '{"schema": 1, "files": {"a": [1]}}',
    ],
)
def test_damaged_cache_is_empty(text: str | None) -> None:
    assert _manifest.parse_cache(text) == {}


def run(run_module: RunModule, check_mode: bool = False, **arguments: t.Any) -> dict[str, t.Any]:
    result = run_module(model_info.main, arguments, check_mode=check_mode)
    assert "failed" not in result, result
    assert result["changed"] is False
    return t.cast("dict[str, t.Any]", result["model"])


def test_module_headers(run_module: RunModule, model: Path) -> None:
    found = run(run_module, path=str(model))
    assert (found["ok"], found["manifest"], found["manifest_digest"]) == (True, None, None)


def test_module_full(run_module: RunModule, model: Path, tmp_path: Path) -> None:
    cache = tmp_path / "hashes.json"
    arguments: dict[str, t.Any] = {"path": str(model), "depth": "full", "model": "m", "hash_cache": str(cache)}
    first = run(run_module, **arguments, check_mode=True)
    assert first["hashed"] == {"files": 5, "cached": 0}
    assert not cache.exists()
    assert run(run_module, **arguments) == first
    assert oct(cache.stat().st_mode & 0o777) == "0o600"
    again = run(run_module, **arguments)
    assert again["hashed"] == {"files": 0, "cached": 5}
    assert again["manifest_digest"] == first["manifest_digest"]
    assert (again["manifest"]["schema"], again["manifest"]["model"], again["manifest"]["revision"]) == (1, "m", None)
    for item in again["manifest"]["files"]:
        content = (model / item["path"]).read_bytes()
        assert (item["size"], item["sha256"]) == (len(content), hashlib.sha256(content).hexdigest())

    # One flipped bit of a weight; the size stays.
    raw = bytearray((model / SECOND).read_bytes())
    raw[-1] ^= 1
    (model / SECOND).write_bytes(raw)
    changed = run(run_module, **arguments, manifest=first["manifest"])
    assert changed["hashed"] == {"files": 1, "cached": 4}
    assert [(item["file"], item["kind"]) for item in changed["problems"]] == [(SECOND, "sha256")]
    assert changed["manifest_digest"] != first["manifest_digest"]


def test_module_compares_names_and_sizes(run_module: RunModule, model: Path) -> None:
    manifest = run(run_module, path=str(model), depth="full")["manifest"]
    (model / "tokenizer.json").write_text("{ }")
    (model / "extra").write_text("")
    manifest["files"].append({"path": "gone", "size": 1, "sha256": ""})
    found = run(run_module, path=str(model), manifest=manifest)
    assert {(item["file"], item["kind"]) for item in found["problems"]} == {
        ("tokenizer.json", "size"),
        ("extra", "unexpected"),
        ("gone", "missing"),
    }


def test_module_with_a_cache_that_cannot_be_written(run_module: RunModule, model: Path, tmp_path: Path) -> None:
    result = run_module(
        model_info.main, {"path": str(model), "depth": "full", "hash_cache": str(tmp_path / "no" / "cache")}
    )
    assert result["model"]["ok"] is True
    assert result["model"]["manifest"] is not None


def test_parts_of_a_broken_transfer_are_no_part_of_the_model(run_module: RunModule, model: Path) -> None:
    (model / ".sparkgate-partial").mkdir()
    (model / ".sparkgate-partial" / SECOND).write_bytes(b"half")
    assert len(run(run_module, path=str(model), depth="full")["manifest"]["files"]) == 5


def test_module_refuses_what_is_no_manifest(run_module: RunModule, model: Path) -> None:
    result = run_module(model_info.main, {"path": str(model), "manifest": {"files": [{}]}})
    assert result["failed"] is True
    assert "manifest must be as this module returns it" in result["msg"]
