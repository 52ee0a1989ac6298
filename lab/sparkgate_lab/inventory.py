# Copyright (c) 2026, The sparkgate.blackwell authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The inventory that the playbooks get: the same variables that an owner of two Sparks fills in."""

from __future__ import annotations

import os

import yaml

from . import keys
from . import settings as s
from .nodes import Node

HOSTS = s.INVENTORY
NOTE = "# Written by lab/up, removed by lab/down.\n"


def write(nodes: list[Node], base_image: str, engine: str) -> bool:
    """Whether anything changed."""
    known = "".join(f"{node.management} {(keys.KEYS / f'host_{node.name}.pub').read_text()}" for node in nodes)
    keys.write(keys.KNOWN_HOSTS, known.encode(), 0o644)
    ssh = f"-o UserKnownHostsFile={keys.KNOWN_HOSTS} -o StrictHostKeyChecking=yes -o IdentitiesOnly=yes"
    hosts = {node.name: {"ansible_host": node.management, "sparkgate_fabric_address": node.fabric} for node in nodes}
    shared = {
        "ansible_user": s.USER,
        "ansible_ssh_private_key_file": str(keys.SSH_KEY),
        "ansible_ssh_common_args": ssh,
        "sparkgate_base_image": base_image,
        "sparkgate_lab_engine": engine,
    }
    text = NOTE + "---\n" + yaml.safe_dump({"sparkgate": {"hosts": hosts, "vars": shared}}, sort_keys=False, width=200)
    if HOSTS.exists() and HOSTS.read_text() == text:
        return False
    HOSTS.write_text(text)
    os.chown(HOSTS, *s.invoking_user())
    return True
