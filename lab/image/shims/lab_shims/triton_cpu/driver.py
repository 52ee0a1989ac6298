# Copyright (c) 2026, The sparkgate.blackwell authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The device that Triton and SGLang believe to be there: one processor, the CPU."""

import contextlib
import functools
import os
import types

from triton.backends.compiler import GPUTarget
from triton.backends.driver import DriverBase

INTERPRETING = os.environ.get("TRITON_INTERPRET") == "1"


class CpuDriver(DriverBase):
    def __init__(self):
        properties = {"multiprocessor_count": 1, "max_shared_mem": 2**17, "warpSize": 32, "max_num_regs": 2**16}
        self.utils = types.SimpleNamespace(get_device_properties=lambda device=0: properties)
        mend_torch()
        mend_aliases()

    @classmethod
    def is_active(cls):
        return INTERPRETING

    def map_python_to_cpp_type(self, ty):
        raise NotImplementedError

    def get_current_target(self):
        return GPUTarget("cpu", 0, 32)

    def get_active_torch_device(self):
        import torch

        return torch.device("cpu")

    def get_device_interface(self):
        import torch

        return torch.cpu

    def get_current_device(self):
        return 0

    get_current_stream = set_current_device = lambda self, device=None: 0

    def get_benchmarker(self):
        def benchmark(call, *, quantiles=(), **_unused):
            call()  # every candidate is as good as the next: the tuner keeps the first
            return [1.0] * max(len(quantiles), 1)

        return benchmark


def mend_torch():
    """Launchers ask torch.cuda how wide the device is, and enter torch.cpu.device(i)."""
    import torch

    if torch.cuda.is_available():
        return
    device = types.SimpleNamespace(multi_processor_count=1, major=0, minor=0, name="cpu", total_memory=2**30)
    torch.cuda.get_device_properties = lambda index=None: device
    if not hasattr(torch.cpu, "device"):
        torch.cpu.device = lambda index=None: contextlib.nullcontext()


def mend_aliases():
    """The interpreter finds `tl.exp` in a kernel, but not the `exp` of a module that said `exp = tl.exp`."""
    from triton.runtime.interpreter import FunctionRewriter, interpreter_semantic

    upstream = FunctionRewriter.rewrite_ast

    @functools.wraps(upstream)
    def rewrite_ast(self):
        scope = self.fn.__globals__
        for name, value in list(scope.items()):
            if getattr(value, "__triton_builtin__", False) is True:
                scope[name] = functools.partial(value, _semantic=interpreter_semantic)
        return upstream(self)

    FunctionRewriter.rewrite_ast = rewrite_ast


if INTERPRETING:
    import torch

    if not torch.cuda.is_available():  # SGLang's scheduler actor under Ray calls it whatever --device says
        torch.cuda.set_device = lambda device: None
