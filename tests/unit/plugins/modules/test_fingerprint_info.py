# Copyright (c) 2026, The sparkgate.blackwell authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

import hashlib
import json
import os
import typing as t
from pathlib import Path

import pytest
from ansible_collections.sparkgate.blackwell.plugins.modules import fingerprint_info

RunModule = t.Callable[..., dict[str, t.Any]]
UUID = "GPU-8c1e7c1b-31ab-9b06-1f3c-7a3f3a4a5b6c"
VERSION = "NVRM version: NVIDIA UNIX Open Kernel Module for aarch64  580.95.05  Release Build\nGCC version:\n"


@pytest.fixture(params=["model_info", "transfer"])
def node(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest) -> Path:
    """A node with an image, verified weights, a driver and one GPU."""
    weights = tmp_path / "models" / "tiny"
    weights.mkdir(parents=True)
    files = []
    cache: dict[str, t.Any] = {}
    for name, text in (("b.safetensors", "22"), ("a.json", "1")):
        (weights / name).write_text(text, encoding="utf-8")
        found = (weights / name).stat()
        files.append({"path": name, "size": found.st_size, "sha256": name[0] * 64})
        if request.param == "transfer":
            cache[name] = {"size": found.st_size, "mtime_ns": found.st_mtime_ns, "inode": found.st_ino}
        else:
            cache[str(weights / name)] = [found.st_size, found.st_mtime_ns, found.st_ino, name[0] * 64]
    manifests = tmp_path / "manifests"
    manifests.mkdir()
    (manifests / "tiny.json").write_text(json.dumps({"schema": 1, "files": files}), encoding="utf-8")
    (manifests / "tiny.hashes.json").write_text(json.dumps({"files": cache}), encoding="utf-8")
    gpu = tmp_path / "gpus" / "0000000F:01:00.0"
    gpu.mkdir(parents=True)
    (gpu / "information").write_text(
        f"Model: \t NVIDIA GB10\nGPU UUID: \t {UUID}\nVideo BIOS: \t x\n", encoding="utf-8"
    )
    (tmp_path / "version").write_text(VERSION, encoding="utf-8")
    monkeypatch.setattr(fingerprint_info, "DRIVER_FILE", str(tmp_path / "version"))
    monkeypatch.setattr(fingerprint_info, "GPU_FILES", str(tmp_path / "gpus" / "*" / "information"))
    docker = tmp_path / "bin" / "docker"
    docker.parent.mkdir()
    docker.write_text('#!/bin/sh\n[ "$3" = here:1 ] && echo \'[{"Id": "sha256:1f0c"}]\'\n', encoding="utf-8")
    docker.chmod(0o755)
    monkeypatch.setenv("PATH", f"{docker.parent}:{os.environ['PATH']}")
    return tmp_path


def read(node: Path, run_module: RunModule, image: str = "here:1") -> dict[str, t.Any]:
    options = {"image": image, "model": "tiny", "model_path": str(node / "models" / "tiny"), "state_dir": str(node)}
    return run_module(fingerprint_info.main, options)


def test_everything(node: Path, run_module: RunModule) -> None:
    result = read(node, run_module)
    assert result["changed"] is False
    assert result["weight_bytes"] == 3
    lines = f"{'a' * 64}  1  a.json\n{'b' * 64}  2  b.safetensors\n"
    assert result["fingerprint"] == {
        "image": "sha256:1f0c",
        "manifest": hashlib.sha256(lines.encode()).hexdigest(),
        "driver": "580.95.05",
        "kernel": os.uname().release,
        "gpus": [UUID],
    }


@pytest.mark.parametrize(
    ("change", "part", "expected"),
    [
        (lambda n: (n / "models/tiny/a.json").unlink(), "manifest", "changed: a.json (missing)"),
        (
            lambda n: (n / "models/tiny/a.json").write_text("12", encoding="utf-8"),
            "manifest",
            "changed: a.json (2 bytes, not 1)",
        ),
        (
            lambda n: os.utime(n / "models/tiny/b.safetensors", ns=(1, 1)),
            "manifest",
            "changed: b.safetensors (written again since it was verified)",
        ),
        (lambda n: (n / "manifests/tiny.json").unlink(), "manifest", None),
        (lambda n: (n / "version").unlink(), "driver", False),
        (lambda n: (n / "version").write_text("?", encoding="utf-8"), "driver", None),
        (lambda n: (n / "gpus/0000000F:01:00.0/information").unlink(), "gpus", []),
        # The driver has not read the UUID yet, and there is no nvidia-smi to ask.
        (
            lambda n: (n / "gpus/0000000F:01:00.0/information").write_text(
                "GPU UUID: \t GPU-????????-????-????-????-????????????\n", encoding="utf-8"
            ),
            "gpus",
            None,
        ),
    ],
)
def test_each_part(
    node: Path, run_module: RunModule, change: t.Callable[[Path], t.Any], part: str, expected: t.Any
) -> None:
    before = read(node, run_module)["fingerprint"]
    change(node)
    after = read(node, run_module)["fingerprint"]
    assert after == {**before, part: expected}


def test_no_such_image(node: Path, run_module: RunModule) -> None:
    assert read(node, run_module, "other:1")["fingerprint"]["image"] is None


def test_manifest_that_cannot_be_read(node: Path, run_module: RunModule) -> None:
    (node / "manifests/tiny.json").write_text("{", encoding="utf-8")
    result = read(node, run_module)
    assert result["failed"]
    assert "tiny.json cannot be read" in result["msg"]
    assert "model.yml" in result["msg"]
