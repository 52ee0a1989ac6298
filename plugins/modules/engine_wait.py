#!/usr/bin/python
# Copyright (c) 2026, The sparkgate.blackwell authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
module: engine_wait
short_description: Wait until an engine serves, and show how far it is
version_added: 0.1.0
description:
  - Waits until C(/health) of an endpoint answers, and meanwhile shows the time that has passed and the last line of
    the engine's log.
  - Ends at once, with the end of the log, where the unit fails or is started again.
author:
  - The sparkgate.blackwell authors (@sparkgate)
extends_documentation_fragment:
  - sparkgate.blackwell.attributes
  - sparkgate.blackwell.attributes.info_module
options:
  unit:
    description: Name of the unit.
    type: str
    required: true
  url:
    description: The endpoint, without a path.
    type: str
    required: true
  timeout:
    description: Seconds to wait at most.
    type: int
    default: 3600
  interval:
    description: Seconds between two lines of progress.
    type: float
    default: 10
  secret_files:
    description: Files on the node whose content must not appear in what is shown.
    type: list
    elements: path
    default: []
seealso:
  - module: sparkgate.blackwell.engine_info
"""

EXAMPLES = r"""
---
- name: Wait until the engine serves
  sparkgate.blackwell.engine_wait:
    unit: sparkgate-engine
    url: http://192.0.2.11:8000
    timeout: 3600
"""

RETURN = r"""
elapsed:
  description: Seconds waited.
  returned: success
  type: float
  sample: 901.5
"""
