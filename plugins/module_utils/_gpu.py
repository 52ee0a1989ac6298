# Copyright (c) 2026, The sparkgate.blackwell authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

# Note that this module util is **PRIVATE** to the collection. It can have breaking changes at any time.
# Do not use this from other collections or standalone plugins/modules!

from __future__ import annotations

import re
import typing as t

if t.TYPE_CHECKING:
    from ansible_collections.sparkgate.blackwell.plugins.module_utils._recon import Source

# GPUs that share the machine's memory. The driver answers N/A for their memory, so the machine's own is what counts.
# GB10: NVIDIA/k8s-device-plugin#1482.
_INTEGRATED_NAMES = ("GB10",)

_DEVICE_FIELDS = ("index", "name", "uuid", "pci.bus_id", "compute_cap", "memory.total", "memory.free")


def parse_driver_version(text: str | None) -> tuple[str | None, bool | None]:
    """Version and openness of the kernel module from /proc/driver/nvidia/version."""
    for line in (text or "").splitlines():
        # The open module writes "NVIDIA UNIX Open Kernel Module for aarch64  580.95.05", the other one has no "for".
        match = re.match(r"^NVRM version:.*Kernel Module\s+(?:for \S+\s+)?(\d[\d.]*)", line)
        if match:
            return match.group(1), "Open Kernel Module" in line
    return None, None


def parse_number(text: str, scale: int = 1) -> int | None:
    """A number of nvidia-smi; [N/A], [Not Supported] and the like are unknown and never 0."""
    return int(text) * scale if re.match(r"^\d+$", text.strip()) else None


def parse_devices(text: str | None) -> list[dict[str, t.Any]]:
    """Devices from C(nvidia-smi --query-gpu=... --format=csv,noheader,nounits)."""
    result = []
    for line in (text or "").splitlines():
        fields = [field.strip() for field in line.split(",")]
        if len(fields) != len(_DEVICE_FIELDS) or parse_number(fields[0]) is None:
            continue
        index, name, uuid, bus, capability, total, free = fields
        total_bytes = parse_number(total, 1 << 20)
        integrated: bool | None = any(part in name for part in _INTEGRATED_NAMES)
        if not integrated and total_bytes is None:
            integrated = None
        result.append(
            {
                "index": int(index),
                "name": name,
                "uuid": uuid if uuid.startswith("GPU-") else None,
                "pci_bus_id": bus if ":" in bus else None,
                "compute_capability": capability if re.match(r"^\d+\.\d+$", capability) else None,
                "integrated": integrated,
                "brand": None,
                "memory_total_bytes": total_bytes,
                "memory_free_bytes": parse_number(free, 1 << 20),
                "memory_source": None if total_bytes is None else "nvml",
            }
        )
    return result


def parse_smi_query(text: str | None) -> dict[str, t.Any]:
    """The CUDA version of the libcuda that nvidia-smi loaded, and brand by UUID, from C(nvidia-smi -q)."""
    version = None
    brands: dict[str, str] = {}
    brand = None
    for line in (text or "").splitlines():
        key, found, value = (part.strip() for part in line.partition(" : "))
        if not found:
            continue
        if key == "CUDA Version" and re.match(r"^\d+\.\d+$", value):
            version = value
        elif key == "Product Brand":
            brand = value
        elif key == "GPU UUID" and brand:
            brands[value] = brand
            brand = None
    return {"cuda_driver_version": version, "brands": brands}


def parse_compute_apps(text: str | None) -> list[dict[str, t.Any]]:
    """Processes on the GPUs from C(nvidia-smi --query-compute-apps=pid,used_memory --format=csv,noheader,nounits)."""
    found: dict[int, int | None] = {}
    for line in (text or "").splitlines():
        fields = [field.strip() for field in line.split(",")]
        pid = parse_number(fields[0])
        if len(fields) != 2 or pid is None:
            continue
        used = parse_number(fields[1], 1 << 20)
        # One process on several devices has a line for each.
        before = found.get(pid, 0)
        found[pid] = None if used is None or before is None else before + used
    return [{"pid": pid, "used_bytes": used} for pid, used in found.items()]


def parse_nvcc(text: str | None) -> str | None:
    match = re.search(r"release (\d+\.\d+)", text or "")
    return match.group(1) if match else None


def read_gpu(source: Source, machine: str, memory_total: int | None) -> tuple[dict[str, t.Any], list[dict[str, t.Any]]]:
    """The C(gpu) document without anything that must run on the GPU, and the processes that use the devices."""
    text = source.read("/proc/driver/nvidia/version")
    driver_version, open_module = parse_driver_version(text)
    if text is not None and driver_version is None:
        source.fail("/proc/driver/nvidia/version", "the text has no version")
    gpu: dict[str, t.Any] = {
        "machine": machine,
        "driver_present": text is not None,
        "driver_version": driver_version,
        "open_kernel_module": open_module,
        "cuda_driver_version": None,
        "libcuda": False if text is None else None,
        "toolkit_version": read_toolkit(source),
        "devices": [],
        "kernel_launch": None,
        "ptx_jit": None,
        "errors": source.errors,
    }
    if text is None:
        return gpu, []
    binary = source.which("nvidia-smi")
    if binary is None:
        source.fail("nvidia-smi", "the command is missing, so the devices are not known")
        gpu["devices"] = None
        return gpu, []
    listed = source.command([binary, f"--query-gpu={','.join(_DEVICE_FIELDS)}", "--format=csv,noheader,nounits"])
    query = parse_smi_query(source.command([binary, "-q"]))
    apps = parse_compute_apps(
        source.command([binary, "--query-compute-apps=pid,used_memory", "--format=csv,noheader,nounits"])
    )
    gpu["cuda_driver_version"] = query["cuda_driver_version"]
    if listed is None:
        gpu["devices"] = None
        return gpu, apps
    gpu["devices"] = parse_devices(listed)
    for device in gpu["devices"]:
        device["brand"] = query["brands"].get(device["uuid"])
        if device["integrated"] and device["memory_total_bytes"] is None and memory_total is not None:
            device["memory_total_bytes"] = memory_total
            device["memory_source"] = "meminfo"
    return gpu, apps


def read_toolkit(source: Source) -> str | bool | None:
    """The CUDA toolkit of the host; false where there is none. An engine in a container brings its own."""
    binary = source.which("nvcc") or ("/usr/local/cuda/bin/nvcc" if source.exists("/usr/local/cuda/bin/nvcc") else None)
    if binary is None:
        return False
    return parse_nvcc(source.command([binary, "--version"]))
