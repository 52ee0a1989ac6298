# Copyright (c) 2026, The sparkgate.blackwell authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

# Note that this module util is **PRIVATE** to the collection. It can have breaking changes at any time.
# Do not use this from other collections or standalone plugins/modules!

from __future__ import annotations

import json
import os
import re
import typing as t

from ansible_collections.sparkgate.blackwell.plugins.module_utils._manifest import Listed, list_files, order
from ansible_collections.sparkgate.blackwell.plugins.module_utils._safetensors import SafetensorsError, read_spans

INDEX = "model.safetensors.index.json"

_JSON_MAXIMUM_BYTES = 200_000_000
_TOKENIZERS = ("tokenizer.json", "tokenizer.model", "vocab.json", "tekken.json", "tiktoken.model")
_SHARD = re.compile(r"^(?P<stem>.*)-(?P<number>\d{5})-of-(?P<count>\d{5})\.safetensors$")

# Where a configuration keeps the numbers of its language model, the first that has the key wins.
_SECTIONS = ("text_config", "language_config", "llm_config")

# The same number under the names that models use for it.
_DIMENSIONS: dict[str, tuple[str, ...]] = {
    "num_hidden_layers": ("num_hidden_layers", "n_layer"),
    "hidden_size": ("hidden_size", "n_embd"),
    "num_attention_heads": ("num_attention_heads", "n_head"),
    "num_key_value_heads": ("num_key_value_heads",),
    "head_dim": ("head_dim",),
    "linear_num_key_heads": ("linear_num_key_heads",),
    "linear_num_value_heads": ("linear_num_value_heads",),
    "num_experts": ("num_experts", "n_routed_experts", "num_local_experts", "moe_num_experts"),
    "num_experts_per_tok": ("num_experts_per_tok", "moe_topk", "num_experts_per_token"),
    "moe_intermediate_size": ("moe_intermediate_size", "expert_ffn_hidden_size"),
    "shared_expert_intermediate_size": ("shared_expert_intermediate_size",),
    "intermediate_size": ("intermediate_size",),
    "vocab_size": ("vocab_size",),
    "max_position_embeddings": ("max_position_embeddings", "n_positions"),
    "dtype": ("dtype", "torch_dtype"),
}

_FETCH_AGAIN = "Fetch this file again."


def find_value(config: dict[str, t.Any], *names: str) -> t.Any:
    """A value of a configuration, at the top level or where models with several parts keep it."""
    sections = [config.get(name) for name in _SECTIONS]
    for part in [config, *(section for section in sections if isinstance(section, dict))]:
        for name in names:
            if part.get(name) is not None:
                return part[name]
    return None


def describe_config(config: dict[str, t.Any]) -> dict[str, t.Any]:
    """The dimensions that decide where a model fits, under one name each; None where the configuration has none."""
    result = {name: find_value(config, *names) for name, names in _DIMENSIONS.items()}
    quantization = find_value(config, "quantization_config")
    quantization = quantization if isinstance(quantization, dict) else {}
    result["quantization"] = quantization.get("quant_method") or quantization.get("quant_algo")
    result["fp8_block"] = quantization.get("weight_block_size")
    return result


def find_architecture(config: dict[str, t.Any]) -> str | None:
    architectures = config.get("architectures")
    return str(architectures[0]) if isinstance(architectures, list) and architectures else None


