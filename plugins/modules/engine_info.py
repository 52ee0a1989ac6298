#!/usr/bin/python
# Copyright (c) 2026, The sparkgate.blackwell authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
module: engine_info
short_description: Read the state of a unit, its container and its log
version_added: 0.1.0
description:
  - Reads what systemd says about a unit, what the container engine says about the container that it runs, and the
    last lines of the container's log.
  - Secrets are taken out of the log.
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
  container:
    description: Name of the container. Default, the unit's name.
    type: str
  url:
    description: Endpoint whose C(/health) is asked too, without a path.
    type: str
  lines:
    description: How many lines of the log to read.
    type: int
    default: 40
  secret_files:
    description: Files on the node whose content must not appear in the log that is returned.
    type: list
    elements: path
    default: []
seealso:
  - module: sparkgate.blackwell.engine_wait
"""

EXAMPLES = r"""
---
- name: Look at the engine
  sparkgate.blackwell.engine_info:
    unit: sparkgate-engine
    url: http://192.0.2.11:8000
    secret_files: [/var/lib/sparkgate/secrets/api_key]
  register: engine
"""

RETURN = r"""
engine:
  description: The state.
  returned: success
  type: dict
  contains:
    unit:
      description: What systemd says.
      type: dict
      sample: {load_state: loaded, active_state: active, sub_state: running, result: success, restarts: 0}
    container:
      description: What the container engine says. V(false) where there is no such container.
      type: raw
      sample: {status: running, exit_code: 0, error: "", pids: [4711]}
    health:
      description: HTTP status of C(/health). V(none) where nothing answers or nothing was asked.
      type: int
      sample: 200
    log:
      description: The last lines of the log.
      type: list
      elements: str
      sample: ["Application startup complete."]
"""

import json
import typing as t

from ansible.module_utils.basic import AnsibleModule
from ansible_collections.sparkgate.blackwell.plugins.module_utils._endpoint import clean_log, parse_show, request

PROPERTIES = "LoadState,ActiveState,SubState,Result,NRestarts"


def read_container(module: AnsibleModule, docker: str, name: str) -> dict[str, t.Any] | bool:
    rc, out, _err = module.run_command([docker, "container", "inspect", "--format", "{{json .State}}", name])
    if rc != 0:
        return False
    state = json.loads(out)
    pids: list[int] = []
    if state.get("Running"):
        rc, out, _err = module.run_command([docker, "top", name, "-eo", "pid"])
        pids = [int(word) for word in out.split() if word.isdigit()] if rc == 0 else []
    return {
        "status": state.get("Status"),
        "exit_code": state.get("ExitCode"),
        "error": state.get("Error") or "",
        "pids": pids,
    }


def read_secrets(paths: t.Iterable[str]) -> list[str]:
    found = []
    for path in paths:
        try:
            with open(path, encoding="utf-8") as file:
                found.append(file.read().strip())
        except OSError:
            # A secret that is not there cannot be in the log.
            continue
    return found


def main() -> None:
    module = AnsibleModule(
        argument_spec={
            "unit": {"type": "str", "required": True},
            "container": {"type": "str"},
            "url": {"type": "str"},
            "lines": {"type": "int", "default": 40},
            # The paths of secrets are none.
            "secret_files": {"type": "list", "elements": "path", "default": [], "no_log": False},
        },
        supports_check_mode=True,
    )
    unit = module.params["unit"]
    container = module.params["container"] or unit.rpartition(".service")[0] or unit
    systemctl = module.get_bin_path("systemctl", required=True)
    _rc, out, _err = module.run_command([systemctl, "show", "--property", PROPERTIES, unit])
    engine: dict[str, t.Any] = {"unit": parse_show(out), "container": False, "health": None, "log": []}
    docker = module.get_bin_path("docker")
    if docker:
        engine["container"] = read_container(module, docker, container)
        if engine["container"]:
            _rc, out, err = module.run_command([docker, "logs", "--tail", str(module.params["lines"]), container])
            engine["log"] = clean_log(out + err, read_secrets(module.params["secret_files"]))[-module.params["lines"] :]
    if module.params["url"]:
        engine["health"], _answer, _error = request(module.params["url"].rstrip("/") + "/health", timeout=5)
    module.exit_json(changed=False, engine=engine)


if __name__ == "__main__":
    main()
