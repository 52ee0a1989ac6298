# Copyright (c) 2026, The sparkgate.blackwell authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

import typing as t

from ansible_collections.sparkgate.blackwell.plugins.modules import recon_info


def test_on_this_machine(run_module: t.Callable[..., dict[str, t.Any]]) -> None:
    result = run_module(recon_info.main, {"paths": ["/no/such/path"], "ports": []}, check_mode=True)
    assert result["changed"] is False
    recon = result["recon"]
    assert set(recon) == {"gpu", "fabric", "system", "python"}
    system = recon["system"]
    assert system["memory"]["total_bytes"] > system["memory"]["available_bytes"] > 0
    assert system["disks"][0]["path"] == "/no/such/path"
    assert system["disks"][0]["free_bytes"] > 0
    assert system["listeners"] == []
    assert recon["gpu"]["driver_present"] in (True, False)
    assert recon["python"][0]["version"].startswith("3.")
