# Copyright (c) 2026, The sparkgate.blackwell authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Runs the real playbooks on the lab's nodes, as a user would."""

from __future__ import annotations

import dataclasses
import functools
import json
import os
import re
import subprocess
import sys
import typing as t
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
BIN = Path(sys.executable).parent
INVENTORY = ROOT / "lab" / "inventory"
# State of tests, beside that of the deployment.
STATE = "/var/lib/sparkgate-test"


def squeeze(text: str) -> str:
    """One line: Ansible folds long messages, and YAML doubles an apostrophe in a quoted one."""
    return re.sub(r"\s+", " ", text).replace("''", "'")


@dataclasses.dataclass
class Run:
    rc: int
    output: str

    @property
    def text(self) -> str:
        return squeeze(self.output)

    @property
    def changed(self) -> dict[str, int]:
        return {host: int(number) for host, number in re.findall(r"^(\S+)\s+: ok=.*?changed=(\d+)", self.output, re.M)}

    def refused(self, *words: str) -> None:
        """It ended with one error on one node, and the error names these."""
        assert self.rc != 0, self.output
        assert "Traceback" not in self.output, self.output
        # An error ends at the next empty line; what follows is announced there and told again as an error of its own.
        errors = [part.split("\n\n")[0] for part in re.split(r"^fatal: ", self.output, flags=re.M)[1:]]
        said = [error for error in errors if words and words[0] in squeeze(error)]
        assert len(said) == 1, f"{len(said)} errors say {words[:1]}:\n{self.output}"
        for word in words:
            assert word in self.text, f"{word!r} is not in:\n{self.output}"

    def went_well(self, *words: str) -> None:
        assert self.rc == 0, self.output
        for word in words:
            assert word in self.text, f"{word!r} is not in:\n{self.output}"


def execute(argv: list[str], limit: float = 600, **environment: str) -> Run:
    env = {key: value for key, value in os.environ.items() if not key.startswith("ANSIBLE_")}
    env |= {"ANSIBLE_CONFIG": str(ROOT / "ansible.cfg"), "ANSIBLE_NOCOLOR": "1", "PATH": f"{BIN}:{env['PATH']}"}
    done = subprocess.run(
        argv,
        cwd=ROOT,
        env=env | environment,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        errors="replace",
        timeout=limit,
        check=False,
    )
    return Run(done.returncode, done.stdout)


def playbook(name: str, *arguments: str, inventory: t.Sequence[Path] = (INVENTORY,), **variables: t.Any) -> Run:
    argv = ["ansible-playbook", name, *(word for path in inventory for word in ("-i", str(path))), *arguments]
    if variables:
        argv += ["-e", json.dumps(variables)]
    return execute(argv)


@functools.cache
def lab_inventory() -> dict[str, t.Any]:
    done = execute(["ansible-inventory", "-i", str(INVENTORY), "--list"])
    found: dict[str, t.Any] = json.loads(done.output[done.output.index("{") :])
    return found


class Node:
    """A node of the lab, reached as the playbooks reach it."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.variables: dict[str, t.Any] = lab_inventory()["_meta"]["hostvars"].get(name, {})

    def run(self, script: str) -> Run:
        """Run a shell script as root; its own exit status and output."""
        argv = ["ansible", self.name, "-i", str(INVENTORY), "-b", "-m", "ansible.builtin.shell"]
        # Ansible would take braces in the script for a template.
        script = f"{{% raw %}}{script}{{% endraw %}}"
        done = execute([*argv, "-a", json.dumps({"cmd": script, "executable": "/bin/bash"})])
        head, output = done.output.split(">>\n", 1)
        code = re.search(r"rc=(\d+)", head)
        assert code, done.output
        return Run(int(code.group(1)), output)

    def must(self, script: str) -> str:
        done = self.run(script)
        assert done.rc == 0, f"{self.name}: {script}\n{done.output}"
        return done.output.strip()


@pytest.fixture(scope="session")
def nodes() -> list[Node]:
    names = lab_inventory().get("sparkgate", {}).get("hosts", [])
    assert len(names) >= 2, "lab/inventory has no two nodes; run scripts/demo first"
    return [Node(name) for name in names]


@pytest.fixture(scope="session")
def head(nodes: list[Node]) -> Node:
    return nodes[0]


@pytest.fixture(scope="session")
def worker(nodes: list[Node]) -> Node:
    return nodes[1]


@pytest.fixture(scope="session")
def evidence(head: Node) -> dict[str, t.Any]:
    """The evidence of the engine that serves now."""
    unit = head.must("systemctl cat sparkgate-engine.service")
    name = next(word.split("=", 1)[1] for word in unit.split() if word.startswith("sparkgate.deployment="))
    found: dict[str, t.Any] = json.loads(head.must(f"cat /var/lib/sparkgate/evidence/{name}.json"))
    return found


@pytest.fixture
def scratch(nodes: list[Node]) -> Iterator[str]:
    """A state directory of the test's own on every node."""
    for node in nodes:
        node.must(f"rm -rf {STATE}")
    yield STATE
    for node in nodes:
        node.must(f"rm -rf {STATE}")
