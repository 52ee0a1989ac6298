# Copyright (c) 2026, The sparkgate.blackwell authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

import typing as t

import pytest
from ansible_collections.sparkgate.blackwell.plugins.filter.interface_of import interface_of

FACTS: dict[str, t.Any] = {
    "interfaces": ["lo", "eth0", "enp1s0f0np0", "br-lan"],
    "lo": {"device": "lo", "ipv4": {"address": "127.0.0.1"}},
    "eth0": {"device": "eth0", "ipv4": {"address": "192.0.2.4"}},
    "enp1s0f0np0": {
        "device": "enp1s0f0np0",
        "ipv4": {"address": "198.51.100.4"},
        "ipv4_secondaries": [{"address": "198.51.100.5"}],
    },
    "br_lan": {"device": "br-lan", "ipv4": {"address": "203.0.113.4"}},
}


@pytest.mark.parametrize(
    ("facts", "address", "expected"),
    [
        (FACTS, "198.51.100.4", "enp1s0f0np0"),
        (FACTS, "198.51.100.5", "enp1s0f0np0"),
        (FACTS, "203.0.113.4", "br-lan"),
        (FACTS, "203.0.113.9", None),
        ({}, "203.0.113.4", None),
        ({"interfaces": ["wlan0"]}, "203.0.113.4", None),
    ],
)
def test_interface_of(facts: dict[str, t.Any], address: str, expected: str | None) -> None:
    assert interface_of(facts, address) == expected
