# Copyright (c) 2026, The sparkgate.blackwell authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

import ast
import importlib
import inspect
import os
import subprocess
import sys
import typing as t

import pytest
from ansible_collections.sparkgate.blackwell.plugins.module_utils import _container_probe
from ansible_collections.sparkgate.blackwell.plugins.plugin_utils import _bundle, _container_program

UTILS = "ansible_collections.sparkgate.blackwell.plugins.module_utils"


def bundled() -> list[str]:
    """What goes along with the program."""
    found = set(_bundle.imported(inspect.getsource(_container_program)))
    before: set[str] = set()
    while found != before:
        before = set(found)
        for name in before:
            found |= _bundle.imported(inspect.getsource(importlib.import_module(name)))
    return sorted(found)


def test_what_goes_along() -> None:
    assert bundled() == [f"{UTILS}.{name}" for name in ("_cuda_tables", "_gpu_probe", "_sections")]


@pytest.mark.parametrize("name", [_container_program.__name__, *bundled()])
def test_runs_with_any_python(name: str) -> None:
    tree = ast.parse(inspect.getsource(importlib.import_module(name)), feature_version=(3, 9))
    top = {
        alias.name.partition(".")[0] for node in tree.body if isinstance(node, ast.Import) for alias in node.names
    } | {node.module.partition(".")[0] for node in tree.body if isinstance(node, ast.ImportFrom) and node.module}
    assert top <= {*sys.stdlib_module_names, "ansible_collections"}


def test_fits_into_a_pipe() -> None:
    # With room for the request, which has a prompt and an engine's command line.
    assert len(_bundle.bundle()) < 48 << 10


@pytest.mark.parametrize(
    ("source", "found"),
    [
        (f"from {UTILS}._sections import isolated", {f"{UTILS}._sections"}),
        (f"from {UTILS} import _sections, _gpu", {f"{UTILS}._sections", f"{UTILS}._gpu"}),
        (f"def later():\n    import {UTILS}._gpu_probe", {f"{UTILS}._gpu_probe"}),
        ("import os\nfrom . import a\nfrom ansible.errors import AnsibleError", set()),
    ],
)
def test_imported(source: str, found: set[str]) -> None:
    assert _bundle.imported(source) == found


def test_plain_python_runs_it(tmp_path: t.Any) -> None:
    """As in a container: isolated from this environment, from its standard input, with a banner around it."""
    request: dict[str, t.Any] = {
        "sections": ["python", "toolkit", "gpu", "compat", "triton", "graph", "copy", "fp8_block"],
        "accelerator": "cpu",
        "timeout": 60,
        "nonce": "n0nce",
    }
    text = _container_probe.program_text(_bundle.bundle(), request)
    done = subprocess.run(
        ["/bin/sh", "-c", 'printf "== NVIDIA ==\\nno newline"; "$0" -I -S -; echo; echo bye', sys.executable],
        input=text,
        capture_output=True,
        text=True,
        timeout=60,
        check=True,
        cwd=tmp_path,
        env={"PATH": os.environ["PATH"]},
    )
    document = _container_probe.parse_document(done.stdout, "n0nce")
    assert document["errors"] == [] or document["driver_present"]
    assert set(_container_program.GPU_KEYS) <= set(document)
    assert "gpu" not in document
    assert (document["graph"], document["copy"], document["fp8_block"]) == (False, False, False)
    assert document["triton"] is False
    assert set(document["timings"]) == set(request["sections"])


def test_a_gpu_that_cannot_be_probed_loses_no_other(monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(_request: t.Any) -> t.Any:
        raise OSError("no /proc")

    monkeypatch.setitem(_container_program.SECTIONS, "gpu", (broken, "", False))
    added, errors = _container_program._look("gpu", {}, 5.0)
    assert added == dict.fromkeys(_container_program.GPU_KEYS)
    assert errors == [{"source": "gpu", "code": None, "name": "OSError: no /proc"}]
