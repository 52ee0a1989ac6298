#!/usr/bin/python
# Copyright (c) 2026, The sparkgate.blackwell authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
module: hub_download
short_description: Download a model from a hub to this node
version_added: 0.1.0
author:
  - The sparkgate.blackwell authors (@sparkgate)
description:
  - Resolves the revision of a model, then downloads exactly that in a transient systemd unit, which goes on when the controller
    disconnects and takes up what an earlier download left. M(sparkgate.blackwell.transfer_wait) waits for it under the name V(hub).
  - The download runs in a container of the serving image, which has the hub's client, so that nothing is installed on the node.
extends_documentation_fragment:
  - sparkgate.blackwell.attributes
attributes:
  check_mode:
    support: partial
    details:
      - Resolves the revision where the image is there, and starts no download.
  diff_mode:
    support: none
  idempotent:
    support: none
    details:
      - Call it only where M(sparkgate.blackwell.model_info) found something missing.
options:
  model:
    description: Name of the model on the hub, such as V(organisation/name).
    type: str
    required: true
  revision:
    description: Branch, tag or commit.
    type: str
    default: main
  destination:
    description: Directory for the files.
    type: path
    required: true
  image:
    description: Image on this node that has the hub's client.
    type: str
    required: true
  endpoint:
    description: Base address of another hub.
    type: str
  token_file:
    description: File on this node with the token for a gated model. It is mounted, never read here.
    type: path
  state_dir:
    description: Directory for state on the node.
    type: path
    default: /var/lib/sparkgate
seealso:
  - module: sparkgate.blackwell.model_info
  - module: sparkgate.blackwell.transfer_wait
"""

EXAMPLES = r"""
---
- name: Download the weights
  sparkgate.blackwell.hub_download:
    model: Qwen/Qwen3.5-122B-A10B-FP8
    destination: /var/lib/sparkgate/models/Qwen3.5-122B-A10B-FP8
    image: sparkgate/qwen3.5-122b-a10b-fp8-sglang:c60d99d6a327

- name: Wait for the download
  sparkgate.blackwell.transfer_wait:
    names: [hub]
"""

RETURN = r"""
revision:
  description: The commit that is downloaded. V(none) in check mode where the image that could ask for it is not there yet.
  returned: always
  type: str
  sample: 0f3c2b1a9e8d7c6b5a4f3e2d1c0b9a8f7e6d5c4b
bytes_total:
  description: Size of all files of the revision.
  returned: always
  type: int
  sample: 127100000000
unit:
  description: The systemd unit.
  returned: always
  type: str
  sample: sparkgate-transfer-hub.service
"""

import json
import os
import platform
import traceback
import typing as t

from ansible.module_utils.basic import AnsibleModule
from ansible_collections.sparkgate.blackwell.plugins.module_utils import _transfer, _transfer_runner

# Runs inside the image. Each way to fail has a word, because the remedies differ.
RESOLVE = """
import json, os, sys
from huggingface_hub import HfApi, errors
try:
    info = HfApi().model_info(sys.argv[1], revision=sys.argv[2], files_metadata=True)
    print(json.dumps({"revision": info.sha, "bytes": sum(f.size or 0 for f in info.siblings)}))
except errors.GatedRepoError as exc:
    print(json.dumps({"error": "gated", "text": str(exc)}))
except errors.RevisionNotFoundError as exc:
    print(json.dumps({"error": "revision", "text": str(exc)}))
except errors.RepositoryNotFoundError as exc:
    print(json.dumps({"error": "missing", "text": str(exc)}))
except Exception as exc:
    print(json.dumps({"error": "unreachable", "text": f"{type(exc).__name__}: {exc}"}))
