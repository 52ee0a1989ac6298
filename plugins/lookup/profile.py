# Copyright (c) 2026, The sparkgate.blackwell authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
name: profile
short_description: Load a model profile
version_added: 0.1.0
description:
  - Loads the profile of a model, validates it, and adds the digest of its content.
  - A profile says what a model needs, namely its identity, minimum versions, image, container options, arguments of
    each engine, and the answer
    by which the served model is checked.
  - A profile with the key C(extends) is merged key by key over the profile that it names. Lists are replaced, not
    joined.
options:
  _terms:
    description:
      - Names of profiles, or paths of profile files on the controller.
      - A term with a slash, or one that ends in C(.yml) or C(.yaml), is a path.
    type: list
    elements: str
    required: true
  search:
    description: Directories on the controller that are searched before the profiles that the collection ships.
    type: list
    elements: path
    default: []
author:
  - The sparkgate.blackwell authors (@sparkgate)
"""

EXAMPLES = r"""
---
- name: Show what a profile says about the image
  ansible.builtin.debug:
    msg: "{{ lookup('sparkgate.blackwell.profile', 'qwen3.5-122b-a10b-fp8').image }}"

- name: Load a profile of one's own
  ansible.builtin.debug:
    msg: "{{ lookup('sparkgate.blackwell.profile', 'my-model', search=[playbook_dir ~ '/profiles']).digest }}"
"""

RETURN = r"""
_raw:
  description: The profiles, each with the key C(digest).
  type: list
  elements: dict
"""

import typing as t

from ansible.errors import AnsibleLookupError
from ansible.plugins.lookup import LookupBase
from ansible_collections.sparkgate.blackwell.plugins.plugin_utils._profile import ProfileError, load


class LookupModule(LookupBase):
    """Load profiles by name or path."""

    def run(
        self, terms: list[str], variables: dict[str, t.Any] | None = None, **kwargs: t.Any
    ) -> list[dict[str, t.Any]]:
        self.set_options(var_options=variables, direct=kwargs)
        try:
            return [load(str(term), self.get_option("search")) for term in terms]
        except ProfileError as exc:
            raise AnsibleLookupError(str(exc)) from exc
