# Copyright (c) 2026, The sparkgate.blackwell authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

import typing as t
from unittest.mock import MagicMock

import pytest
from ansible.errors import AnsibleActionFail
from ansible.parsing.dataloader import DataLoader
from ansible.playbook.task import Task
from ansible.template import Templar
from ansible_collections.sparkgate.blackwell.plugins.action import engine_wait


def engine(active: str = "active", sub: str = "running", health: int | None = None, **more: t.Any) -> dict[str, t.Any]:
    unit = {"load_state": "loaded", "active_state": active, "sub_state": sub, "result": "success", "restarts": 0}
    unit.update({key: more.pop(key) for key in list(more) if key in unit})
    return {"unit": unit, "container": {"error": ""}, "health": health, "log": ["loading", "half"], **more}


JUDGEMENTS = [
    (engine(health=200), "ready", ""),
    (engine(), "waiting", ""),
    (engine(health=503), "waiting", ""),
    (engine("activating", "start-pre", health=200), "waiting", ""),
    (engine(restarts=1), "failed", "systemd started it again"),
    (engine("activating", "auto-restart", result="exit-code"), "failed", "result: exit-code"),
    (engine("failed", "failed", container={"error": "no GPU"}), "failed", "the container engine says: no GPU"),
    (engine("inactive", "dead", container=False), "failed", "the unit is inactive"),
    (engine(load_state="not-found"), "failed", "the unit does not exist"),
]


@pytest.mark.parametrize(("document", "state", "reason"), JUDGEMENTS)
def test_judge(document: dict[str, t.Any], state: str, reason: str) -> None:
    got = engine_wait.judge(document, 0)
    assert got[0] == state
    assert reason in got[1]


def run(monkeypatch: pytest.MonkeyPatch, answers: list[dict[str, t.Any]], **args: t.Any) -> tuple[t.Any, list[str]]:
    shown: list[str] = []
    clock = iter(range(0, 10_000, 5))
    monkeypatch.setattr(engine_wait.time, "sleep", lambda _seconds: None)
    monkeypatch.setattr(engine_wait.time, "monotonic", lambda: next(clock))
    monkeypatch.setattr(engine_wait.display, "display", shown.append)
    task = Task()
    task.args = {"unit": "sparkgate-engine", "url": "http://192.0.2.11:8000", **args}
    action = engine_wait.ActionModule(task, MagicMock(), MagicMock(), DataLoader(), Templar(loader=DataLoader()), None)
    replies = iter([{"engine": answer} for answer in answers])
    monkeypatch.setattr(action, "_execute_module", lambda **_more: next(replies))
    return action.run(task_vars={"inventory_hostname": "spark-1"}), shown


def test_progress_until_it_serves(monkeypatch: pytest.MonkeyPatch) -> None:
    result, shown = run(monkeypatch, [engine(), engine(), engine(), engine(health=200)])
    assert result["changed"] is False
    assert result["elapsed"] > 0
    assert shown
    assert all(line.startswith("spark-1: sparkgate-engine: ") and line.endswith(" s: half") for line in shown)


FAILURES: list[tuple[list[dict[str, t.Any]], dict[str, t.Any], str]] = [
    ([engine(), engine("failed", "failed")], {}, "spark-1: sparkgate-engine did not come up"),
    ([engine(), engine("failed", "failed")], {}, "The end of the log:\nloading\nhalf"),
    ([engine(), engine(restarts=1)], {}, "systemd started it again"),
    ([engine()] * 20, {"timeout": 60}, "it does not answer at http://192.0.2.11:8000/health"),
]


@pytest.mark.parametrize(("answers", "args", "text"), FAILURES)
def test_it_ends_early_and_says_why(
    monkeypatch: pytest.MonkeyPatch, answers: list[dict[str, t.Any]], args: dict[str, t.Any], text: str
) -> None:
    with pytest.raises(AnsibleActionFail) as caught:
        run(monkeypatch, answers, **args)
    assert text in str(caught.value)


CAUSES = [
    (["loading", "half"], ""),
    (
        [
            "(pid=1) ERROR x: ray.exceptions.RayTaskError(AttributeError): y",
            "AttributeError: no numa",
            "RuntimeError: see above",
        ],
        "AttributeError: no numa",
    ),
    (["torch.OutOfMemoryError: 1 GiB"], "torch.OutOfMemoryError: 1 GiB"),
    (["0 errors: none"], ""),
]


@pytest.mark.parametrize(("log", "first"), CAUSES)
def test_cause(log: list[str], first: str) -> None:
    assert engine_wait.cause(log) == first
