#!/usr/bin/python
# Copyright (c) 2026, The sparkgate.blackwell authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
module: image_export
short_description: Provide an image on the head for the other nodes
version_added: 0.1.0
author:
  - The sparkgate.blackwell authors (@sparkgate)
description:
  - Starts the transient systemd unit C(sparkgate-export-image.service), which unpacks C(docker save) of the image into
    a directory and then writes C(ready.json) with the image's ID.
  - M(sparkgate.blackwell.transfer) on the other nodes waits for that.
extends_documentation_fragment:
  - sparkgate.blackwell.attributes
attributes:
  check_mode:
    support: full
  diff_mode:
    support: full
  idempotent:
    support: full
options:
  image:
    description: Name of the image with tag. Required for O(state=present).
    type: str
  spool:
    description: Directory for the unpacked image. It is owned by this module, which removes what is in it.
    type: path
    required: true
  state:
    description:
      - V(present) starts the export unless it is there or under way.
      - V(absent) stops it and removes the directory.
    type: str
    choices: [present, absent]
    default: present
  state_dir:
    description: Directory for state on the node.
    type: path
    default: /var/lib/sparkgate
seealso:
  - module: sparkgate.blackwell.transfer
"""

EXAMPLES = r"""
---
- name: Export the image
  sparkgate.blackwell.image_export:
    image: sparkgate/qwen:0123456789ab
    spool: /var/lib/sparkgate/spool/image

- name: Remove the export
  sparkgate.blackwell.image_export:
    spool: /var/lib/sparkgate/spool/image
    state: absent
"""

RETURN = r"""
unit:
  description: The systemd unit.
  returned: always
  type: str
  sample: sparkgate-export-image.service
id:
  description: ID of the image; V(null) where it is not known.
  returned: always
  type: str
  sample: sha256:0a1b2c3d
ready:
  description: Whether the export was complete when the module ran.
  returned: always
  type: bool
actions:
  description: What was done, or would be in check mode, in words.
  returned: always
  type: list
  elements: str
  sample: ["Start sparkgate-export-image.service: export sparkgate/qwen:0123456789ab, 19.5 GiB"]
"""

import os
import platform
import shutil
import traceback
import typing as t

from ansible.module_utils.basic import AnsibleModule
from ansible_collections.sparkgate.blackwell.plugins.module_utils import _transfer, _transfer_runner

TransferError = _transfer_runner.TransferError


class ImageExport:
    """The export of an image on this node."""

    def __init__(self, module: AnsibleModule) -> None:
        self.module = module
        self.name: str = module.params["image"]
        self.spool: str = os.path.normpath(module.params["spool"])
        self.unit = _transfer.Unit(module, "sparkgate-export-image")
        self.result: dict[str, t.Any] = {
            "changed": False,
            "unit": self.unit.unit,
            "id": None,
            "ready": False,
            "actions": [],
        }

    def present(self) -> dict[str, t.Any]:
        image = _transfer.local_image(self.module, self.name)
        if image is None:
            if self.module.check_mode:
                # It may be what an earlier task would have built.
                return self.change({"exported": None}, {"exported": self.name}, f"Export {self.name} once it is there")
            raise TransferError(
                f"There is no image {self.name} on {platform.node()} that could be exported. Build it first."
            )
        self.result["id"] = image["id"]
        job = {
            "kind": "export",
            "image": {"name": self.name, **image},
            "spool": self.spool,
            "progress": self.unit.progress_path,
        }
        ready = _transfer_runner.read_json(os.path.join(self.spool, _transfer_runner.READY)) or {}
        self.result["ready"] = ready.get("id") == image["id"] and not ready.get("error")
        wanted = {"exported": image["id"]}
        if self.result["ready"] or self.unit.runs(job):
            self.result["diff"] = {"before": wanted, "after": wanted}
            return self.result
        have = _transfer_runner.free_bytes(self.spool) + sum(
            size for _path, size in _transfer_runner.walk_sizes(self.spool)
        )
        problem = _transfer_runner.disk_problem(self.spool, have, image["size"], f"the export of {self.name}")
        if problem:
            raise TransferError(problem)
        action = f"Start {self.unit.unit}: export {self.name}, {_transfer_runner.gib(image['size'])}"
        self.change({"exported": ready.get("id")}, wanted, action)
        if not self.module.check_mode:
            self.unit.start(f"Export of {self.name}", job, self.module.params["state_dir"])
        return self.result

    def absent(self) -> dict[str, t.Any]:
        running = self.unit.state() in _transfer.ACTIVE_STATES
        paths = [path for path in (self.spool, f"{self.spool}.tmp") if os.path.lexists(path)]
        self.result["diff"] = {"before": {"running": running, "paths": paths}, "after": {"running": False, "paths": []}}
        if running:
            self.change({"running": True, "paths": paths}, {"running": False, "paths": []}, f"Stop {self.unit.unit}")
        if paths:
            self.change(
                {"running": running, "paths": paths}, {"running": False, "paths": []}, f"Remove {', '.join(paths)}"
            )
        if not self.module.check_mode:
            self.unit.stop()
            for path in paths:
                shutil.rmtree(path)
        return self.result

    def change(self, before: dict[str, t.Any], after: dict[str, t.Any], action: str) -> dict[str, t.Any]:
        self.result["changed"] = True
        self.result["diff"] = {"before": before, "after": after}
        self.result["actions"].append(action)
        return self.result


def main() -> None:
    module = AnsibleModule(
        argument_spec={
            "image": {"type": "str"},
            "spool": {"type": "path", "required": True},
            "state": {"type": "str", "choices": ["present", "absent"], "default": "present"},
            "state_dir": {"type": "path", "default": "/var/lib/sparkgate"},
        },
        required_if=[("state", "present", ("image",))],
        supports_check_mode=True,
    )
    try:
        export = ImageExport(module)
        result = export.absent() if module.params["state"] == "absent" else export.present()
    except TransferError as exc:
        module.fail_json(msg=str(exc), exception=traceback.format_exc())
    except OSError as exc:
        module.fail_json(msg=f"{platform.node()}: {exc}", exception=traceback.format_exc())
    module.exit_json(**result)


if __name__ == "__main__":
    main()
