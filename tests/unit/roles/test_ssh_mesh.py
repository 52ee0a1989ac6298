# Copyright (c) 2026, The sparkgate.blackwell authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

import base64
import pathlib

import jinja2
import pytest

TEMPLATE = pathlib.Path(__file__).parents[3] / "roles" / "ssh_mesh" / "templates" / "known_hosts.j2"
CASES = [
    (22, "192.0.2.10 ssh-ed25519 AAAA\n192.0.2.10 ssh-rsa BBBB\n"),
    ("22", "192.0.2.10 ssh-ed25519 AAAA\n192.0.2.10 ssh-rsa BBBB\n"),
    (2222, "[192.0.2.10]:2222 ssh-ed25519 AAAA\n[192.0.2.10]:2222 ssh-rsa BBBB\n"),
]


@pytest.mark.parametrize(("port", "expected"), CASES)
def test_known_hosts(port: int | str, expected: str) -> None:
    environment = jinja2.Environment(trim_blocks=True, keep_trailing_newline=True, undefined=jinja2.StrictUndefined)
    environment.filters["b64decode"] = lambda text: base64.b64decode(text).decode()
    keys = [base64.b64encode(text).decode() for text in (b"ssh-ed25519 AAAA root@head\n", b"ssh-rsa BBBB\n")]
    head = {
        "sparkgate_fabric_address": "192.0.2.10",
        "__ssh_mesh_host_keys": {"results": [{"content": key} for key in keys]},
    }
    text = environment.from_string(TEMPLATE.read_text(encoding="utf-8")).render(
        hostvars={"head": head}, sparkgate_head="head", ssh_mesh_port=port
    )
    assert text == expected
