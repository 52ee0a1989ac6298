# Copyright (c) 2026, The sparkgate.blackwell authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

import typing as t

import yaml
from ansible_collections.sparkgate.blackwell.plugins.modules import gpu_info


def test_on_this_machine(run_module: t.Callable[..., dict[str, t.Any]]) -> None:
    result = run_module(gpu_info.main, {"timeout": 30}, check_mode=True)
    assert result["changed"] is False
    # Every key that is documented is there, whatever the machine has.
    assert set(result["gpu"]) == set(yaml.safe_load(gpu_info.RETURN)["gpu"]["contains"])
    assert result["gpu"]["driver_present"] in (True, False)


def test_a_time_that_is_none(run_module: t.Callable[..., dict[str, t.Any]]) -> None:
    result = run_module(gpu_info.main, {"timeout": 0})
    assert result["failed"] is True
    assert result["msg"] == "timeout is 0. Give the probe at least 1 second."
