# Copyright (c) 2026, The sparkgate.blackwell authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What lets released engines span hosts without a GPU. For the lab's base image alone."""


def vllm_platform() -> str:
    return "lab_shims.vllm_ray_cpu.RayCpuPlatform"
