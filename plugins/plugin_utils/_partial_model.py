# Copyright (c) 2026, The sparkgate.blackwell authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

# Note that this module util is **PRIVATE** to the collection. It can have breaking changes at any time.
# Do not use this from other collections or standalone plugins/modules!

"""Make a model of the first layers of another one, and run a command on it.

This runs inside the serving image, as the argument of `python3 -c`, so it uses nothing but the standard library.
The configuration overrides of the engines do not do: SGLang 0.5.11 to 0.5.15 puts a plain dictionary in the place of
text_config, and vLLM's loader refuses the weights of layers that its model does not have.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import struct
import sys


def cut_config(config: dict, layers: int) -> dict:
    """The configuration of the first layers, without multi-token prediction."""
    text = config.get("text_config", config)
    text["num_hidden_layers"] = layers
    if text.get("layer_types"):
        text["layer_types"] = text["layer_types"][:layers]
    for key in ("mtp_num_hidden_layers", "num_nextn_predict_layers"):
        if key in text:
            text[key] = 0
    return config


def keep(tensor: str, layers: int) -> bool:
    """Whether a tensor belongs to the first layers or to none; a vision tower's blocks are not called layers."""
    if re.match(r"(model\.)?mtp\.", tensor):
        return False
    found = re.search(r"\blayers\.(\d+)\.", tensor)
    return found is None or int(found.group(1)) < layers


def cut_weights(source: str, target: str, layers: int) -> None:
    """Copy the tensors that are kept, shard by shard."""
    for name in sorted(os.listdir(source)):
        if not name.endswith(".safetensors"):
            continue
        with open(os.path.join(source, name), "rb") as shard:
            size = struct.unpack("<Q", shard.read(8))[0]
            header = json.loads(shard.read(size))
            kept = {key: value for key, value in header.items() if key != "__metadata__" and keep(key, layers)}
            if not kept:
                continue
            cut, end = {"__metadata__": header.get("__metadata__", {"format": "pt"})}, 0
            for key, value in kept.items():
                first, last = value["data_offsets"]
                cut[key] = {**value, "data_offsets": [end, end + last - first]}
                end += last - first
            text = json.dumps(cut).encode()
            text += b" " * (-len(text) % 8)
            with open(os.path.join(target, name), "wb") as out:
                out.write(struct.pack("<Q", len(text)) + text)
                for value in kept.values():
                    first, last = value["data_offsets"]
                    shard.seek(8 + size + first)
                    left = last - first
                    while left:
                        block = shard.read(min(left, 1 << 24))
                        if not block:
                            raise SystemExit(f"{name} ends before the data that its header promises")
                        out.write(block)
                        left -= len(block)


def main(argv: list[str]) -> None:
    """SOURCE TARGET LAYERS COMMAND…"""
    source, target, layers = argv[0], argv[1], int(argv[2])
    os.makedirs(target, exist_ok=True)
    for name in os.listdir(source):
        path = os.path.join(source, name)
        if (
            os.path.isfile(path)
            and not name.endswith((".safetensors", ".safetensors.index.json"))
            and name != "config.json"
        ):
            shutil.copyfile(path, os.path.join(target, name))
    with open(os.path.join(source, "config.json"), encoding="utf-8") as file:
        config = cut_config(json.load(file), layers)
    with open(os.path.join(target, "config.json"), "w", encoding="utf-8") as file:
        json.dump(config, file)
    cut_weights(source, target, layers)
    os.execvp(argv[3], argv[3:])


if __name__ == "__main__":
    main(sys.argv[1:])
