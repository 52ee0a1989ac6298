#!/usr/bin/python
# Copyright (c) 2026, The sparkgate.blackwell authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
module: image_make
short_description: Pull or build an image on this node, with progress
version_added: 0.1.0
author:
  - The sparkgate.blackwell authors (@sparkgate)
description:
  - Starts a transient systemd unit that runs C(docker pull) or C(docker build) where the node has no image of that name. The unit
    goes on when the controller disconnects.
  - M(sparkgate.blackwell.transfer_wait) waits for it under the name V(pull) or V(build) and shows how far it is.
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
  name:
    description: Name of the image with a tag or, for O(source=pull), a digest.
    type: str
    required: true
  source:
    description: Where the image comes from.
    type: str
    choices: [pull, build]
    required: true
  path:
    description: Directory with the C(Dockerfile). Required for O(source=build).
    type: path
  arguments:
    description: Build arguments by name. Their values stand in no command line.
    type: dict
    default: {}
  network:
    description: Network mode of the build's containers.
    type: str
    default: default
  state_dir:
    description: Directory for state on the node.
    type: path
    default: /var/lib/sparkgate
seealso:
  - module: sparkgate.blackwell.transfer_wait
  - module: community.docker.docker_image_pull
"""

EXAMPLES = r"""
---
- name: Pull the base image
  sparkgate.blackwell.image_make:
    name: registry.example/engines@sha256:2c26b46b68ffc68ff99b453c1d30413413422d706483bfa0f98a5e886266e7ae
    source: pull

- name: Wait for it
  sparkgate.blackwell.transfer_wait:
    names: [pull]
"""

RETURN = r"""
unit:
  description: The systemd unit.
  returned: always
  type: str
  sample: sparkgate-transfer-pull.service
running:
  description: Whether the unit runs now.
  returned: always
  type: bool
"""

import platform
import traceback
import typing as t

from ansible.module_utils.basic import AnsibleModule
from ansible_collections.sparkgate.blackwell.plugins.module_utils import _transfer, _transfer_runner


def run(module: AnsibleModule) -> dict[str, t.Any]:
    params = module.params
    unit = _transfer.Unit(module, f"sparkgate-transfer-{params['source']}")
    if _transfer.local_image(module, params["name"]) is not None:
        return {"changed": False, "unit": unit.unit, "running": False}
    if module.check_mode:
        return {"changed": True, "unit": unit.unit, "running": False}
    job = {"kind": params["source"], "image": params["name"], "progress": unit.progress_path}
    if params["source"] == "build":
        arguments = {name: str(value) for name, value in params["arguments"].items()}
        job.update(path=params["path"], arguments=arguments, network=params["network"])
    if not unit.runs(job):
        verb = {"pull": "Pull", "build": "Build"}[params["source"]]
        unit.start(f"{verb} of {params['name']}", job, params["state_dir"])
    return {"changed": True, "unit": unit.unit, "running": True}


def main() -> None:
    module = AnsibleModule(
        argument_spec={
            "name": {"type": "str", "required": True},
            "source": {"type": "str", "choices": ["pull", "build"], "required": True},
            "path": {"type": "path"},
            "arguments": {"type": "dict", "default": {}},
            "network": {"type": "str", "default": "default"},
            "state_dir": {"type": "path", "default": "/var/lib/sparkgate"},
        },
        required_if=[("source", "build", ("path",))],
        supports_check_mode=True,
    )
    try:
        module.exit_json(**run(module))
    except _transfer_runner.TransferError as exc:
        module.fail_json(msg=str(exc), exception=traceback.format_exc())
    except OSError as exc:
        module.fail_json(msg=f"{platform.node()}: {exc}", exception=traceback.format_exc())


if __name__ == "__main__":
    main()
