#!/usr/bin/python
# Copyright (c) 2026, The sparkgate.blackwell authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
module: transfer_info
short_description: Tell how far the transfers to this node are
version_added: 0.1.0
author:
  - The sparkgate.blackwell authors (@sparkgate)
description:
  - Reads the progress of the units that M(sparkgate.blackwell.transfer) has started. It changes nothing.
extends_documentation_fragment:
  - sparkgate.blackwell.attributes
attributes:
  check_mode:
    support: full
  diff_mode:
    support: none
  idempotent:
    support: full
options:
  names:
    description: Names of the transfers.
    type: list
    elements: str
    required: true
    aliases: [name]
  journal_lines:
    description: How many of the last lines of a failed unit's journal to return.
    type: int
    default: 10
seealso:
  - module: sparkgate.blackwell.transfer
  - module: sparkgate.blackwell.transfer_wait
"""

EXAMPLES = r"""
---
- name: Ask how far the transfers are
  sparkgate.blackwell.transfer_info:
    names: [weights, image]
  register: progress
"""

RETURN = r"""
transfers:
  description: One entry for each name, in the order of O(names).
  returned: success
  type: list
  elements: dict
  contains:
    name:
      description: Name of the transfer.
      type: str
      sample: weights
    unit:
      description: The systemd unit.
      type: str
      sample: sparkgate-transfer-weights.service
    state:
      description:
        - V(running), V(finished) or V(failed).
        - V(absent) where none was started since the node was booted, or it was cancelled.
      type: str
      sample: running
    unit_state:
      description: What systemd says.
      type: str
      sample: active
    phase:
      description: V(starting), V(waiting), V(verifying), V(copying), V(loading), V(pulling), V(building) or V(done); V(null) where nothing runs.
      type: str
      sample: copying
    bytes_done:
      description: Bytes that have arrived.
      type: int
      sample: 1073741824
    bytes_total:
      description: Bytes that this run has to fetch or verify.
      type: int
      sample: 4987654321
    rate_bytes_s:
      description: Bytes a second over the last ten seconds.
      type: int
      sample: 650000000
    detail:
      description: What it is at, in words, where bytes do not tell; V(null) where nothing runs.
      type: str
      sample: 7 of 31 layers unpacked
    seconds_left:
      description: Seconds until the end at this rate; V(null) where it is not known.
      type: int
      sample: 6
    started:
      description: When it was started, in seconds since 1970.
      type: float
      sample: 1764600000.0
    updated:
      description: When it last said something, in seconds since 1970.
      type: float
      sample: 1764600010.0
    error:
      description: Why it failed; V(null) where it did not.
      type: str
      sample: null
    finished:
      description: Whether everything is in place and verified.
      type: bool
      sample: false
    processes:
      description: The processes in the unit's control group.
      type: list
      elements: int
      sample: [4711, 4712]
    journal:
      description: The last lines of the unit's journal where it failed.
      type: list
      elements: str
      sample: []
"""

import platform
import traceback

from ansible.module_utils.basic import AnsibleModule
from ansible_collections.sparkgate.blackwell.plugins.module_utils import _transfer, _transfer_runner


def read(module: AnsibleModule, name: str) -> _transfer_runner.JSON:
    """Return what is known about one transfer."""
    if not _transfer.NAME_RE.match(name):
        raise _transfer_runner.TransferError(f"{name!r} is no name of a transfer.")
    unit = _transfer.Unit(module, f"sparkgate-transfer-{name}")
    # In this order: the state first, so that the progress of a unit that has ended is its last.
    state = unit.state()
    result = _transfer.describe(name, state, unit.progress(), unit.processes(), [])
    if result["state"] == "failed":
        result["journal"] = unit.journal(module.params["journal_lines"], result["started"] or 0)
    return result


def main() -> None:
    module = AnsibleModule(
        argument_spec={
            "names": {"type": "list", "elements": "str", "required": True, "aliases": ["name"]},
            "journal_lines": {"type": "int", "default": 10},
        },
        supports_check_mode=True,
    )
    try:
        transfers = [read(module, name) for name in module.params["names"]]
    except _transfer_runner.TransferError as exc:
        module.fail_json(msg=str(exc), exception=traceback.format_exc())
    except OSError as exc:
        module.fail_json(msg=f"{platform.node()}: {exc}", exception=traceback.format_exc())
    module.exit_json(changed=False, transfers=transfers)


if __name__ == "__main__":
    main()
