# Copyright (c) 2026, The sparkgate.blackwell authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

import time
import typing as t

from ansible.errors import AnsibleActionFail
from ansible.plugins.action import ActionBase
from ansible.utils.display import Display

display = Display()

# A line that only its numbers change is shown again after this time.
REPEAT_S = 10.0


def amount(count: float) -> str:
    """Return a number of bytes for people."""
    return f"{count / 1024**3:.1f} GiB" if count >= 1024**3 / 10 else f"{count / 1024**2:.1f} MiB"


def duration(seconds: int) -> str:
    """Return a time for people."""
    if seconds < 90:
        return f"{seconds} s"
    return f"{round(seconds / 60)} min" if seconds < 5400 else f"{seconds / 3600:.1f} h"


# What is not a copy from the head.
TITLES = {"hub": "the download", "pull": "the pull of the image", "build": "the build of the image"}


def title(name: str) -> str:
    """Return what a transfer is called in an error."""
    return TITLES.get(name, f"the transfer of {name}")


def progress_line(host: str, transfer: dict[str, t.Any]) -> str:
    """Return the line that shows how far a transfer is."""
    if transfer["state"] == "absent":
        return f"{host}: {transfer['name']}: nothing to copy"
    if transfer["state"] == "finished":
        size = f", {amount(transfer['bytes_total'])}" if transfer["bytes_total"] else ""
        return f"{host}: {transfer['name']}: complete{size}"
    parts = [f"{host}: {transfer['name']}: {transfer['phase'] or 'starting'}"]
    if transfer["bytes_total"]:
        parts.append(f"{amount(transfer['bytes_done'])} of {amount(transfer['bytes_total'])}")
    elif transfer["bytes_done"]:
        parts.append(f"{amount(transfer['bytes_done'])} so far")
    if transfer["rate_bytes_s"]:
        parts.append(f"{transfer['rate_bytes_s'] / 1024**2:.0f} MiB/s")
    if transfer["seconds_left"] is not None:
        parts.append(f"{duration(transfer['seconds_left'])} left")
    if transfer["detail"]:
        parts.append(transfer["detail"])
    return ", ".join(parts)


def failure(host: str, transfer: dict[str, t.Any]) -> str:
    """Return what to tell the user about a transfer that failed."""
    text = f"{host}: {title(transfer['name'])} has failed. {transfer['error']}"
    journal = [line for line in transfer["journal"] if line and line not in (transfer["error"] or "")]
    if journal:
        text += f" Last lines of {transfer['unit']}: {' | '.join(journal).rstrip('.')}."
    return f"{text} What is complete on {host} is kept: run it again, and it goes on from there."


class ActionModule(ActionBase):
    """Wait for the transfers to a node and show their progress."""

    TRANSFERS_FILES = False
    _supports_check_mode = True
    _supports_async = False

    def run(self, tmp: str | None = None, task_vars: dict[str, t.Any] | None = None) -> dict[str, t.Any]:
        task_vars = task_vars or {}
        result: dict[str, t.Any] = super().run(tmp, task_vars)
        del tmp
        _validation, args = self.validate_argument_spec(
            argument_spec={
                "names": {"type": "list", "elements": "str", "default": ["weights", "image"]},
                "poll": {"type": "float", "default": 3},
                "timeout": {"type": "int", "default": 14400},
            }
        )
        result.update(changed=False, transfers=[], elapsed=0.0)
        if self._task.check_mode:
            return result
        host = task_vars.get("inventory_hostname", "node")
        started = time.monotonic()
        result["transfers"] = self._wait(host, args, task_vars, started)
        result["elapsed"] = round(time.monotonic() - started, 1)
        return result

    def _wait(
        self, host: str, args: dict[str, t.Any], task_vars: dict[str, t.Any], started: float
    ) -> list[dict[str, t.Any]]:
        shown: dict[str, tuple[str, str, float]] = {}
        were_running: set[str] = set()
        while True:
            transfers = self._ask(args["names"], task_vars)
            now = time.monotonic()
            for transfer in transfers:
                self._show(host, transfer, shown, now)
                if transfer["state"] == "failed":
                    raise AnsibleActionFail(failure(host, transfer))
                if transfer["state"] == "absent" and transfer["name"] in were_running:
                    raise AnsibleActionFail(
                        f"{host}: {title(transfer['name'])} was cancelled or the node restarted while it ran."
                        " What is complete is kept: run it again, and it goes on from there."
                    )
            running = [transfer for transfer in transfers if transfer["state"] == "running"]
            were_running.update(transfer["name"] for transfer in running)
            if not running:
                return transfers
            if now - started > args["timeout"]:
                lines = "; ".join(progress_line(host, transfer) for transfer in running)
                raise AnsibleActionFail(
                    f"After {args['timeout']} s it still runs ({lines}). It goes on without being watched:"
                    " run it again to go on waiting, or raise the timeout."
                )
            time.sleep(args["poll"])

    def _ask(self, names: list[str], task_vars: dict[str, t.Any]) -> list[dict[str, t.Any]]:
        answer = self._execute_module(
            module_name="sparkgate.blackwell.transfer_info", module_args={"names": list(names)}, task_vars=task_vars
        )
        if answer.get("failed"):
            raise AnsibleActionFail(answer.get("msg", "The node could not be asked about its transfers."))
        return t.cast("list[dict[str, t.Any]]", answer["transfers"])

    @staticmethod
    def _show(host: str, transfer: dict[str, t.Any], shown: dict[str, tuple[str, str, float]], now: float) -> None:
        """Show a line where the phase has changed, or the numbers have and the last line is old."""
        line = progress_line(host, transfer)
        phase = f"{transfer['state']} {transfer['phase']}"
        old_line, old_phase, old_time = shown.get(transfer["name"], ("", "", 0.0))
        if phase != old_phase or (line != old_line and now - old_time >= REPEAT_S):
            display.display(line)
            shown[transfer["name"]] = (line, phase, now)
