# Copyright (c) 2026, The sparkgate.blackwell authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

import json
import struct
import subprocess
import sys
from pathlib import Path

import pytest
from ansible_collections.sparkgate.blackwell.plugins.plugin_utils import _partial_model as partial


def write_shard(path: Path, tensors: dict[str, bytes]) -> None:
    header: dict[str, object] = {"__metadata__": {"format": "pt"}}
    end = 0
    for name, data in tensors.items():
        header[name] = {"dtype": "U8", "shape": [len(data)], "data_offsets": [end, end + len(data)]}
        end += len(data)
    text = json.dumps(header).encode()
    path.write_bytes(struct.pack("<Q", len(text)) + text + b"".join(tensors.values()))


def read_shard(path: Path) -> dict[str, bytes]:
    data = path.read_bytes()
    size = struct.unpack("<Q", data[:8])[0]
    header = json.loads(data[8 : 8 + size])
    header.pop("__metadata__")
    body = data[8 + size :]
    assert sum(entry["data_offsets"][1] - entry["data_offsets"][0] for entry in header.values()) == len(body)
    return {name: body[slice(*entry["data_offsets"])] for name, entry in header.items()}


def test_a_model_of_the_first_layers(tmp_path: Path) -> None:
    source, target = tmp_path / "model", tmp_path / "partial"
    source.mkdir()
    write_shard(
        source / "model-1.safetensors",
        {
            "model.language_model.embed_tokens.weight": b"eeee",
            "model.language_model.layers.0.mlp.gate.weight": b"000",
            "model.language_model.layers.5.mlp.gate.weight": b"5555",
            "model.visual.blocks.9.attn.weight": b"v",
            "mtp.layers.0.weight": b"m",
        },
    )
    write_shard(source / "model-2.safetensors", {"model.language_model.layers.6.mlp.gate.weight": b"66"})
    (source / "model.safetensors.index.json").write_text("{}", encoding="utf-8")
    (source / "tokenizer.json").write_text("{}", encoding="utf-8")
    text = {"num_hidden_layers": 8, "layer_types": ["a", "b"] * 4, "mtp_num_hidden_layers": 1}
    (source / "config.json").write_text(json.dumps({"text_config": text}), encoding="utf-8")

    # As it runs in the container: the program's text, and then the command.
    out = subprocess.run(
        [
            sys.executable,
            "-c",
            Path(partial.__file__).read_text(encoding="utf-8"),
            source,
            target,
            "2",
            "echo",
            "started",
        ],
        capture_output=True,
        check=True,
        text=True,
    )
    assert out.stdout == "started\n"
    assert sorted(path.name for path in target.iterdir()) == ["config.json", "model-1.safetensors", "tokenizer.json"]
    assert json.loads((target / "config.json").read_text(encoding="utf-8"))["text_config"] == {
        "num_hidden_layers": 2,
        "layer_types": ["a", "b"],
        "mtp_num_hidden_layers": 0,
    }
    assert read_shard(target / "model-1.safetensors") == {
        "model.language_model.embed_tokens.weight": b"eeee",
        "model.language_model.layers.0.mlp.gate.weight": b"000",
        "model.visual.blocks.9.attn.weight": b"v",
    }


KEEP = [
    ("model.language_model.layers.3.linear_attn.A_log", True),
    ("model.language_model.layers.4.linear_attn.A_log", False),
    ("model.layers.40.mlp.experts.gate_up_proj", False),
    ("lm_head.weight", True),
    ("model.visual.blocks.20.norm1.weight", True),
    ("mtp.fc.weight", False),
    ("model.mtp.layers.0.weight", False),
]


@pytest.mark.parametrize(("tensor", "kept"), KEEP)
def test_keep(tensor: str, kept: bool) -> None:
    assert partial.keep(tensor, 4) is kept
