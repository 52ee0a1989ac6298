#!/usr/bin/python
# Copyright (c) 2026, The sparkgate.blackwell authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
module: transfer_wait
short_description: Wait for the transfers to a node and show their progress
version_added: 0.1.0
author:
  - The sparkgate.blackwell authors (@sparkgate)
description:
  - Asks the node how far the transfers are that M(sparkgate.blackwell.transfer) has started, and shows a line for each
    when something has changed.
  - Returns when all of them are finished. A transfer that was never started counts as finished, because there was
    nothing to copy.
  - Fails when one of them has failed, and says what was seen and how to go on.
  - In check mode it returns at once.
extends_documentation_fragment:
  - sparkgate.blackwell.attributes
attributes:
  action:
    description: Runs on the controller and calls M(sparkgate.blackwell.transfer_info) on the node.
    support: full
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
    default: [weights, image]
  poll:
    description: Seconds between two questions.
    type: float
    default: 3
  timeout:
    description: Seconds after which waiting ends with an error. The transfer itself goes on.
    type: int
    default: 14400
seealso:
  - module: sparkgate.blackwell.transfer
  - module: sparkgate.blackwell.transfer_info
"""

EXAMPLES = r"""
---
- name: Wait for the weights and the image
  sparkgate.blackwell.transfer_wait:
    names: [weights, image]
    timeout: 7200
"""

RETURN = r"""
transfers:
  description:
    - The last that was known about each, as M(sparkgate.blackwell.transfer_info) returns it.
    - Empty in check mode.
  returned: always
  type: list
  elements: dict
  sample: []
elapsed:
  description: Seconds that were waited.
  returned: always
  type: float
  sample: 12.3
"""