class Check:
    """Looks at a directory of a model and collects what is wrong with it. Damage is never raised."""

    def __init__(self, directory: str) -> None:
        self.directory = directory
        self.problems: list[dict[str, t.Any]] = []
        self.notes: list[str] = []
        self.listed = Listed({}, [], [], [])
        self.config: dict[str, t.Any] | None = None
        self.tensor_bytes: int | None = None
        self.stated_bytes: int | None = None

    def problem(self, file: str | None, kind: str, detail: str, remedy: str = _FETCH_AGAIN) -> None:
        self.problems.append({"file": file, "kind": kind, "detail": detail, "remedy": remedy})

    def read_json(self, name: str) -> dict[str, t.Any] | None:
        try:
            with open(os.path.join(self.directory, name), "rb") as stream:
                raw = stream.read(_JSON_MAXIMUM_BYTES + 1)
        except OSError as exc:
            self.problem(
                name, "unreadable", f"the file cannot be read: {exc.strerror or exc}", "Check its owner and mode."
            )
            return None
        try:
            if len(raw) > _JSON_MAXIMUM_BYTES:
                raise ValueError
            value = json.loads(raw.decode("utf-8"))
        except (ValueError, RecursionError):
            self.problem(name, "invalid_json", f"the file is not valid JSON ({len(raw)} bytes)")
            return None
        if not isinstance(value, dict):
            self.problem(name, "invalid_json", "the file is valid JSON, and not an object")
            return None
        return value

    def run(self, expected: dict[str, t.Any]) -> None:
        if not os.path.isdir(self.directory):
            detail = "the path is a file" if os.path.lexists(self.directory) else "the directory does not exist"
            self.problem(None, "missing_directory", detail, "Fetch the model, or correct the path.")
            return
        self.listed = list_files(self.directory)
        for path in self.listed.dangling:
            remedy = "Copy the model with its blobs, or fetch it again."
            self.problem(path, "dangling_link", "the symbolic link leads nowhere", remedy)
        for path in self.listed.others:
            detail = "it is a link to a directory, or cannot be read as a file or directory, so it is not checked"
            self.problem(path, "unreadable", detail, "Replace it with a real file or directory, or remove it.")
        for path in self.listed.incomplete:
            remedy = "Resume the download, or delete the file if the model is complete."
            self.problem(path, "incomplete", "a download was not finished", remedy)
        self.check_config(expected)
        if not any(name in self.listed.files for name in _TOKENIZERS):
            self.problem("tokenizer.json", "missing", f"there is no tokenizer (one of {', '.join(_TOKENIZERS)})")
        self.check_weights()

    def check_config(self, expected: dict[str, t.Any]) -> None:
        if "config.json" not in self.listed.files:
            if "config.json" not in self.listed.dangling:
                self.problem("config.json", "missing", "there is no config.json")
            return
        self.config = self.read_json("config.json")
        if self.config is None:
            return
        known = describe_config(self.config)
        for name, wanted in expected.items():
            if wanted is None:
                continue
            found = find_architecture(self.config) if name == "architecture" else known.get(name)
            if found is None and name != "architecture":
                found = find_value(self.config, name)
            # The top level decides about the type; a part of the model has a type of its own.
            found = self.config.get("model_type") if name == "model_type" else found
            if found != wanted:
                self.problem(
                    "config.json",
                    name if name in ("architecture", "model_type") else "config",
                    f"{name} is {found}; the profile expects {wanted}",
                    "Check that this is the model of the profile, or choose the profile of this model.",
                )

    def check_weights(self) -> None:
        present = [path for path in self.listed.files if path.endswith(".safetensors")]
        if INDEX in self.listed.files:
            wanted = self.read_index()
            if wanted is None:
                return
            extra = order(path for path in present if "/" not in path and path not in wanted)
            if extra:
                self.notes.append(f"not listed in {INDEX}: {', '.join(extra)}")
        else:
            wanted = self.guess_shards([path for path in present if "/" not in path])
        total: int | None = 0
        for name in order(wanted):
            if name not in self.listed.files:
                if name not in self.listed.dangling:
                    self.problem(name, "missing", "the shard is not there")
                total = None
                continue
            size = self.check_shard(name, wanted[name])
            total = None if total is None or size is None else total + size
        self.tensor_bytes = total if wanted else None
        if total is not None and self.stated_bytes is not None and self.stated_bytes != total:
            # Some repositories state a wrong total, so this is told and is no damage.
            self.notes.append(f"{INDEX} states {self.stated_bytes} bytes in total; the shards hold {total}")

    def read_index(self) -> dict[str, set[str]] | None:
        """Names of tensors by shard."""
        index = self.read_json(INDEX)
        if index is None:
            return None
        entries = index.get("weight_map")
        if not isinstance(entries, dict) or not entries:
            self.problem(INDEX, "index", "the index has no weight_map")
            return None
        metadata = index.get("metadata")
        stated = metadata.get("total_size") if isinstance(metadata, dict) else None
        self.stated_bytes = stated if isinstance(stated, int) else None
        wanted: dict[str, set[str]] = {}
        outside: set[str] = set()
        for tensor, file in entries.items():
            # A name from a file of others must not lead out of the directory.
            if not isinstance(file, str) or not file or os.path.isabs(file) or ".." in file.split("/") or "\0" in file:
                outside.add(str(file))
            else:
                wanted.setdefault(file, set()).add(tensor)
        for file in sorted(outside):
            self.problem(INDEX, "outside", f"the index names {file!r}, which is not a file of this directory")
        return wanted

    def guess_shards(self, present: list[str]) -> dict[str, set[str]]:
        """Without an index: one file is a model, numbered ones are a model whose index is missing."""
        numbered = [match for match in (_SHARD.match(path) for path in present) if match]
        wanted: dict[str, set[str]] = {path: set() for path in present}
        if numbered:
            self.problem(INDEX, "missing", "the weights are in several shards, and their index is not there")
            for match in numbered:
                count = int(match["count"])
                # The number comes from a file's name; a wrong one must not make a list without end.
                for number in range(1, min(count, 10000) + 1):
                    wanted.setdefault(f"{match['stem']}-{number:05d}-of-{match['count']}.safetensors", set())
        elif not present:
            self.problem("model.safetensors", "missing", "there are no weights in the safetensors format")
        return wanted

    def check_shard(self, name: str, tensors: set[str]) -> int | None:
        try:
            spans = read_spans(os.path.join(self.directory, name))
        except SafetensorsError as exc:
            self.problem(name, exc.kind, str(exc))
            return None
        lost = sorted(tensors - set(spans))
        if lost:
            rest = f" and {len(lost) - 1} more" if len(lost) > 1 else ""
            detail = f"the index places tensor {lost[0]}{rest} here, and the file does not have it"
            self.problem(name, "tensor_missing", detail)
        return sum(end - begin for begin, end in spans.values())

    def document(self) -> dict[str, t.Any]:
        config = self.config or {}
        return {
            "ok": not self.problems,
            "path": self.directory,
            "architecture": find_architecture(config),
            "model_type": config.get("model_type"),
            "config": describe_config(config) if self.config is not None else None,
            "tensor_bytes": self.tensor_bytes,
            "total_bytes": sum(self.listed.files.values()),
            "files": [{"path": path, "size": self.listed.files[path]} for path in order(self.listed.files)],
            "problems": self.problems,
            "notes": self.notes,
        }
