# Copyright (c) 2026, The sparkgate.blackwell authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

import typing as t
from importlib import import_module

import pytest
from ansible.errors import AnsibleFilterError
from ansible_collections.sparkgate.blackwell.plugins.filter import node_verdicts

FILTERS = ("node_verdicts", "verdict_table", "verdict_accept", "verdict_failures", "inventory_problems")


@pytest.mark.parametrize("name", FILTERS)
def test_each_filter_is_offered_under_the_name_of_its_file(name: str) -> None:
    module = import_module(f"ansible_collections.sparkgate.blackwell.plugins.filter.{name}")
    assert list(module.FilterModule().filters()) == [name]


@pytest.mark.parametrize(
    ("recon", "arguments", "text"),
    [
        (None, {}, "got NoneType"),
        ({"system": {"listeners": []}}, {"ports": ["http"]}, "cannot use its arguments"),
    ],
)
def test_errors(recon: t.Any, arguments: dict[str, t.Any], text: str) -> None:
    with pytest.raises(AnsibleFilterError, match=text):
        node_verdicts.node_verdicts_filter(recon, **arguments)
