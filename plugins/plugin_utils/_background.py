# Copyright (c) 2026, The sparkgate.blackwell authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

# Note that this plugin util is **PRIVATE** to the collection. It can have breaking changes at any time.
# Do not use this from other collections or standalone plugins/modules!

from __future__ import annotations

import time
import typing as t

from ansible.errors import AnsibleActionFail
from ansible.playbook.task import Task
from ansible.plugins.action import ActionBase
from ansible.plugins.loader import action_loader

Result = dict[str, t.Any]


def execute(
    action: ActionBase,
    module: str,
    arguments: Result,
    task_vars: Result,
    seconds: int,
    watch: t.Callable[[float], None],
    poll: float,
) -> Result:
    """Run a module in the background of the node, as a task with async does, and call watch with the seconds so far.

    A break of the connection does the module no harm. One that has no end within the seconds is a failure.
    """
    task = action._task
    started = time.monotonic()
    task.async_val = seconds
    try:
        answer: Result = action._execute_module(
            module_name=module, module_args=arguments, task_vars=task_vars, wrap_async=True
        )
    finally:
        task.async_val = 0  # else the caller of this action would wait once more
    job = answer.get("ansible_job_id")
    if job is None:
        return answer
    while not answer.get("finished"):
        if time.monotonic() - started > seconds:
            raise AnsibleActionFail(f"{module} did not end within {seconds} s.")
        time.sleep(poll)
        watch(time.monotonic() - started)
        answer = _status(action, task_vars, job, "status")
        if answer.get("failed") and "finished" not in answer:
            return answer
    _status(action, task_vars, job, "cleanup")
    # What the bookkeeping of the background run has added.
    return {
        key: value
        for key, value in answer.items()
        if key
        not in (
            "ansible_job_id",
            "started",
            "finished",
            "results_file",
            "stdout",
            "stderr",
            "stdout_lines",
            "stderr_lines",
        )
    }


def _status(action: ActionBase, task_vars: Result, job: str, mode: str) -> Result:
    task = Task.load({"action": "async_status", "args": {"jid": job, "mode": mode}})
    task.environment = action._task.environment
    task.delegate_to = action._task.delegate_to
    handler = action_loader.get(
        "ansible.legacy.async_status",
        task=task,
        connection=action._connection,
        play_context=action._play_context,
        loader=action._loader,
        templar=action._templar,
        shared_loader_obj=None,
    )
    return t.cast(Result, handler.run(task_vars=task_vars))
