# Copyright (c) 2026, The sparkgate.blackwell authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

# Note that this module util is **PRIVATE** to the collection. It can have breaking changes at any time.
# Do not use this from other collections or standalone plugins/modules!

from __future__ import annotations

import re
import typing as t

from ansible_collections.sparkgate.blackwell.plugins.module_utils._gpu_probe import (
    Document,
    complete_devices,
    merge_devices,
    parse_bus_id,
    parse_driver_version,
    probe_gpu,
)

if t.TYPE_CHECKING:
    from ansible_collections.sparkgate.blackwell.plugins.module_utils._recon import Source

__all__ = ("parse_driver_version", "read_gpu")

# nvidia-smi wakes up every device where no daemon keeps them awake, which takes seconds with eight of them.
SMI_SECONDS = 20

_DEVICE_FIELDS = ("index", "name", "uuid", "pci.bus_id", "memory.total", "memory.free", "compute_cap")


def parse_number(text: str, scale: int = 1) -> int | None:
    """A number of nvidia-smi; [N/A], [Not Supported] and the like are unknown and never 0."""
    return int(text) * scale if re.match(r"^[0-9]{1,15}$", text.strip()) else None


def parse_devices(text: str | None) -> list[Document]:
    """Devices from C(nvidia-smi --query-gpu=... --format=csv,noheader,nounits), with or without the capability."""
    result = []
    for line in (text or "").splitlines():
        fields = [field.strip() for field in line.split(",")]
        if len(fields) == len(_DEVICE_FIELDS) - 1:
            fields.append("")
        if len(fields) != len(_DEVICE_FIELDS) or parse_number(fields[0]) is None:
            continue
        index, name, uuid, bus, total, free, capability = fields
        total_bytes = parse_number(total, 1 << 20) or None
        result.append(
            {
                "index": int(index),
                "name": name or None,
                "uuid": uuid if uuid.startswith("GPU-") else None,
                "pci_bus_id": parse_bus_id(bus),
                "compute_capability": capability if re.match(r"^[0-9]+\.[0-9]+$", capability) else None,
                "integrated": None,
                "brand": None,
                "memory_total_bytes": total_bytes,
                "memory_free_bytes": parse_number(free, 1 << 20),
                "memory_source": None if total_bytes is None else "nvml",
                "mig": None,
            }
        )
    return result


def parse_smi_query(text: str | None) -> Document:
    """The CUDA version of the libcuda that nvidia-smi loaded, and brand and MIG mode by UUID, from C(nvidia-smi -q)."""
    version = None
    brands: dict[str, str] = {}
    migs: dict[str, bool] = {}
    brand: str | None = None
    mig: bool | None = None
    header = ""
    for line in (text or "").splitlines():
        key, found, value = (part.strip() for part in line.partition(" : "))
        if not found:
            header = line.strip()
            if line.startswith("GPU "):
                brand = mig = None
        elif key == "CUDA Version" and re.match(r"^[0-9]+\.[0-9]+$", value):
            version = value
        elif key == "Product Brand":
            brand = value
        elif key == "Current" and header == "MIG Mode":
            # A device that knows no such mode says N/A.
            mig = {"Enabled": True, "Disabled": False, "N/A": False}.get(value)
        elif key == "GPU UUID":
            if brand:
                brands[value] = brand
            if mig is not None:
                migs[value] = mig
    return {"cuda_driver_version": version, "brands": brands, "migs": migs}


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
    match = re.search(r"release ([0-9]+\.[0-9]+)", text or "")
    return match.group(1) if match else None


def read_gpu(
    source: Source,
    machine: str,
    memory_total: int | None,
    seconds: float | None = None,
    probe: t.Callable[[Document], Document] = probe_gpu,
) -> tuple[Document, list[Document]]:
    """The C(gpu) document of the contract, and the processes that use the devices."""
    gpu = probe(
        {
            "machine": machine,
            "toolkit_version": read_toolkit(source),
            "memory_total_bytes": memory_total,
            "driver_text": source.read("/proc/driver/nvidia/version"),
            "seconds": seconds,
        }
    )
    source.errors.extend(gpu["errors"])
    gpu["errors"] = source.errors
    processes = gpu.pop("processes")
    if any(error["source"] == "nvml" and error["name"] == "not found" for error in gpu["errors"]):
        processes = _read_smi(source, gpu, memory_total)
    return gpu, processes or []


def _read_smi(source: Source, gpu: Document, memory_total: int | None) -> list[Document] | None:
    """What nvidia-smi can say where its library is not to be found by others, put into the document."""
    binary = source.which("nvidia-smi")
    if binary is None:
        source.fail("nvidia-smi", "the command is missing")
        return None
    listed = _query_devices(source, binary, _DEVICE_FIELDS)
    if listed is None:
        # One command that hangs is enough.
        return None
    devices = parse_devices(listed)
    if not devices and listed.strip() and "No devices were found" not in listed:
        source.fail(f"{binary} --query-gpu", "the output has no line that describes a device")
    elif devices or not gpu["devices"]:
        query = parse_smi_query(source.command([binary, "-q"], limit=SMI_SECONDS))
        for device in devices:
            device["brand"] = query["brands"].get(device["uuid"])
            device["mig"] = query["migs"].get(device["uuid"])
        gpu["devices"] = complete_devices(merge_devices(devices, gpu["devices"]), memory_total)
        gpu["cuda_driver_version"] = gpu["cuda_driver_version"] or query["cuda_driver_version"]
    apps = source.command(
        [binary, "--query-compute-apps=pid,used_memory", "--format=csv,noheader,nounits"], limit=SMI_SECONDS
    )
    return None if apps is None else parse_compute_apps(apps)


def _query_devices(source: Source, binary: str, fields: tuple[str, ...]) -> str | None:
    text = source.command([binary, f"--query-gpu={','.join(fields)}", "--format=csv,noheader,nounits"], SMI_SECONDS)
    # Drivers before 510 cannot say what a device is capable of, and refuse the whole question.
    if text is None and fields[-1] == "compute_cap" and "compute_cap" in source.errors[-1]["name"]:
        source.errors.pop()
        return _query_devices(source, binary, fields[:-1])
    return text


def read_toolkit(source: Source) -> str | bool | None:
    """The CUDA toolkit of the host; false where there is none. An engine in a container brings its own."""
    binary = source.which("nvcc") or ("/usr/local/cuda/bin/nvcc" if source.exists("/usr/local/cuda/bin/nvcc") else None)
    if binary is None:
        return False
    return parse_nvcc(source.command([binary, "--version"]))
