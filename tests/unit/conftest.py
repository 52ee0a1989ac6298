# Copyright (c) 2026, The sparkgate.blackwell authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The collection is importable through the link in collections/ (pyproject.toml: pythonpath)."""

from __future__ import annotations

import json
import typing as t

import pytest


@pytest.fixture
def run_module(capsys: pytest.CaptureFixture[str]) -> t.Callable[..., dict[str, t.Any]]:
    """Run a module's main() with arguments; returns the JSON that it prints, also where it failed."""
    from ansible.module_utils.testing import patch_module_args

    def run(main: t.Callable[[], None], arguments: dict[str, t.Any], check_mode: bool = False) -> dict[str, t.Any]:
        with patch_module_args({**arguments, "_ansible_check_mode": check_mode}), pytest.raises(SystemExit):
            main()
        lines = capsys.readouterr().out.strip().splitlines()
        result = json.loads(lines[-1])
        assert isinstance(result, dict)
        return result

    return run
