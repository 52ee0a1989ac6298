# Copyright (c) 2026, The sparkgate.blackwell authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

import typing as t
from unittest.mock import MagicMock

import pytest
from ansible.parsing.dataloader import DataLoader
from ansible.playbook.task import Task
from ansible.template import Templar
from ansible_collections.sparkgate.blackwell.plugins.action.container_probe import ActionModule


@pytest.mark.parametrize(("seconds", "wrapped"), [(0, False), (30, True)])
def test_the_program_goes_along(monkeypatch: pytest.MonkeyPatch, seconds: int, wrapped: bool) -> None:
    task = Task()
    task.action = "sparkgate.blackwell.container_probe"
    task.args = {"image": "a:1"}
    task.async_val = seconds
    loader = DataLoader()
    connection = MagicMock(has_native_async=False)
    action = ActionModule(task, connection, MagicMock(check_mode=False), loader, Templar(loader=loader), None)
    asked: dict[str, t.Any] = {}
    monkeypatch.setattr(action, "_execute_module", lambda **kwargs: asked.update(kwargs) or {"changed": False})
    assert action.run(task_vars={}) == {"changed": False}
    assert asked["module_name"] == "sparkgate.blackwell.container_probe"
    assert asked["module_args"]["image"] == "a:1"
    assert "def run(request" in asked["module_args"]["program"]
    assert asked["wrap_async"] is wrapped
