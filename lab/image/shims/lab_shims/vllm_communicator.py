# Copyright (c) 2026, The sparkgate.blackwell authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Ranks share memory only on one host: upstream compares ports, which are all alike under Ray."""

import socket

import torch.distributed
from vllm.distributed.device_communicators.cpu_communicator import CpuCommunicator


class Communicator(CpuCommunicator):
    def _all_group_ranks_share_shm_group_name(self) -> bool:
        names = [""] * self.world_size
        torch.distributed.all_gather_object(names, socket.gethostname(), group=self.device_group)
        return names.count(names[0]) == len(names) and super()._all_group_ranks_share_shm_group_name()
