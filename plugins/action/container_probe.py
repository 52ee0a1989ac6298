# Copyright (c) 2026, The sparkgate.blackwell authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

import inspect
import typing as t

from ansible.plugins.action import ActionBase
from ansible_collections.sparkgate.blackwell.plugins.plugin_utils import _container_program


class ActionModule(ActionBase):
    """Send the program along with the module, which runs it inside the container."""

    TRANSFERS_FILES = False
    _supports_check_mode = True
    _supports_async = True

    def run(self, tmp: str | None = None, task_vars: dict[str, t.Any] | None = None) -> dict[str, t.Any]:
        super().run(tmp, task_vars)
        del tmp
        result: dict[str, t.Any] = self._execute_module(
            module_name="sparkgate.blackwell.container_probe",
            module_args={**self._task.args, "program": inspect.getsource(_container_program)},
            task_vars=task_vars,
            wrap_async=bool(self._task.async_val) and not self._connection.has_native_async,
        )
        return result
