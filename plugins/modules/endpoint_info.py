#!/usr/bin/python
# Copyright (c) 2026, The sparkgate.blackwell authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
module: endpoint_info
short_description: Ask the endpoint of a served model
version_added: 0.1.0
description:
  - Asks an OpenAI-compatible server whether it is healthy, whether it refuses requests without a key, and, with
    O(prompt), for a chat completion at
    temperature 0.
  - The API key is read on the node that runs the module. It is never returned.
  - An endpoint that does not answer is a finding, not a failure of the module.
author:
  - The sparkgate.blackwell authors (@sparkgate)
extends_documentation_fragment:
  - sparkgate.blackwell.attributes
  - sparkgate.blackwell.attributes.info_module
options:
  url:
    description: The endpoint, without a path.
    type: str
    required: true
  model:
    description: Name under which the model is served. Required with O(prompt).
    type: str
  api_key_file:
    description: File with the API key, on the node that runs the module.
    type: path
  prompt:
    description: What to ask. Without it, nothing is asked.
    type: str
  max_tokens:
    description: The most tokens that the answer may have.
    type: int
    default: 64
  timeout:
    description: Seconds to wait for the answer.
    type: int
    default: 300
seealso:
  - module: sparkgate.blackwell.engine_info
"""

EXAMPLES = r"""
---
- name: Ask the model
  sparkgate.blackwell.endpoint_info:
    url: http://192.0.2.11:8000
    model: Qwen/Qwen3.5-122B-A10B-FP8
    api_key_file: /var/lib/sparkgate/secrets/api_key
    prompt: What is 17 times 23?
  register: asked
"""

RETURN = r"""
endpoint:
  description: What the endpoint said.
  returned: success
  type: dict
  contains:
    health:
      description: HTTP status of C(/health). V(none) where nothing answers.
      type: int
      sample: 200
    closed_without_key:
      description: Whether C(/v1/models) is refused without the key. V(none) where nothing answers.
      type: bool
      sample: true
    models:
      description: Names of the served models. V(none) where they were not told.
      type: list
      elements: str
      sample: [Qwen/Qwen3.5-122B-A10B-FP8]
    completion:
      description: The answer. V(none) where there is none or nothing was asked.
      type: dict
      sample: {text: "391", reasoning: "", finish_reason: stop, completion_tokens: 4, tokens_per_second: 10.0}
    error:
      description: Why there is no answer. V(none) where there is one.
      type: str
      sample: "Connection refused"
"""

import typing as t

from ansible.module_utils.basic import AnsibleModule
from ansible_collections.sparkgate.blackwell.plugins.module_utils._endpoint import ask, request


def main() -> None:
    module = AnsibleModule(
        argument_spec={
            "url": {"type": "str", "required": True},
            "model": {"type": "str"},
            # The path of a secret is none.
            "api_key_file": {"type": "path", "no_log": False},
            "prompt": {"type": "str"},
            "max_tokens": {"type": "int", "default": 64, "no_log": False},
            "timeout": {"type": "int", "default": 300},
        },
        required_by={"prompt": ["model"]},
        supports_check_mode=True,
    )
    url = module.params["url"].rstrip("/")
    key = None
    if module.params["api_key_file"]:
        try:
            with open(module.params["api_key_file"], encoding="utf-8") as file:
                key = file.read().strip()
        except OSError as exc:
            module.fail_json(msg=f"The API key cannot be read: {exc}. Run launch.yml, which makes it.")
    endpoint: dict[str, t.Any] = {
        "health": None,
        "closed_without_key": None,
        "models": None,
        "completion": None,
        "error": None,
    }
    endpoint["health"], _answer, endpoint["error"] = request(f"{url}/health")
    if endpoint["health"] is not None:
        status, _answer, _error = request(f"{url}/v1/models")
        endpoint["closed_without_key"] = None if status is None else status in (401, 403)
        status, answer, _error = request(f"{url}/v1/models", key=key)
        if status == 200 and isinstance(answer, dict):
            endpoint["models"] = [entry.get("id") for entry in answer.get("data") or []]
        if module.params["prompt"] is not None:
            endpoint["completion"], endpoint["error"] = ask(
                url,
                key=key,
                model=module.params["model"],
                prompt=module.params["prompt"],
                max_tokens=module.params["max_tokens"],
                timeout=module.params["timeout"],
            )
    module.exit_json(changed=False, endpoint=endpoint)


if __name__ == "__main__":
    main()
