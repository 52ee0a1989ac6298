# Copyright (c) 2026, The sparkgate.blackwell authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

import re
import time
import typing as t

from ansible.errors import AnsibleActionFail
from ansible.plugins.action import ActionBase
from ansible.utils.display import Display

display = Display()

# A poll is a round trip to the node.
POLL_S = 2.0
# Enough to reach back to what came first; forty of them are shown.
LOG_LINES = 300


def judge(engine: dict[str, t.Any], restarts: int) -> tuple[str, str]:
    """Return ready, waiting or failed, and the reason of the last."""
    unit, container = engine["unit"], engine["container"]
    if unit["load_state"] == "not-found":
        return "failed", "the unit does not exist"
    if unit["restarts"] > restarts or unit["sub_state"] == "auto-restart":
        return "failed", f"it ended and systemd started it again (result: {unit['result']})"
    if unit["active_state"] in {"failed", "inactive"}:
        why = f"the unit is {unit['active_state']} (result: {unit['result']})"
        if container and container["error"]:
            why += f", the container engine says: {container['error']}"
        return "failed", why
    if engine["health"] == 200 and unit["active_state"] == "active":
        return "ready", ""
    return "waiting", ""


def cause(log: list[str]) -> str:
    """Return the first exception that the log names; what follows it is mostly its consequence."""
    for line in log:
        found = re.search(r"\b(?:\w+\.)*\w*(?:Error|Exception): .+", line)
        if found:
            return found.group(0)[:500]
    return ""


def failure(host: str, unit: str, reason: str, seconds: float, log: list[str]) -> str:
    """Return what to tell the user."""
    tail = "\n".join(log[-40:]) or "(the log is empty)"
    first = cause(log)
    if first:
        tail = f"(the first exception in it: {first})\n{tail}"
    return (
        f"{host}: {unit} did not come up: after {seconds:.0f} s {reason}. Correct what its log says and run "
        "launch.yml again."
        f" The end of the log:\n{tail}"
    )


class ActionModule(ActionBase):
    """Wait for an engine and show its progress."""

    TRANSFERS_FILES = False
    _supports_check_mode = True
    _supports_async = False

    def run(self, tmp: str | None = None, task_vars: dict[str, t.Any] | None = None) -> dict[str, t.Any]:
        task_vars = task_vars or {}
        result: dict[str, t.Any] = super().run(tmp, task_vars)
        del tmp
        _validation, args = self.validate_argument_spec(
            argument_spec={
                "unit": {"type": "str", "required": True},
                "url": {"type": "str", "required": True},
                "timeout": {"type": "int", "default": 3600},
                "interval": {"type": "float", "default": 10},
                "secret_files": {"type": "list", "elements": "path", "default": [], "no_log": False},
            }
        )
        result.update(changed=False, elapsed=0.0)
        if self._task.check_mode:
            return result
        host = task_vars.get("inventory_hostname", "node")
        started = shown = time.monotonic()
        restarts: int | None = None
        while True:
            engine = self._ask(args, task_vars)
            if restarts is None:
                restarts = engine["unit"]["restarts"]
            seconds = time.monotonic() - started
            state, reason = judge(engine, restarts)
            if state == "failed":
                raise AnsibleActionFail(failure(host, args["unit"], reason, seconds, engine["log"]))
            if state == "ready":
                result["elapsed"] = round(seconds, 1)
                return result
            if seconds > args["timeout"]:
                reason = f"it does not answer at {args['url']}/health"
                raise AnsibleActionFail(failure(host, args["unit"], reason, seconds, engine["log"]))
            if time.monotonic() - shown >= args["interval"]:
                shown = time.monotonic()
                last = engine["log"][-1][:160] if engine["log"] else "no log yet"
                display.display(f"{host}: {args['unit']}: {seconds:.0f} s: {last}")
            time.sleep(min(POLL_S, args["interval"]))

    def _ask(self, args: dict[str, t.Any], task_vars: dict[str, t.Any]) -> dict[str, t.Any]:
        answer = self._execute_module(
            module_name="sparkgate.blackwell.engine_info",
            module_args={
                "unit": args["unit"],
                "url": args["url"],
                "secret_files": args["secret_files"],
                "lines": LOG_LINES,
            },
            task_vars=task_vars,
        )
        if answer.get("failed"):
            raise AnsibleActionFail(answer.get("msg", "The node could not be asked about its engine."))
        return t.cast("dict[str, t.Any]", answer["engine"])
