# Copyright (c) 2026, The sparkgate.blackwell authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

import secrets
import typing as t

from ansible.module_utils.parsing.convert_bool import boolean
from ansible.plugins.action import ActionBase
from ansible.utils.display import Display
from ansible_collections.sparkgate.blackwell.plugins.plugin_utils import _background
from ansible_collections.sparkgate.blackwell.plugins.plugin_utils._bundle import bundle
from ansible_collections.sparkgate.blackwell.plugins.plugin_utils._container_program import PROGRESS

display = Display()

MODULE = "sparkgate.blackwell.container_probe"
POLL_S = 5.0
# The container must also start and stop, and the module waits a little longer for it than its timeout.
MARGIN_S = 180
DEFAULT_TIMEOUT_S = 600


class ActionModule(ActionBase):
    """Send the program along with the module, which runs it inside the container."""

    TRANSFERS_FILES = False
    _supports_check_mode = True
    _supports_async = True

    def run(self, tmp: str | None = None, task_vars: dict[str, t.Any] | None = None) -> dict[str, t.Any]:
        super().run(tmp, task_vars)
        del tmp
        args = {**self._task.args, "program": bundle()}
        task_vars = task_vars or {}
        shows = boolean(args.get("show_progress") or False)
        if shows and not self._task.check_mode and not self._task.async_val:
            return self._watched(args, task_vars)
        result: dict[str, t.Any] = self._execute_module(
            module_name=MODULE,
            module_args=args,
            task_vars=task_vars,
            wrap_async=bool(self._task.async_val) and not self._connection.has_native_async,
        )
        return result

    def _watched(self, args: dict[str, t.Any], task_vars: dict[str, t.Any]) -> dict[str, t.Any]:
        """Run it in the background and show what the container says of itself."""
        name = args.get("name") or f"sparkgate-probe-{secrets.token_hex(8)}"
        host = task_vars.get("inventory_hostname", "node")
        shown = ""

        def watch(seconds: float) -> None:
            nonlocal shown
            answer = self._execute_module(
                module_name="ansible.legacy.command",
                module_args={"argv": ["docker", "logs", "--tail", "50", name]},
                task_vars=task_vars,
            )
            # Before the container starts and when it is gone the command fails, and there is nothing to show.
            said = [
                line.partition(" ")[2]
                for line in str(answer.get("stderr", "")).splitlines()
                if line.startswith(PROGRESS)
            ]
            if said and said[-1] != shown:
                shown = said[-1]
                display.display(f"{host}: {seconds:.0f} s: {shown}")

        limit = int(args.get("timeout") or DEFAULT_TIMEOUT_S) + MARGIN_S
        return _background.execute(self, MODULE, {**args, "name": name}, task_vars, limit, watch, POLL_S)
