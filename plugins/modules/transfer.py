#!/usr/bin/python
# Copyright (c) 2026, The sparkgate.blackwell authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
module: transfer
short_description: Copy weights or an image from the head to this node
version_added: 0.1.0
author:
  - The sparkgate.blackwell authors (@sparkgate)
description:
  - Finds out what the node lacks and starts a transient systemd unit, C(sparkgate-transfer-NAME.service), that pulls it
    from the head with C(rsync) over C(ssh). The unit goes on when the controller disconnects.
  - Weights are compared with a manifest. Each file is hashed once, while the copy runs, and gets its final name only
    when its sha256 is right. A later run trusts a hash while size, mtime and inode of the file are the same.
  - A broken copy resumes, also in the middle of a file.
  - An image is copied as the unpacked C(docker save) that M(sparkgate.blackwell.image_export) provides on the head. The
    unit waits for it, loads it, and demands that the image has the wanted ID.
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
  name:
    description:
      - Name of the transfer, a part of the unit's name.
      - Usually V(weights) or V(image).
    type: str
    required: true
  state:
    description:
      - V(started) starts the unit where something is missing.
      - V(absent) cancels it, stops its processes, and keeps what was copied so far.
    type: str
    choices: [started, absent]
    default: started
  kind:
    description: What is copied. Required for O(state=started).
    type: str
    choices: [weights, image]
  source:
    description: How this node reaches the head. Required for O(state=started).
    type: dict
    suboptions:
      address:
        description: Address of the head on the fabric.
        type: str
        required: true
      port:
        description: TCP port of the head's ssh server at that address.
        type: int
        default: 22
      user:
        description: User on the head whose C(authorized_keys) holds the key.
        type: str
        default: root
      identity_file:
        description:
          - Private key on this node.
          - The default is where the role P(sparkgate.blackwell.ssh_mesh#role) puts it, below O(state_dir).
        type: path
      known_hosts_file:
        description:
          - File on this node with the head's host keys.
          - The default is where the role P(sparkgate.blackwell.ssh_mesh#role) puts it, below O(state_dir).
        type: path
  manifest:
    description:
      - The manifest of the weights, as M(sparkgate.blackwell.model_info) returns it.
      - Required to start O(kind=weights).
    type: dict
  destination:
    description: Directory for the weights. Required to start O(kind=weights).
    type: path
  record:
    description:
      - File to which the manifest is written when all files are there and verified.
      - It is removed when the copy for another manifest begins.
      - The default is C(manifests/NAME.json) below O(state_dir), where C(NAME) is the last part of O(destination).
    type: path
  hash_cache:
    description:
      - File with the known hashes. M(sparkgate.blackwell.model_info) can use the same one.
      - The default is C(manifests/NAME.hashes.json) below O(state_dir).
    type: path
  image:
    description: The image. Required to start O(kind=image).
    type: dict
    suboptions:
      id:
        description: ID (config digest) that the image has on the head.
        type: str
        required: true
      name:
        description: Name with tag.
        type: str
        required: true
      size:
        description:
          - Size in bytes, where it is known beforehand.
          - It is used to check the free disk, and to tell what would move.
        type: int
  spool:
    description: Directory for the copy of an image until it is loaded. The default is C(spool/NAME) below O(state_dir).
    type: path
  export_timeout:
    description: Seconds to wait until the head has exported the image.
    type: int
    default: 3600
  bandwidth:
    description: Upper limit of the transfer in bytes a second.
    type: int
  state_dir:
    description: Directory for state on the node.
    type: path
    default: /var/lib/sparkgate
seealso:
  - module: sparkgate.blackwell.image_export
  - module: sparkgate.blackwell.transfer_info
  - module: sparkgate.blackwell.transfer_wait
"""

EXAMPLES = r"""
---
- name: Start to copy the weights from the head
  sparkgate.blackwell.transfer:
    name: weights
    kind: weights
    source:
      address: 192.0.2.10
    manifest: "{{ model.manifest }}"
    destination: /var/lib/sparkgate/models/qwen

- name: Cancel it
  sparkgate.blackwell.transfer:
    name: weights
    state: absent
"""

RETURN = r"""
unit:
  description: The systemd unit.
  returned: always
  type: str
  sample: sparkgate-transfer-weights.service
running:
  description: Whether the unit runs now.
  returned: always
  type: bool
needed_files:
  description: The files that are fetched, or would be in check mode. For an image, one entry with its name.
  returned: always
  type: list
  elements: dict
  sample: [{"path": "model-00001-of-00002.safetensors", "size": 4987654321}]
needed_bytes:
  description: The sum of their sizes; V(null) where the size of the image is not known beforehand.
  returned: always
  type: int
  sample: 4987654321
unverified_files:
  description:
    - Files of the right size that no run has hashed here.
    - The unit hashes them, and fetches those that are wrong.
  returned: always
  type: list
  elements: str
actions:
  description: What was done, or would be in check mode, in words.
  returned: always
  type: list
  elements: str
  sample: ["Start sparkgate-transfer-weights.service: fetch 1 file, 4.6 GiB"]
"""

import os
import platform
import traceback
import typing as t

from ansible.module_utils.basic import AnsibleModule
from ansible_collections.sparkgate.blackwell.plugins.module_utils import _transfer, _transfer_runner

TransferError = _transfer_runner.TransferError


class Transfer:
    """One transfer to this node."""

    def __init__(self, module: AnsibleModule) -> None:
        self.module = module
        self.name: str = module.params["name"]
        if not _transfer.NAME_RE.match(self.name):
            raise TransferError(
                f"The name {self.name!r} cannot be a part of a unit's name. Use letters, digits, '.', '-' and '_'."
            )
        self.kind: str = module.params["kind"]
        self.state_dir: str = module.params["state_dir"]
        self.unit = _transfer.Unit(module, f"sparkgate-transfer-{self.name}")
        self.result: dict[str, t.Any] = {
            "changed": False,
            "unit": self.unit.unit,
            "running": False,
            "needed_files": [],
            "needed_bytes": 0,
            "unverified_files": [],
            "actions": [],
        }

    def cancel(self) -> dict[str, t.Any]:
        """Stop the unit."""
        running = self.unit.state() in _transfer.ACTIVE_STATES
        if running:
            self.result["changed"] = True
            self.result["actions"].append(f"Stop {self.unit.unit}; what was copied is kept")
        if not self.module.check_mode:
            self.unit.stop()
        self.result["running"] = running and self.module.check_mode
        self.result["diff"] = {"before": {"running": running}, "after": {"running": False}}
        return self.result

    def start(self) -> dict[str, t.Any]:
        """Start the unit where something is missing."""
        job = self.job()
        problem = self.survey(job)
        needed, unverified = self.result["needed_files"], self.result["unverified_files"]
        unrecorded = self.kind == "weights" and _transfer_runner.read_json(job["record"]) != job["manifest"]
        self.result["diff"] = {
            "before": {"missing": needed, "unverified": unverified},
            "after": {"missing": [], "unverified": []},
        }
        if not needed and not unverified and not unrecorded:
            # An old failure must not be taken for one of this run.
            if not self.module.check_mode and self.unit.progress() and self.unit.state() not in _transfer.ACTIVE_STATES:
                self.unit.forget()
            return self.result
        if self.unit.runs(job):
            self.result["running"] = True
            return self.result
        if problem:
            raise TransferError(problem)
        self.result["changed"] = True
        self.result["actions"].append(f"Start {self.unit.unit}: {self.summary()}")
        if not self.module.check_mode:
            self.unit.start(f"Copy of {self.name} from {job['source']['address']}", job, self.state_dir)
            self.result["running"] = True
        return self.result

    def job(self) -> dict[str, t.Any]:
        """Return all that the program needs to know."""
        params = self.module.params
        for option in ("manifest", "destination") if self.kind == "weights" else ("image",):
            if params[option] is None:
                raise TransferError(f"kind is {self.kind} but {option} is missing.")
        secrets = os.path.join(self.state_dir, "secrets")
        source = dict(params["source"])
        source["identity_file"] = source["identity_file"] or os.path.join(secrets, f"transfer_{self.name}")
        source["known_hosts_file"] = source["known_hosts_file"] or os.path.join(
            secrets, f"transfer_{self.name}.known_hosts"
        )
        job = {
            "kind": self.kind,
            "source": source,
            "bandwidth": params["bandwidth"],
            "progress": self.unit.progress_path,
        }
        if self.kind == "weights":
            destination = os.path.normpath(params["destination"])
            job["manifest"] = params["manifest"]
            job["destination"] = destination
            stem = os.path.join(self.state_dir, "manifests", os.path.basename(destination))
            job["record"] = params["record"] or f"{stem}.json"
            job["hash_cache"] = params["hash_cache"] or f"{stem}.hashes.json"
        else:
            job["image"] = params["image"]
            job["spool"] = os.path.normpath(params["spool"] or os.path.join(self.state_dir, "spool", self.name))
            job["export_timeout"] = params["export_timeout"]
        return job

    def survey(self, job: dict[str, t.Any]) -> str | None:
        """Find out what is missing; return what is wrong with the disk."""
        if self.kind == "weights":
            plan = _transfer_runner.survey(job)
            self.result["needed_files"] = [{"path": entry["path"], "size": entry["size"]} for entry in plan.missing]
            self.result["needed_bytes"] = plan.missing_bytes
            self.result["unverified_files"] = [entry["path"] for entry in plan.unverified]
            staging = os.path.join(job["destination"], _transfer_runner.STAGING)
            here = _transfer_runner.staged_bytes(plan.missing, _transfer_runner.walk_sizes(staging))
            return self.disk_problem(job["destination"], plan.missing_bytes - here) if plan.missing else None
        image = self.module.params["image"]
        present = _transfer.local_image(self.module, image["name"])
        if present and present["id"] == image["id"]:
            return None
        self.result["needed_files"] = [{"path": image["name"], "size": image["size"]}]
        self.result["needed_bytes"] = image["size"]
        return self.disk_problem(job["spool"], image["size"]) if image["size"] else None

    def disk_problem(self, path: str, need: int) -> str | None:
        what = f"the copy of the {self.kind}"
        return _transfer_runner.disk_problem(path, _transfer_runner.free_bytes(path), need, what)

    def summary(self) -> str:
        if self.kind == "image":
            size = self.result["needed_bytes"]
            return f"fetch {self.module.params['image']['name']}" + (f", {_transfer_runner.gib(size)}" if size else "")
        files, unverified = len(self.result["needed_files"]), len(self.result["unverified_files"])
        parts = []
        if files:
            size = _transfer_runner.gib(self.result["needed_bytes"])
            parts.append(f"fetch {files} file{'s' if files > 1 else ''}, {size}")
        if unverified:
            parts.append(f"verify {unverified} file{'s' if unverified > 1 else ''} that are there")
        return "; ".join(parts) or "record the manifest"


def main() -> None:
    module = AnsibleModule(
        argument_spec={
            "name": {"type": "str", "required": True},
            "state": {"type": "str", "choices": ["started", "absent"], "default": "started"},
            "kind": {"type": "str", "choices": ["weights", "image"]},
            "source": {
                "type": "dict",
                "options": {
                    "address": {"type": "str", "required": True},
                    "port": {"type": "int", "default": 22},
                    "user": {"type": "str", "default": "root"},
                    "identity_file": {"type": "path"},
                    "known_hosts_file": {"type": "path"},
                },
            },
            "manifest": {"type": "dict"},
            "destination": {"type": "path"},
            "record": {"type": "path"},
            "hash_cache": {"type": "path"},
            "image": {
                "type": "dict",
                "options": {
                    "id": {"type": "str", "required": True},
                    "name": {"type": "str", "required": True},
                    "size": {"type": "int"},
                },
            },
            "spool": {"type": "path"},
            "export_timeout": {"type": "int", "default": 3600},
            "bandwidth": {"type": "int"},
            "state_dir": {"type": "path", "default": "/var/lib/sparkgate"},
        },
        required_if=[
            ("state", "started", ("kind", "source")),
        ],
        supports_check_mode=True,
    )
    try:
        transfer = Transfer(module)
        result = transfer.cancel() if module.params["state"] == "absent" else transfer.start()
    except TransferError as exc:
        module.fail_json(msg=str(exc), exception=traceback.format_exc())
    except OSError as exc:
        module.fail_json(msg=f"{platform.node()}: {exc}", exception=traceback.format_exc())
    module.exit_json(**result)


if __name__ == "__main__":
    main()