"""

CONTAINER = "sparkgate-hub"

REMEDIES = {
    "gated": "The model is gated. Accept its terms on the hub, and set model_weights_token_file to a file on the head that holds your token.",
    "revision": "The hub has the model, but not this revision. Remove the revision from the lock file, or correct it.",
    "missing": "The hub has no such model, or it is private. Check the name; for a private model set model_weights_token_file.",
    "unreachable": "The hub does not answer. Check the network, or use model_weights_source with kind directory.",
}


class HubDownload:
    """The download of one revision of one model."""

    def __init__(self, module: AnsibleModule) -> None:
        self.module = module
        self.model: str = module.params["model"]
        self.destination: str = os.path.normpath(module.params["destination"])
        self.unit = _transfer.Unit(module, "sparkgate-transfer-hub")

    def container(self) -> list[str]:
        """Return the options of the container, without a name."""
        argv = ["--rm", "--pull", "never", "--network", "host", "--security-opt", "no-new-privileges"]
        argv += ["--env", "HF_HUB_DISABLE_PROGRESS_BARS=1"]
        if self.module.params["endpoint"]:
            argv += ["--env", f"HF_ENDPOINT={self.module.params['endpoint']}"]
        if self.module.params["token_file"]:
            argv += [
                "--env",
                "HF_TOKEN_PATH=/run/secrets/hub_token",
                "--volume",
                f"{self.module.params['token_file']}:/run/secrets/hub_token:ro",
            ]
        return argv

    def resolve(self) -> dict[str, t.Any]:
        """Ask the hub for the commit and its size."""
        argv = ["docker", "run", *self.container(), self.module.params["image"], "python3", "-c", RESOLVE]
        code, out, err = self.module.run_command([*argv, self.model, self.module.params["revision"]])
        answer = (out.strip().splitlines() or [""])[-1]
        try:
            document: dict[str, t.Any] = json.loads(answer)
        except ValueError:
            document = {"error": "unreachable", "text": (err or out).strip()[-500:] or f"exit status {code}"}
        if "error" in document:
            raise _transfer_runner.TransferError(
                f"{self.model} at {self.module.params['revision']} cannot be downloaded to {platform.node()}. {REMEDIES[document['error']]}"
                f" Seen: {document['text']}"
            )
        return document

    def run(self) -> dict[str, t.Any]:
        if _transfer.local_image(self.module, self.module.params["image"]) is None:
            if self.module.check_mode:
                return {"changed": True, "revision": None, "bytes_total": None, "unit": self.unit.unit}
            raise _transfer_runner.TransferError(
                f"{platform.node()} has no image {self.module.params['image']}, whose hub client is needed. Run image.yml first."
            )
        found = self.resolve()
        free = _transfer_runner.free_bytes(self.destination)
        here = sum(size for _path, size in _transfer_runner.walk_sizes(self.destination))
        problem = _transfer_runner.disk_problem(
            self.destination, free, found["bytes"] - here, f"the download of {self.model}"
        )
        if problem:
            raise _transfer_runner.TransferError(problem)
        if not self.module.check_mode:
            mount = ["--volume", f"{self.destination}:/download"]
            image: str = self.module.params["image"]
            command = ["hf", "download", self.model, "--revision", found["revision"], "--local-dir", "/download"]
            job = {
                "kind": "hub",
                "container": CONTAINER,
                "argv": ["docker", "run", "--name", CONTAINER, "--init", *self.container(), *mount, image, *command],
                "destination": self.destination,
                "bytes": found["bytes"],
                "progress": self.unit.progress_path,
            }
            if not self.unit.runs(job):
                self.unit.start(f"Download of {self.model}", job, self.module.params["state_dir"])
        return {"changed": True, "revision": found["revision"], "bytes_total": found["bytes"], "unit": self.unit.unit}


def main() -> None:
    module = AnsibleModule(
        argument_spec={
            "model": {"type": "str", "required": True},
            "revision": {"type": "str", "default": "main"},
            "destination": {"type": "path", "required": True},
            "image": {"type": "str", "required": True},
            "endpoint": {"type": "str"},
            "token_file": {"type": "path", "no_log": False},
            "state_dir": {"type": "path", "default": "/var/lib/sparkgate"},
        },
        supports_check_mode=True,
    )
    try:
        module.exit_json(**HubDownload(module).run())
    except _transfer_runner.TransferError as exc:
        module.fail_json(msg=str(exc), exception=traceback.format_exc())


if __name__ == "__main__":
    main()
