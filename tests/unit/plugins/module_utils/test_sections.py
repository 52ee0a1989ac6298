# Copyright (c) 2026, The sparkgate.blackwell authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

import ctypes
import faulthandler
import os
import signal
import subprocess
import time
import typing as t
from pathlib import Path

import pytest
from ansible_collections.sparkgate.blackwell.plugins.module_utils._sections import isolated


def fail(argument: t.Any) -> t.Any:
    raise ValueError(argument)


def sleep(argument: t.Any) -> t.Any:
    time.sleep(60)


def ignore_and_sleep(argument: t.Any) -> t.Any:
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    time.sleep(60)


def crash(argument: t.Any) -> t.Any:
    faulthandler.disable()
    os.kill(os.getpid(), signal.SIGSEGV)


def native_crash(argument: t.Any) -> t.Any:
    faulthandler.disable()
    ctypes.string_at(0)


@pytest.mark.parametrize(
    ("function", "seconds", "expected"),
    [
        (fail, 20, {"code": None, "name": "ValueError: the argument"}),
        (sleep, 0.3, {"code": None, "name": "no answer within 0.3 s"}),
        (ignore_and_sleep, 0.3, {"code": None, "name": "no answer within 0.3 s"}),
        (crash, 20, {"code": 11, "name": "the process died of signal 11 (SIGSEGV)"}),
        (native_crash, 20, {"code": 11, "name": "the process died of signal 11 (SIGSEGV)"}),
        (lambda argument: os._exit(3), 20, {"code": None, "name": "the process ended without an answer"}),
    ],
)
def test_failures(function: t.Callable[[t.Any], t.Any], seconds: float, expected: dict[str, t.Any]) -> None:
    started = time.monotonic()
    assert isolated(function, "the argument", seconds) == (None, expected)
    assert time.monotonic() - started < 10


def test_a_value_that_json_cannot_hold_is_an_error() -> None:
    value, error = isolated(lambda argument: {1, 2}, None, 20)
    assert value is None
    assert error is not None and error["name"].startswith("TypeError")


@pytest.mark.parametrize("value", [None, 0, "text\nover lines", {"key": [1, 2.5, False]}, "ä" * 500000])
def test_values(value: t.Any) -> None:
    assert isolated(lambda argument: argument, value, 20) == (value, None)


def test_it_does_not_wait_for_nothing() -> None:
    started = time.monotonic()
    for number in range(10):
        assert isolated(lambda argument: argument + 1, number, 20) == (number + 1, None)
    # A fixed pause of a tenth of a second for each would be noticed by everybody who uses several sections.
    assert time.monotonic() - started < 0.9


def test_a_grandchild_does_not_outlive_the_section(tmp_path: Path) -> None:
    def start(argument: t.Any) -> t.Any:
        return subprocess.Popen(["sleep", "60"]).pid

    pid, error = isolated(start, None, 20)
    assert error is None
    deadline = time.monotonic() + 5
    while Path(f"/proc/{pid}").exists() and time.monotonic() < deadline:
        if Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] == "Z":
            return
        time.sleep(0.01)
    assert not Path(f"/proc/{pid}").exists()


def test_prints_of_a_library_stay_out_of_the_output(capfd: pytest.CaptureFixture[str]) -> None:
    assert isolated(lambda argument: os.write(1, b"banner\n"), None, 20) == (7, None)
    assert capfd.readouterr().out == ""
