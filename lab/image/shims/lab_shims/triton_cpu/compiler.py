# Copyright (c) 2026, The sparkgate.blackwell authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The half of the backend that must be there and is never asked to do anything."""

from triton.backends.compiler import BaseBackend


class CpuBackend(BaseBackend):
    @staticmethod
    def supports_target(target):
        return target.backend == "cpu"

    def hash(self):
        return "lab-cpu"

    def _refuse(self, *args, **kwargs):
        raise NotImplementedError("the lab's Triton backend only interprets: set TRITON_INTERPRET=1")

    parse_options = add_stages = load_dialects = get_module_map = _refuse
