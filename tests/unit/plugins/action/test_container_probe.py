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
from ansible_collections.sparkgate.blackwell.plugins.plugin_utils import _background
from ansible_collections.sparkgate.blackwell.plugins.plugin_utils._bundle import bundle


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
    assert asked["module_args"]["program"] == bundle()
    assert asked["wrap_async"] is wrapped


class Background:
    """A node that runs a module in the background: its answers to async_status, in order, and the container's log."""

    def __init__(self, statuses: list[dict[str, t.Any]], log: str) -> None:
        self.statuses, self.log, self.modes, self.started = statuses, log, list[str](), dict[str, t.Any]()

    def get(self, name: str, task: Task, **_kwargs: t.Any) -> MagicMock:
        assert name == "ansible.legacy.async_status"
        self.modes.append(task.args["mode"])
        assert task.args["jid"] == "j1"
        cleanup = task.args["mode"] == "cleanup"
        return MagicMock(run=lambda task_vars: {} if cleanup else self.statuses.pop(0))

    def execute(self, **kwargs: t.Any) -> dict[str, t.Any]:
        if kwargs["module_name"] == "ansible.legacy.command":
            assert kwargs["module_args"]["argv"][-1] == self.started["module_args"]["name"]
            return {"rc": 0, "stderr": self.log}
        assert kwargs["wrap_async"]
        self.started = kwargs
        return {"ansible_job_id": "j1", "started": 1, "finished": 0, "changed": False}


DONE = {"finished": 1, "ansible_job_id": "j1", "results_file": "/x", "changed": False, "document": {}}
LOG = "a banner\nSPARKGATE-PROGRESS looking at torch\nSPARKGATE-PROGRESS the engine loads: shard 3 of 39\na warning\n"


@pytest.mark.parametrize(
    ("statuses", "result", "modes"),
    [
        ([{"finished": 0}, {"finished": 0}, DONE], {"changed": False, "document": {}}, ["status"] * 3 + ["cleanup"]),
        (
            [{"finished": 1, "failed": True, "msg": "no python3"}],
            {"failed": True, "msg": "no python3"},
            ["status", "cleanup"],
        ),
        ([{"failed": True, "msg": "could not find job"}], {"failed": True, "msg": "could not find job"}, ["status"]),
    ],
)
def test_progress_is_shown_while_it_runs(
    monkeypatch: pytest.MonkeyPatch, statuses: list[dict[str, t.Any]], result: dict[str, t.Any], modes: list[str]
) -> None:
    node, lines = Background(statuses, LOG), list[str]()
    task = Task()
    task.action = "sparkgate.blackwell.container_probe"
    task.args = {"image": "a:1", "show_progress": True}
    task.async_val = 0
    loader = DataLoader()
    action = ActionModule(
        task,
        MagicMock(has_native_async=False),
        MagicMock(check_mode=False),
        loader,
        Templar(loader=loader),
        None,
    )
    monkeypatch.setattr(_background, "action_loader", node)
    monkeypatch.setattr(action, "_execute_module", node.execute)
    monkeypatch.setattr("time.sleep", lambda _seconds: None)
    monkeypatch.setattr("ansible.utils.display.Display.display", lambda _self, line, *_args: lines.append(line))
    assert action.run(task_vars={"inventory_hostname": "n1"}) == result
    assert (node.modes, task.async_val) == (modes, 0)
    assert lines == ["n1: 0 s: the engine loads: shard 3 of 39"]
