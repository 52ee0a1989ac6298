# Copyright (c) 2026, The sparkgate.blackwell authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""vLLM's CPU platform with the two things that it lacks for Ray over several hosts."""

from vllm.platforms.cpu import CpuPlatform


class RayCpuPlatform(CpuPlatform):
    ray_device_key = "GPU"  # a Ray node of the lab declares one logical GPU

    @classmethod
    def get_device_communicator_cls(cls) -> str:
        return "lab_shims.vllm_communicator.Communicator"
