# Copyright (c) 2026, The sparkgate.blackwell authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

# Note that this plugin util is **PRIVATE** to the collection. It can have breaking changes at any time.
# Do not use this from other collections or standalone plugins/modules!

"""The container's program as one text that plain Python can run, with all of the collection that it imports."""

from __future__ import annotations

import ast
import base64
import functools
import importlib
import inspect
import zlib

from ansible_collections.sparkgate.blackwell.plugins.plugin_utils import _container_program

PREFIX = "ansible_collections.sparkgate.blackwell.plugins."

# A module is run when it is imported, as always: what a section imports stays that section's own risk.
_FINDER = """\
import importlib.machinery
import sys


class _Bundled:
    def __init__(self, sources):
        self.sources = sources

    def find_spec(self, name, path=None, target=None):
        if name in self.sources:
            return importlib.machinery.ModuleSpec(name, self)
        if any(source.startswith(name + ".") for source in self.sources):
            return importlib.machinery.ModuleSpec(name, self, is_package=True)
        return None

    def create_module(self, spec):
        return None

    def exec_module(self, module):
        name = module.__name__
        if name in self.sources:
            exec(compile(self.sources[name], name, "exec", dont_inherit=True), module.__dict__)
"""


def imported(source: str) -> set[str]:
    """The modules of the collection that a module imports, by their full names."""
    found: set[str] = set()
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.ImportFrom) and node.module and f"{node.module}.".startswith(PREFIX):
            parent = f"{node.module}." in (f"{PREFIX}module_utils.", f"{PREFIX}plugin_utils.")
            found.update([f"{node.module}.{name.name}" for name in node.names] if parent else [node.module])
        elif isinstance(node, ast.Import):
            found.update(name.name for name in node.names if name.name.startswith(PREFIX))
    return found


@functools.cache
def bundle() -> str:
    """The text. Behind it the names of the program are there, C(run) among them."""
    program = inspect.getsource(_container_program)
    sources: dict[str, str] = {}
    wanted = imported(program)
    while wanted:
        name = wanted.pop()
        sources[name] = inspect.getsource(importlib.import_module(name))
        wanted |= imported(sources[name]) - set(sources)
    whole = (
        f"{_FINDER}\n\nsys.meta_path.insert(0, _Bundled({dict(sorted(sources.items()))!r}))\n"
        f"exec(compile({program!r}, 'container_program', 'exec', dont_inherit=True))\n"
    )
    # A container that ends before it has read all of this breaks the pipe to it, unless the pipe can hold it (64 KiB).
    packed = base64.b64encode(zlib.compress(whole.encode(), 9)).decode("ascii")
    return f"import base64, zlib\nexec(zlib.decompress(base64.b64decode({packed!r})))\n"
