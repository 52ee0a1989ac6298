# Copyright (c) 2026, The sparkgate.blackwell authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Rules of the house that no linter knows."""

from __future__ import annotations

import os
import re
import socket
import subprocess
import sys
from pathlib import Path
from urllib.parse import urlparse

import pytest

ROOT = Path(__file__).resolve().parents[2]
HEADER = [
    "# Copyright (c) 2026, The sparkgate.blackwell authors",
    "# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)",
    "# SPDX-License-Identifier: GPL-3.0-or-later",
]


def tracked() -> list[Path]:
    argv = ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"]
    names = subprocess.run(argv, cwd=ROOT, capture_output=True, check=True).stdout.split(b"\0")
    paths = [ROOT / os.fsdecode(name) for name in dict.fromkeys(names) if name]
    return [path for path in paths if path.is_file() and not path.is_symlink()]


FILES = tracked()
# The end of a file of another package is none of ours.
PYTHON = [path for path in FILES if path.suffix == ".py" and not path.name.endswith("_extension_end.py")]
PLUGINS = [path for path in PYTHON if path.relative_to(ROOT).parts[0] == "plugins"]


def name(path: Path) -> str:
    return str(path.relative_to(ROOT))


def machine_words() -> list[str]:
    """What only this machine knows and nobody should commit: the checkout's path, pip's index, the host's name."""
    words = [str(ROOT)] if len(ROOT.parts) > 2 else []
    words += [path for path in (str(Path.home()) + "/",) if path.startswith("/home/")]
    if len(socket.gethostname()) > 8:
        words.append(socket.gethostname())
    configured = subprocess.run(
        [sys.executable, "-m", "pip", "config", "list"], capture_output=True, text=True, check=False
    ).stdout
    for url in re.findall(r"\b(?:https?|file)://[^\s'\"]+", configured):
        parsed = urlparse(url)
        words.append(parsed.hostname or parsed.path)
    return [word for word in words if word not in ("pypi.org", "localhost")]


@pytest.mark.parametrize("word", machine_words())
def test_nothing_names_the_machine(word: str) -> None:
    assert [name(path) for path in FILES if word.encode() in path.read_bytes()] == []


@pytest.mark.parametrize("path", PYTHON, ids=name)
def test_python_files_begin_with_the_licence(path: Path) -> None:
    lines = path.read_text().splitlines()
    if lines and lines[0].startswith("#!"):
        lines = lines[1:]
    assert [line for line in lines if line.startswith("#")][:3] == HEADER


@pytest.mark.parametrize("path", PLUGINS, ids=name)
def test_plugins_postpone_annotations(path: Path) -> None:
    code = [line for line in path.read_text().splitlines() if line and not line.startswith(("#", '"""'))]
    assert "from __future__ import annotations" in code


def test_plugin_folders_are_no_packages() -> None:
    assert [name(path) for path in PLUGINS if path.name == "__init__.py"] == []


RESERVED = re.compile(r"failed_when:\s*false|ignore_errors:\s*(true|yes)|\|\|\s*true\b")
TASKS = [path for path in FILES if path.suffix == ".yml" and path.relative_to(ROOT).parts[0] in ("roles", "playbooks")]


@pytest.mark.parametrize("path", TASKS, ids=name)
def test_no_failure_is_hidden(path: Path) -> None:
    assert RESERVED.findall(path.read_text()) == []


def test_playbooks_do_not_name_hosts() -> None:
    """Groups come from a variable, so that the playbooks fit into an existing inventory."""
    plays = [path for path in TASKS if path.relative_to(ROOT).parts[0] == "playbooks"]
    wrong = [
        f"{name(path)}: {line.strip()}"
        for path in plays
        for line in path.read_text().splitlines()
        if re.match(r"\s+hosts:", line) and "{{" not in line and "localhost" not in line
    ]
    assert wrong == []


def test_the_link_for_a_plain_checkout() -> None:
    assert os.readlink(ROOT / "collections/ansible_collections/sparkgate/blackwell") == "../../.."
