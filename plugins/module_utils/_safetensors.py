# Copyright (c) 2026, The sparkgate.blackwell authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

# Note that this module util is **PRIVATE** to the collection. It can have breaking changes at any time.
# Do not use this from other collections or standalone plugins/modules!

from __future__ import annotations

import json
import os
import typing as t

# The format's own limit; a longer header is damage, and reading it would take as much memory.
HEADER_MAXIMUM_BYTES = 100_000_000

# Bits of one element. A type that is not listed is not checked for its size, since new ones appear.
_BITS = {
    "F4": 4,
    "F6_E2M3": 6,
    "F6_E3M2": 6,
    "BOOL": 8,
    "U8": 8,
    "I8": 8,
    "F8_E4M3": 8,
    "F8_E5M2": 8,
    "F8_E8M0": 8,
    "F8_E4M3FNUZ": 8,
    "F8_E5M2FNUZ": 8,
    "U16": 16,
    "I16": 16,
    "F16": 16,
    "BF16": 16,
    "U32": 32,
    "I32": 32,
    "F32": 32,
    "U64": 64,
    "I64": 64,
    "F64": 64,
    "C64": 64,
}


class SafetensorsError(Exception):
    """What is wrong with a file; C(kind) tells damage of the header from a wrong size."""

    def __init__(self, kind: str, detail: str) -> None:
        super().__init__(detail)
        self.kind = kind


def _is_count(value: t.Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and value >= 0


def parse_header(raw: bytes) -> dict[str, tuple[int, int]]:
    """Begin and end of each tensor's data, checked for type, size, gaps and overlaps."""
    try:
        header = json.loads(raw.decode("utf-8"))
    except (ValueError, RecursionError) as exc:
        raise SafetensorsError("header", f"the header is not JSON ({exc.__class__.__name__})") from exc
    if not isinstance(header, dict):
        raise SafetensorsError("header", "the header is not a JSON object")
    header.pop("__metadata__", None)
    spans: dict[str, tuple[int, int]] = {}
    for name, entry in header.items():
        if not isinstance(entry, dict):
            raise SafetensorsError("header", f"the entry of tensor {name} is not a JSON object")
        offsets = entry.get("data_offsets")
        shape = entry.get("shape")
        if not (isinstance(offsets, list) and len(offsets) == 2 and all(_is_count(item) for item in offsets)):
            raise SafetensorsError("header", f"tensor {name} has no valid data_offsets")
        if not (isinstance(shape, list) and all(_is_count(item) for item in shape)):
            raise SafetensorsError("header", f"tensor {name} has no valid shape")
        begin, end = offsets
        bits = _BITS.get(str(entry.get("dtype")))
        if bits is not None:
            for size in shape:
                bits *= size
            if bits != (end - begin) * 8:
                raise SafetensorsError(
                    "header", f"tensor {name} ({entry['dtype']}, shape {shape}) does not fit its {end - begin} bytes"
                )
        elif end < begin:
            raise SafetensorsError("header", f"tensor {name} ends before it begins")
        spans[name] = (begin, end)
    position = 0
    for name, (begin, end) in sorted(spans.items(), key=lambda item: item[1]):
        if begin != position:
            raise SafetensorsError("header", f"there is a gap or an overlap before tensor {name}")
        position = end
    return spans


def read_spans(path: str) -> dict[str, tuple[int, int]]:
    """Reads and checks the header of a file, and the size that it promises. Only the header is read."""
    try:
        with open(path, "rb") as stream:
            size = os.fstat(stream.fileno()).st_size
            start = stream.read(8)
            if len(start) < 8:
                raise SafetensorsError("size", f"the file has {size} bytes and no header")
            length = int.from_bytes(start, "little")
            if length > HEADER_MAXIMUM_BYTES:
                raise SafetensorsError(
                    "header", f"the header claims {length} bytes; {HEADER_MAXIMUM_BYTES} are allowed"
                )
            if 8 + length > size:
                raise SafetensorsError("size", f"the file ends within its header ({size} of {8 + length} bytes)")
            raw = stream.read(length)
    except OSError as exc:
        raise SafetensorsError("unreadable", f"the file cannot be read: {exc.strerror or exc}") from exc
    spans = parse_header(raw)
    promised = 8 + length + max((end for _begin, end in spans.values()), default=0)
    if promised != size:
        raise SafetensorsError("size", f"the file has {size} bytes; its header promises {promised}")
    return spans
