# Copyright (c) 2026, The sparkgate.blackwell authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

import typing as t

import pytest
from ansible_collections.sparkgate.blackwell.plugins.module_utils import _transfer

UNIT = "sparkgate-transfer-weights.service"
CGROUPS = {
    10: f"12:pids:/docker/abc/system.slice/{UNIT}\n1:name=systemd:/docker/abc/system.slice/{UNIT}\n",
    11: f"0::/system.slice/{UNIT}\n",
    12: f"0::/system.slice/{UNIT}/sub\n",
    13: "0::/system.slice/sparkgate-transfer-weights2.service\n",
    14: "0::/init.scope\n",
}


def test_unit_pids() -> None:
    assert _transfer.unit_pids(UNIT, CGROUPS) == [10, 11, 12]


def test_program_source_is_a_program_of_its_own() -> None:
    source = _transfer.program_source()
    compile(source, "program", "exec")
    assert "ansible" not in source.replace("The sparkgate.blackwell authors", "").lower()


def test_systemd_run_argv() -> None:
    argv = _transfer.systemd_run_argv(UNIT, "Copy", "/usr/bin/python3", "/state/program.py", "/run/job.json")
    assert argv[:2] == ["systemd-run", f"--unit={UNIT}"]
    assert argv[argv.index("--") + 1 :] == ["/usr/bin/python3", "-I", "/state/program.py", "/run/job.json"]
    # Without a scope or --collect: it outlives the session, and a failed unit can be asked for its reason.
    assert not {"--scope", "--collect", "--wait"} & set(argv)


COPYING = {"phase": "copying", "bytes_done": 100, "bytes_total": 300, "rate_bytes_s": 50, "finished": False}
DONE = {**COPYING, "phase": "done", "bytes_done": 300, "finished": True}
BROKEN = {**COPYING, "error": "The disk is full."}
DESCRIBE_CASES: list[tuple[str, dict[str, t.Any] | None, dict[str, t.Any]]] = [
    ("inactive", None, {"state": "absent", "phase": None, "error": None, "finished": False}),
    ("active", None, {"state": "running", "phase": None, "bytes_total": 0, "seconds_left": None}),
    ("active", COPYING, {"state": "running", "phase": "copying", "rate_bytes_s": 50, "seconds_left": 4}),
    ("active", {**COPYING, "rate_bytes_s": 0}, {"state": "running", "seconds_left": None}),
    ("deactivating", DONE, {"state": "running"}),
    ("inactive", DONE, {"state": "finished", "finished": True, "rate_bytes_s": 0, "seconds_left": None}),
    ("failed", BROKEN, {"state": "failed", "error": "The disk is full."}),
    ("failed", None, {"state": "failed", "error": "It was stopped or killed before it was complete."}),
    ("inactive", COPYING, {"state": "failed", "error": "It was stopped or killed before it was complete."}),
]


@pytest.mark.parametrize(("unit_state", "progress", "expected"), DESCRIBE_CASES)
def test_describe(unit_state: str, progress: dict[str, t.Any] | None, expected: dict[str, t.Any]) -> None:
    found = _transfer.describe("weights", unit_state, progress, [7], [])
    assert {key: found[key] for key in expected} == expected
    assert found["unit"] == UNIT
    assert found["processes"] == [7]
