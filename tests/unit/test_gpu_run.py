# Copyright (c) 2026, The sparkgate.blackwell authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

SCRIPT = Path(__file__).resolve().parents[1] / "gpu" / "run"


def test_it_prints_the_document_and_says_whether_there_is_a_gpu(tmp_path: Path) -> None:
    # Without the packages of the tests, and away from the checkout.
    argv = [sys.executable, "-S", "-E", str(SCRIPT)]
    done = subprocess.run(argv, cwd=tmp_path, capture_output=True, text=True, timeout=300, check=False)
    document, end = json.JSONDecoder().raw_decode(done.stdout)
    assert set(document) == {"gpu", "compat", "torch"}
    if not document["gpu"]["driver_present"]:
        assert "no GPU: this machine has no NVIDIA driver" in done.stdout[end:]
        assert done.returncode == 0
    else:
        launched = document["gpu"]["kernel_launch"]
        assert done.returncode in ((0, 1) if launched and launched["ok"] else (1,))
