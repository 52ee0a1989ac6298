# Copyright (c) 2026, The sparkgate.blackwell authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

# Note that this module util is **PRIVATE** to the collection. It can have breaking changes at any time.
# Do not use this from other collections or standalone plugins/modules!

"""Sections of a probe that cannot harm each other: each runs in a process of its own, and has a deadline."""

from __future__ import annotations

import contextlib
import json
import os
import select
import signal
import time
import typing as t

# A child that gave its answer gets this long to end by itself.
_END_SECONDS = 0.1
# A process that hangs in the kernel cannot be waited for, so waiting for a killed one has an end too.
_KILL_SECONDS = 3.0
_ANSWER_MAXIMUM_BYTES = 1 << 24


def isolated(
    function: t.Callable[[t.Any], t.Any], argument: t.Any, seconds: float
) -> tuple[t.Any, dict[str, t.Any] | None]:
    """Run the function in a child; return its value, and an error with code and name, of which one is None.

    The value must be one that JSON can hold.
    """
    reader, writer = os.pipe()
    child = os.fork()
    if child == 0:
        _answer(function, argument, seconds, reader, writer)
    os.close(writer)
    data = b""
    end = time.monotonic() + seconds
    # The answer is one line. Its end counts, not the end of the pipe, which a grandchild may hold open.
    while not data.endswith(b"\n") and len(data) < _ANSWER_MAXIMUM_BYTES:
        ready, _unused, _unused = select.select([reader], [], [], max(0.0, end - time.monotonic()))
        if not ready:
            break
        chunk = os.read(reader, 65536)
        if not chunk:
            break
        data += chunk
    os.close(reader)
    late = not data and time.monotonic() >= end
    status = _reap(child, 0.0 if late else _END_SECONDS)
    if data.endswith(b"\n"):
        answer = json.loads(data)
        return (answer["value"], None) if "value" in answer else (None, {"code": None, "name": answer["error"]})
    if late:
        return None, {"code": None, "name": f"no answer within {round(seconds, 1):g} s"}
    if status is not None and os.WIFSIGNALED(status):
        number = os.WTERMSIG(status)
        return None, {"code": number, "name": f"the process died of signal {number} ({_signal_name(number)})"}
    return None, {"code": None, "name": "the process ended without an answer"}


def _answer(
    function: t.Callable[[t.Any], t.Any], argument: t.Any, seconds: float, reader: int, writer: int
) -> t.NoReturn:
    """The child's part. It never returns, so that nothing of the parent's program runs twice."""
    try:
        os.setsid()
        os.close(reader)
        # Should the parent be killed, nobody else would end this process.
        signal.signal(signal.SIGALRM, signal.SIG_DFL)
        signal.setitimer(signal.ITIMER_REAL, seconds + _KILL_SECONDS)
        # What a library prints goes where it does no harm.
        os.dup2(2, 1)
        line = json.dumps({"value": function(argument)})
    except BaseException as error:
        line = json.dumps({"error": f"{type(error).__name__}: {error}"[:2000]})
    try:
        _write(writer, line.encode() + b"\n")
    finally:
        os._exit(0)


def _write(descriptor: int, data: bytes) -> None:
    while data:
        data = data[os.write(descriptor, data) :]


def _signal_name(number: int) -> str:
    try:
        return signal.Signals(number).name
    except ValueError:
        return "unnamed"


def _reap(child: int, seconds: float) -> int | None:
    """The child's exit status, after ending its whole group. It gets some time to end by itself."""
    started = time.monotonic()
    pause = 0.001
    while True:
        done, status = os.waitpid(child, os.WNOHANG)
        passed = time.monotonic() - started
        if done or passed >= seconds:
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.killpg(child, signal.SIGKILL)
        if done:
            return status
        if passed >= seconds:
            # Before setsid() it has no group of its own yet.
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.kill(child, signal.SIGKILL)
        if passed >= seconds + _KILL_SECONDS:
            return None
        time.sleep(pause)
        pause = min(0.05, pause * 1.5)
