# Copyright (c) 2026, The sparkgate.blackwell authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

import typing as t
from unittest import mock

import pytest
from ansible.errors import AnsibleActionFail
from ansible.parsing.dataloader import DataLoader
from ansible.playbook.task import Task
from ansible.template import Templar
from ansible_collections.sparkgate.blackwell.plugins.action import transfer_wait

GIB = 1024**3


def known(state: str, **changes: t.Any) -> dict[str, t.Any]:
    base = {
        "name": "weights",
        "unit": "sparkgate-transfer-weights.service",
        "state": state,
        "phase": "copying",
        "bytes_done": GIB,
        "bytes_total": 5 * GIB,
        "rate_bytes_s": 640 * 1024**2,
        "seconds_left": 6,
        "detail": None,
        "error": None,
        "journal": [],
    }
    return {**base, **changes}


LINES = [
    (known("running"), "n2: weights: copying, 1.0 GiB of 5.0 GiB, 640 MiB/s, 6 s left"),
    (known("running", seconds_left=600), "n2: weights: copying, 1.0 GiB of 5.0 GiB, 640 MiB/s, 10 min left"),
    (
        known("running", phase=None, bytes_done=0, bytes_total=0, rate_bytes_s=0, seconds_left=None),
        "n2: weights: starting",
    ),
    (
        known("running", phase="pulling", bytes_total=0, seconds_left=None, detail="3 of 9 layers unpacked"),
        "n2: weights: pulling, 1.0 GiB so far, 640 MiB/s, 3 of 9 layers unpacked",
    ),
    (known("finished", bytes_total=0), "n2: weights: complete"),
    (known("finished"), "n2: weights: complete, 5.0 GiB"),
    (known("absent"), "n2: weights: nothing to copy"),
]


@pytest.mark.parametrize(("transfer", "line"), LINES)
def test_progress_line(transfer: dict[str, t.Any], line: str) -> None:
    assert transfer_wait.progress_line("n2", transfer) == line


def make_action(args: dict[str, t.Any], answers: list[dict[str, t.Any]], check_mode: bool = False) -> t.Any:
    loader = DataLoader()
    task = Task()
    task.action = "sparkgate.blackwell.transfer_wait"
    task.args = args
    task.check_mode = check_mode
    task.async_val = 0
    action = transfer_wait.ActionModule(
        task=task,
        connection=mock.MagicMock(),
        play_context=mock.MagicMock(),
        loader=loader,
        templar=Templar(loader=loader),
        shared_loader_obj=None,
    )
    action._execute_module = mock.MagicMock(side_effect=answers)
    return action


def run(
    monkeypatch: pytest.MonkeyPatch, states: list[dict[str, t.Any]], check_mode: bool = False, timeout: int = 60
) -> tuple[dict[str, t.Any], list[str]]:
    lines: list[str] = []
    monkeypatch.setattr(transfer_wait.display, "display", lines.append)
    monkeypatch.setattr("time.sleep", lambda _seconds: None)
    answers = [{"changed": False, "transfers": [state]} for state in states]
    action = make_action({"names": ["weights"], "poll": 0.0, "timeout": timeout}, answers, check_mode)
    try:
        return action.run(task_vars={"inventory_hostname": "n2"}), lines
    finally:
        assert action._execute_module.call_count == len(answers)


def test_waits_until_it_is_finished_and_shows_each_phase_once(monkeypatch: pytest.MonkeyPatch) -> None:
    states = [known("running", bytes_done=number) for number in range(3)]
    result, lines = run(monkeypatch, [*states, known("running", phase="verifying"), known("finished", phase="done")])
    assert not result["changed"]
    assert result["transfers"][0]["state"] == "finished"
    assert [line.split(",")[0] for line in lines] == [
        "n2: weights: copying",
        "n2: weights: verifying",
        "n2: weights: complete",
    ]


def test_returns_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    result, lines = run(monkeypatch, [], check_mode=True)
    assert (result["transfers"], lines) == ([], [])
    result, lines = run(monkeypatch, [known("absent")])
    assert lines == ["n2: weights: nothing to copy"]


FAILURES = [
    (
        [known("running"), known("failed", error="The disk is full.", journal=["The disk is full.", "No space left"])],
        60,
        "n2: the transfer of weights has failed. The disk is full. Last lines of sparkgate-transfer-weights.service:"
        " No space left. What is complete on n2 is kept: run it again, and it goes on from there.",
    ),
    ([known("running"), known("absent")], 60, "was cancelled or the node restarted while it ran"),
    ([known("running")], -1, "it still runs (n2: weights: copying, 1.0 GiB of 5.0 GiB"),
]


@pytest.mark.parametrize(("states", "timeout", "message"), FAILURES)
def test_failures(monkeypatch: pytest.MonkeyPatch, states: list[dict[str, t.Any]], timeout: int, message: str) -> None:
    with pytest.raises(AnsibleActionFail) as caught:
        run(monkeypatch, states, timeout=timeout)
    assert message in str(caught.value)


def test_passes_the_modules_error_on(monkeypatch: pytest.MonkeyPatch) -> None:
    action = make_action({"names": ["weights"]}, [{"failed": True, "msg": "systemd on n2 cannot be asked"}])
    with pytest.raises(AnsibleActionFail, match="systemd on n2 cannot be asked"):
        action.run(task_vars={})
