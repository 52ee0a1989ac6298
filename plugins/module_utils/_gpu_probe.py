# Copyright (c) 2026, The sparkgate.blackwell authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

# Note that this module util is **PRIVATE** to the collection. It can have breaking changes at any time.
# Do not use this from other collections or standalone plugins/modules!

"""The probe of a GPU, through the driver's own libraries. It runs on nodes and inside containers.

Calls into these libraries hang or crash where something is broken, so they are made in sections that are isolated. A
section is not even started on a machine without a driver.
"""

from __future__ import annotations

import glob
import json
import os
import re
import struct
import time
import typing as t

from ansible_collections.sparkgate.blackwell.plugins.module_utils._cuda_tables import (
    CUDA_ERRORS,
    INTEGRATED_NAMES,
    NVML_BRANDS,
    NVML_ERRORS,
    ptx_version,
)
from ansible_collections.sparkgate.blackwell.plugins.module_utils._sections import isolated

Document = dict[str, t.Any]

VERSION_FILE = "/proc/driver/nvidia/version"
# Where one of these is, a driver may answer: native, in a container, in WSL, on a Jetson.
DRIVER_SIGNS = (VERSION_FILE, "/dev/nvidiactl", "/dev/dxg", "/dev/nvhost-gpu")
# Where images keep the libraries of the forward compatibility, the place that an entrypoint puts on the path first.
COMPAT_PATHS = (
    "/usr/local/cuda/compat/lib.real",
    "/usr/local/cuda/compat/lib",
    "/usr/local/cuda/compat",
    "/usr/local/cuda-*/compat/lib.real",
    "/usr/local/cuda-*/compat",
)
NOTE_SECTION = b".note.cuda.fwd_compatibility"
NOTE_OWNER = b"NVIDIA Corporation"
SIMULATED_SYMBOL = "sparkgate_simulated_gpu_scenario"
PROBE_SECONDS = 60.0

_EXPECTED = 42
# Any GPU from 2017 on takes this, and every libcuda since CUDA 11.0.
_LAUNCH_PTX = ("7.0", "sm_70")
_PTX = """\
.version {version}
.target {target}
.address_size 64

.visible .entry sparkgate_probe(.param .u64 result)
{{
    .reg .b32 %value;
    .reg .b64 %address;
    ld.param.u64 %address, [result];
    cvta.to.global.u64 %address, %address;
    mov.u32 %value, {value};
    st.global.u32 [%address], %value;
    ret;
}}
"""

_NVML_NOT_SUPPORTED = 3
_NVML_INSUFFICIENT_SIZE = 7
_NVML_NO_VALUE = (1 << 64) - 1
_CUDA_NO_DEVICE = 100
_ATTRIBUTE_INTEGRATED = 18
_ATTRIBUTE_MAJOR = 75
_ATTRIBUTE_MINOR = 76


# Parsers: text or bytes in, value out. What is not understood gives None.


def parse_driver_version(text: str | None) -> tuple[str | None, bool | None]:
    """Version and openness of the kernel module from /proc/driver/nvidia/version."""
    for line in (text or "")[:4096].splitlines():
        # The open module writes "NVIDIA UNIX Open Kernel Module for aarch64  580.95.05", the other one has no "for".
        match = re.match(r"^NVRM version:.*Kernel Module\s+(?:for \S+\s+)?([0-9][0-9.]{0,40})", line)
        if match:
            return match.group(1), "Open Kernel Module" in line
    return None, None


def parse_bus_id(text: str | None) -> str | None:
    """A PCI address as NVML writes it, with a domain of eight digits; libcuda writes four where they are enough."""
    match = re.match(r"^([0-9a-f]{1,8}):([0-9a-f]{1,2}):([0-9a-f]{1,2})\.([0-7])$", text or "", re.IGNORECASE)
    if not match:
        return None
    domain, bus, device, function = match.groups()
    return f"{domain.zfill(8)}:{bus.zfill(2)}:{device.zfill(2)}.{function}".upper()


def parse_cuda_version(number: int) -> str | None:
    """13010 is "13.1"."""
    return f"{number // 1000}.{number % 1000 // 10}" if number >= 1000 else None


def parse_library_version(path: str | None) -> str | None:
    """The driver's version in the file name of one of its libraries."""
    match = re.search(r"\.so\.([0-9]{1,9}(?:\.[0-9]{1,9}){1,3})$", path or "")
    return match.group(1) if match else None


def parse_maps(text: str | None, name: str) -> str | None:
    """The file from which a library was mapped, from /proc/self/maps."""
    for line in (text or "").splitlines():
        fields = line.split(None, 5)
        if len(fields) == 6 and fields[5].startswith("/"):
            # A library that was replaced while it is in use is marked so.
            path = re.sub(r" \(deleted\)$", "", fields[5].rstrip())
            if os.path.basename(path).startswith(name):
                return path
    return None


def parse_memory_total(text: str | None) -> int | None:
    match = re.search(r"^MemTotal:[ \t]+([0-9]{1,18}) kB[ \t]*$", text or "", re.MULTILINE)
    return int(match.group(1)) * 1024 if match else None


def parse_note(data: bytes) -> Document | None:
    """What a library says about its own forward compatibility, from the content of its ELF note section.

    A part that the note does not have is None: some libraries name neither drivers nor devices.
    """
    offset = 0
    while offset + 12 <= len(data):
        name_size, size, _kind = struct.unpack_from("<III", data, offset)
        name_start = offset + 12
        start = name_start + (name_size + 3 & ~3)
        if start + size > len(data):
            return None
        if data[name_start : name_start + name_size].rstrip(b"\0") == NOTE_OWNER:
            return _parse_note_text(data[start : start + size])
        offset = start + (size + 3 & ~3)
    return None


def _parse_note_text(data: bytes) -> Document | None:
    try:
        found = json.loads(data.rstrip(b"\0").decode("utf-8"))
    except (ValueError, RecursionError):
        return None
    if not isinstance(found, dict):
        return None
    result: Document = {"cuda": None, "driver": None, "device": None}
    version = found.get("CUDA version")
    if isinstance(version, str) and re.match(r"^[0-9]+\.[0-9]+(\.[0-9]+)?$", version):
        result["cuda"] = version
    for key in ("driver", "device"):
        numbers = found.get(key)
        if isinstance(numbers, list) and all(
            isinstance(number, int) and not isinstance(number, bool) for number in numbers
        ):
            result[key] = numbers
    return result


def elf_section(read_at: t.Callable[[int, int], bytes], name: bytes, limit: int = 1 << 16) -> bytes | None:
    """A section of a 64-bit little-endian ELF file; None where there is none, or the file is something else."""
    header = read_at(0, 64)
    if len(header) < 64 or header[:6] != b"\x7fELF\x02\x01":
        return None
    table = struct.unpack_from("<Q", header, 40)[0]
    entry_size, count, names_index = struct.unpack_from("<HHH", header, 58)
    if entry_size != 64 or names_index >= count:
        return None
    sections = read_at(table, entry_size * count)
    if len(sections) < entry_size * count:
        return None

    def content(index: int, most: int) -> bytes | None:
        offset, size = struct.unpack_from("<QQ", sections, index * entry_size + 24)
        data = read_at(offset, size) if size <= most else b""
        return data if len(data) == size else None

    names = content(names_index, 1 << 20)
    if names is None:
        return None
    for index in range(count):
        start = struct.unpack_from("<I", sections, index * entry_size)[0]
        if names[start : start + len(name) + 1] == name + b"\0":
            return content(index, limit)
    return None


def read_note(path: str) -> Document | None:
    """The forward compatibility note of a library's file; None where it has none."""
    with open(path, "rb") as stream:
        size = os.fstat(stream.fileno()).st_size

        def read_at(offset: int, length: int) -> bytes:
            if offset > size:
                return b""
            stream.seek(offset)
            return stream.read(length)

        data = elf_section(read_at, NOTE_SECTION)
    return None if data is None else parse_note(data)


def find_compat(paths: t.Iterable[str] = COMPAT_PATHS) -> Document | bool:
    """The first directory that holds libraries for forward compatibility, used or not; False where there is none."""
    for pattern in paths:
        for directory in sorted(glob.glob(pattern), reverse=True):
            for name in (
                "libcuda.so.1",
                *sorted(os.path.basename(path) for path in glob.glob(f"{directory}/libcuda.so.*")),
            ):
                file = os.path.realpath(os.path.join(directory, name))
                if not os.path.isfile(file):
                    continue
                try:
                    note = read_note(file)
                except OSError:
                    note = None
                return {"path": directory, "version": parse_library_version(file), "note": note}
    return False


def is_forward_compat(path: str | None, version: str | None, driver_version: str | None) -> bool | None:
    """Whether a libcuda is not the driver's own, but one of a newer release on top of it."""
    if path is None:
        return None
    if "compat" in path.split("/"):
        return True
    if version is None or driver_version is None:
        return None
    return _numbers(version) > _numbers(driver_version)


def _numbers(version: str) -> list[int]:
    return [int(part) for part in re.findall(r"[0-9]{1,9}", version)]


# Native calls. The functions from here to the sections run in a child only.


class NativeError(Exception):
    """A call that answered with an error."""

    def __init__(self, call: str, code: int) -> None:
        super().__init__(f"{call} answered {code}")
        self.call = call
        self.code = code


class Native:
    """A library of the driver, whose functions all answer with a code."""

    def __init__(self, name: str) -> None:
        import ctypes

        self.functions = ctypes.CDLL(name)

    def call(self, name: str, *arguments: t.Any) -> None:
        code = int(getattr(self.functions, name)(*arguments))
        if code != 0:
            raise NativeError(name, code)

    def simulated(self) -> str | bool:
        import ctypes

        try:
            value = ctypes.c_char_p.in_dll(self.functions, SIMULATED_SYMBOL).value
        except ValueError:
            return False
        return (value or b"").decode("utf-8", "replace") or "unnamed"


def cuda_error(code: int) -> str:
    return CUDA_ERRORS.get(code, f"CUDA error {code}")


def _text(buffer: t.Any) -> str | None:
    return buffer.value.decode("utf-8", "replace").strip() or None


class _Readings:
    """Collects what failed, so that one reading loses no other."""

    def __init__(self, source: str, names: dict[int, str]) -> None:
        self.source = source
        self.names = names
        self.errors: list[Document] = []

    def add(self, code: int | None, name: str, call: str) -> None:
        entry = {"source": self.source, "code": code, "name": name, "call": call}
        # Eight devices that lack the same thing are one piece of news.
        if entry not in self.errors:
            self.errors.append(entry)

    def get(self, read: t.Callable[[], t.Any], otherwise: dict[int, t.Any] | None = None) -> t.Any:
        """The value, or None and an error; some codes are an answer."""
        try:
            return read()
        except NativeError as error:
            if otherwise and error.code in otherwise:
                return otherwise[error.code]
            self.add(error.code, self.names.get(error.code, f"error {error.code}"), error.call)
        except AttributeError as error:
            # ctypes says which function the library lacks.
            self.add(None, str(error)[:500], "")
        return None


def _load(name: str) -> Native | str:
    """The library, or why there is none."""
    try:
        return Native(name)
    except OSError as error:
        text = str(error)
        return "not found" if text.startswith(f"{name}: cannot open shared object file") else text[:500]


def section_nvml(request: Document) -> Document:
    """What the management library knows. It needs no context on a device, so it answers where CUDA does not."""
    import ctypes

    nvml = _load(request["nvml"])
    if isinstance(nvml, str):
        return {"missing": nvml}
    readings = _Readings("nvml", NVML_ERRORS)
    result: Document = {"simulated": nvml.simulated(), "devices": None, "errors": readings.errors}

    class Pci(ctypes.Structure):
        _fields_ = [
            ("legacy", ctypes.c_char * 16),
            ("numbers", ctypes.c_uint * 5),
            ("bus_id", ctypes.c_char * 32),
        ]

    class Memory(ctypes.Structure):
        _fields_ = [("total", ctypes.c_ulonglong), ("free", ctypes.c_ulonglong), ("used", ctypes.c_ulonglong)]

    class Process(ctypes.Structure):
        _fields_ = [
            ("pid", ctypes.c_uint),
            ("used", ctypes.c_ulonglong),
            ("gpu_instance", ctypes.c_uint),
            ("compute_instance", ctypes.c_uint),
        ]

    def text(name: str, *first: t.Any) -> str | None:
        buffer = ctypes.create_string_buffer(256)
        nvml.call(name, *first, buffer, ctypes.c_uint(len(buffer)))
        return _text(buffer)

    def number(name: str, *first: t.Any) -> int:
        value = ctypes.c_int()
        nvml.call(name, *first, ctypes.byref(value))
        return value.value

    def capability(handle: t.Any) -> str:
        major, minor = ctypes.c_int(), ctypes.c_int()
        nvml.call("nvmlDeviceGetCudaComputeCapability", handle, ctypes.byref(major), ctypes.byref(minor))
        return f"{major.value}.{minor.value}"

    def bus_id(handle: t.Any) -> str | None:
        pci = Pci()
        nvml.call("nvmlDeviceGetPciInfo_v3", handle, ctypes.byref(pci))
        return parse_bus_id(pci.bus_id.decode("ascii", "replace"))

    def memory(handle: t.Any) -> tuple[int | None, int | None]:
        found = Memory()
        nvml.call("nvmlDeviceGetMemoryInfo", handle, ctypes.byref(found))
        # No device has no memory, so 0 of it is a reading that failed.
        return (found.total, found.free) if found.total else (None, None)

    def mig(handle: t.Any) -> bool:
        current, pending = ctypes.c_uint(), ctypes.c_uint()
        nvml.call("nvmlDeviceGetMigMode", handle, ctypes.byref(current), ctypes.byref(pending))
        return current.value == 1

    def processes(handle: t.Any) -> list[tuple[int, int | None]]:
        name = "nvmlDeviceGetComputeRunningProcesses_v3"
        for size in (128, 4096):
            entries = (Process * size)()
            count = ctypes.c_uint(size)
            try:
                nvml.call(name, handle, ctypes.byref(count), entries)
            except NativeError as error:
                if error.code == _NVML_INSUFFICIENT_SIZE and size == 128:
                    continue
                raise
            return [
                (entry.pid, None if entry.used == _NVML_NO_VALUE else entry.used)
                for entry in entries[: min(size, count.value)]
            ]
        return []

    def device(index: int) -> Document:
        found: Document = {
            "index": index,
            "name": None,
            "uuid": None,
            "pci_bus_id": None,
            "compute_capability": None,
            "integrated": None,
            "brand": None,
            "memory_total_bytes": None,
            "memory_free_bytes": None,
            "memory_source": None,
            "mig": None,
        }
        handle = ctypes.c_void_p()
        get = readings.get

        def open_device() -> bool:
            nvml.call("nvmlDeviceGetHandleByIndex_v2", ctypes.c_uint(index), ctypes.byref(handle))
            return True

        if not get(open_device):
            return found
        found["name"] = get(lambda: text("nvmlDeviceGetName", handle))
        found["uuid"] = get(lambda: text("nvmlDeviceGetUUID", handle))
        found["pci_bus_id"] = get(lambda: bus_id(handle))
        found["compute_capability"] = get(lambda: capability(handle))
        brand = get(lambda: number("nvmlDeviceGetBrand", handle))
        found["brand"] = NVML_BRANDS.get(brand) if brand is not None else None
        total, free = get(lambda: memory(handle)) or (None, None)
        found.update(memory_total_bytes=total, memory_free_bytes=free, memory_source="nvml" if total else None)
        found["mig"] = get(lambda: mig(handle), {_NVML_NOT_SUPPORTED: False})
        holders = get(lambda: processes(handle))
        if holders is None:
            known[0] = False
        for pid, used in holders or []:
            # One process on several devices has an entry for each.
            before = used_by.get(pid, 0)
            used_by[pid] = None if used is None or before is None else before + used
        return found

    def initialise() -> bool:
        nvml.call("nvmlInit_v2")
        return True

    used_by: dict[int, int | None] = {}
    known = [True]
    if not readings.get(initialise):
        return result
    result["driver_version"] = readings.get(lambda: text("nvmlSystemGetDriverVersion"))
    version = readings.get(lambda: number("nvmlSystemGetCudaDriverVersion_v2"))
    result["cuda_driver_version"] = None if version is None else parse_cuda_version(version)
    count = readings.get(lambda: number("nvmlDeviceGetCount_v2"))
    if count is not None:
        result["devices"] = [device(index) for index in range(count)]
        listed = [{"pid": pid, "used_bytes": used} for pid, used in used_by.items()]
        result["processes"] = listed if known[0] or listed else None
    readings.get(lambda: nvml.call("nvmlShutdown"))
    return result


def section_libcuda(request: Document) -> Document:
    """Which libcuda the loader really gives, and its version. This works before and without any device."""
    import ctypes

    cuda = _load(request["cuda"])
    if isinstance(cuda, str):
        return {"missing": cuda}
    with open("/proc/self/maps", encoding="utf-8", errors="replace") as stream:
        maps = stream.read()
    name = os.path.basename(os.path.realpath(request["cuda"])) if "/" in request["cuda"] else "libcuda.so"
    path = parse_maps(maps, name)
    readings = _Readings("libcuda", CUDA_ERRORS)
    if path is None:
        readings.add(None, "the file that was loaded is not among the mapped files", "")

    def version() -> str | None:
        number = ctypes.c_int()
        cuda.call("cuDriverGetVersion", ctypes.byref(number))
        return parse_cuda_version(number.value)

    note = None
    if path is not None:
        try:
            note = read_note(path)
        except OSError as error:
            readings.add(error.errno, error.strerror or str(error), path)
    return {
        "simulated": cuda.simulated(),
        "path": path,
        "cuda_driver_version": readings.get(version),
        "note": note,
        "errors": readings.errors,
    }


def _start_cuda(request: Document) -> Native:
    # In the order of NVML, and without leaving compiled code behind or taking it from an earlier run.
    os.environ["CUDA_DEVICE_ORDER"] = "PCI_BUS_ID"
    os.environ["CUDA_CACHE_DISABLE"] = "1"
    import ctypes

    cuda = Native(request["cuda"])
    cuda.call("cuInit", ctypes.c_uint(0))
    return cuda


def _count_devices(cuda: Native) -> int:
    import ctypes

    count = ctypes.c_int()
    cuda.call("cuDeviceGetCount", ctypes.byref(count))
    return count.value


def section_devices(request: Document) -> Document:
    """The devices as CUDA offers them; a code other than 0 says that it offers none."""
    import ctypes

    try:
        cuda = _start_cuda(request)
        count = _count_devices(cuda)
    except NativeError as error:
        return {"code": error.code, "call": error.call, "devices": None, "errors": []}
    readings = _Readings("libcuda", CUDA_ERRORS)

    def device(index: int) -> Document | None:
        handle = ctypes.c_int()

        def open_device() -> bool:
            cuda.call("cuDeviceGet", ctypes.byref(handle), ctypes.c_int(index))
            return True

        def attribute(number: int) -> int:
            value = ctypes.c_int()
            cuda.call("cuDeviceGetAttribute", ctypes.byref(value), ctypes.c_int(number), handle)
            return value.value

        def text(name: str) -> str | None:
            buffer = ctypes.create_string_buffer(256)
            cuda.call(name, buffer, ctypes.c_int(len(buffer)), handle)
            return _text(buffer)

        def identifier() -> str:
            raw = (ctypes.c_ubyte * 16)()
            # The second version tells the part of a MIG device from the whole.
            name = "cuDeviceGetUuid_v2" if hasattr(cuda.functions, "cuDeviceGetUuid_v2") else "cuDeviceGetUuid"
            cuda.call(name, raw, handle)
            digits = bytes(raw).hex()
            return "-".join([digits[:8], digits[8:12], digits[12:16], digits[16:20], digits[20:]])

        def total() -> int | None:
            size = ctypes.c_size_t()
            cuda.call("cuDeviceTotalMem_v2", ctypes.byref(size), handle)
            return size.value or None

        get = readings.get
        if not get(open_device):
            return None
        integrated = get(lambda: attribute(_ATTRIBUTE_INTEGRATED))
        return {
            "name": get(lambda: text("cuDeviceGetName")),
            "uuid": get(identifier),
            "pci_bus_id": parse_bus_id(get(lambda: text("cuDeviceGetPCIBusId"))),
            "compute_capability": get(lambda: f"{attribute(_ATTRIBUTE_MAJOR)}.{attribute(_ATTRIBUTE_MINOR)}"),
            "integrated": None if integrated is None else bool(integrated),
            "memory_total_bytes": get(total),
        }

    devices = [found for found in map(device, range(count)) if found is not None]
    return {"code": 0, "call": None, "devices": devices, "errors": readings.errors}


def section_launch(request: Document) -> Document:
    """Run a kernel on each device and read back what it wrote."""
    result: Document = {"ok": False, "code": 0, "error": "there is no device"}
    try:
        cuda = _start_cuda(request)
        for index in range(_count_devices(cuda)):
            value = _launch(cuda, index)
            if value != _EXPECTED:
                result["error"] = (
                    f"device {index}: the kernel should have written {_EXPECTED}, but {value} was read back"
                )
                return result
            result.update(ok=True, error=None)
    except NativeError as error:
        result.update(ok=False, code=error.code, error=cuda_error(error.code), call=error.call)
    return result


def _ptx(version: str, target: str) -> bytes:
    return _PTX.format(version=version, target=target, value=_EXPECTED).encode()


def _launch(cuda: Native, index: int) -> int:
    import ctypes

    device, context, module, function = ctypes.c_int(), ctypes.c_void_p(), ctypes.c_void_p(), ctypes.c_void_p()
    address = ctypes.c_uint64()
    value = ctypes.c_uint32()
    one, zero = ctypes.c_uint(1), ctypes.c_uint(0)
    cuda.call("cuDeviceGet", ctypes.byref(device), ctypes.c_int(index))
    cuda.call("cuDevicePrimaryCtxRetain", ctypes.byref(context), device)
    cuda.call("cuCtxSetCurrent", context)
    cuda.call("cuModuleLoadData", ctypes.byref(module), ctypes.c_char_p(_ptx(*_LAUNCH_PTX)))
    cuda.call("cuModuleGetFunction", ctypes.byref(function), module, ctypes.c_char_p(b"sparkgate_probe"))
    cuda.call("cuMemAlloc_v2", ctypes.byref(address), ctypes.c_size_t(4))
    # Memory may still hold the right value of an earlier run.
    cuda.call("cuMemsetD32_v2", address, ctypes.c_uint(0), ctypes.c_size_t(1))
    arguments = (ctypes.c_void_p * 1)(ctypes.addressof(address))
    cuda.call("cuLaunchKernel", function, one, one, one, one, one, one, zero, None, arguments, None)
    cuda.call("cuCtxSynchronize")
    cuda.call("cuMemcpyDtoH_v2", ctypes.byref(value), address, ctypes.c_size_t(4))
    cuda.call("cuMemFree_v2", address)
    cuda.call("cuModuleUnload", module)
    cuda.call("cuDevicePrimaryCtxRelease_v2", device)
    return value.value


def section_jit(request: Document) -> Document:
    """Whether the driver takes PTX of the version that the toolkit writes. A driver can pass all else and refuse it."""
    import ctypes

    try:
        cuda = _start_cuda(request)
        device, context, module = ctypes.c_int(), ctypes.c_void_p(), ctypes.c_void_p()
        cuda.call("cuDeviceGet", ctypes.byref(device), ctypes.c_int(0))
        cuda.call("cuDevicePrimaryCtxRetain", ctypes.byref(context), device)
        cuda.call("cuCtxSetCurrent", context)
        ptx = _ptx(request["ptx_version"], _LAUNCH_PTX[1])
        cuda.call("cuModuleLoadData", ctypes.byref(module), ctypes.c_char_p(ptx))
    except NativeError as error:
        if error.call != "cuModuleLoadData":
            # Not an answer to the question.
            return {"code": None, "error": {"code": error.code, "name": cuda_error(error.code), "call": error.call}}
        return {"code": error.code, "error": None}
    return {"code": 0, "error": None}


# The document.


def merge_devices(nvml: list[Document] | None, cuda: list[Document] | None) -> list[Document] | None:
    """One list of devices from what NVML and CUDA said; either may be None."""
    if nvml is None:
        return None if cuda is None else [_from_cuda(index, device) for index, device in enumerate(cuda)]
    result = []
    for device in nvml:
        merged = dict(device)
        twin = next((item for item in cuda or [] if _same(device, item)), None)
        if twin is not None:
            for key in ("name", "compute_capability", "integrated"):
                merged[key] = merged[key] if merged[key] is not None else twin[key]
            if merged["mig"] or (merged["memory_total_bytes"] is None and twin["integrated"] is False):
                # Of a GPU in MIG mode CUDA offers a part, and that is what a program gets.
                merged.update(memory_total_bytes=twin["memory_total_bytes"], memory_free_bytes=None)
                merged["memory_source"] = "cuda" if twin["memory_total_bytes"] is not None else None
            if merged["mig"] and twin["name"] is not None:
                merged["name"] = twin["name"]
        result.append(merged)
    return result


def _same(nvml: Document, cuda: Document) -> bool:
    if nvml["pci_bus_id"] is not None and cuda["pci_bus_id"] is not None:
        return bool(nvml["pci_bus_id"] == cuda["pci_bus_id"])
    return nvml["uuid"] is not None and cuda["uuid"] is not None and nvml["uuid"].endswith(cuda["uuid"])


def _from_cuda(index: int, device: Document) -> Document:
    total = device["memory_total_bytes"]
    return {
        "index": index,
        "name": device["name"],
        "uuid": f"GPU-{device['uuid']}" if device["uuid"] else None,
        "pci_bus_id": device["pci_bus_id"],
        "compute_capability": device["compute_capability"],
        "integrated": device["integrated"],
        "brand": None,
        "memory_total_bytes": total,
        "memory_free_bytes": None,
        "memory_source": None if total is None else "cuda",
        "mig": None,
    }


def complete_devices(devices: list[Document] | None, memory_total: int | None) -> list[Document] | None:
    """Say of each device whether it shares the machine's memory, and give it that memory where it does."""
    for device in devices or []:
        if device["integrated"] is None and device["name"] is not None:
            if any(part in device["name"] for part in INTEGRATED_NAMES):
                device["integrated"] = True
            elif device["memory_source"] == "nvml":
                device["integrated"] = False
        # CUDA answers with the machine's memory too, but less exactly.
        if device["integrated"] and device["memory_source"] != "nvml" and memory_total is not None:
            device.update(memory_total_bytes=memory_total, memory_source="meminfo")
    return devices


def empty_document(machine: str) -> Document:
    """All keys of the contract, for a machine without a driver."""
    return {
        "machine": machine,
        "driver_present": False,
        "driver_version": None,
        "open_kernel_module": None,
        "cuda_driver_version": None,
        "libcuda": False,
        "toolkit_version": False,
        "devices": [],
        "kernel_launch": None,
        "ptx_jit": None,
        "processes": [],
        "simulated": False,
        "errors": [],
    }


def _read(path: str) -> str | None:
    try:
        with open(path, "rb") as stream:
            return stream.read(1 << 20).decode("utf-8", "replace")
    except OSError:
        return None


def probe_gpu(request: Document) -> Document:
    """The C(gpu) document, from the driver's libraries. Every key of the request may be left out.

    C(machine), C(toolkit_version) (false where there is no toolkit) and C(memory_total_bytes) are what the caller
    knows already. C(seconds) bounds the whole probe. Without C(launch) nothing is run on the device, and the document
    has neither C(kernel_launch) nor C(ptx_jit), which says that they were not asked. C(driver_text) replaces
    /proc/driver/nvidia/version, C(nvml) and C(cuda) the names of the libraries.
    """
    request = {"nvml": "libnvidia-ml.so.1", "cuda": "libcuda.so.1", **request}
    document = empty_document(request.get("machine") or os.uname().machine)
    document["toolkit_version"] = request.get("toolkit_version", False)
    if document["toolkit_version"] is False:
        # Nobody writes PTX here, so there is nothing to ask.
        document["ptx_jit"] = False
    launch = request.get("launch", True)
    if not launch:
        del document["kernel_launch"], document["ptx_jit"]
    driver_text = request["driver_text"] if "driver_text" in request else _read(VERSION_FILE)
    if driver_text is None and not any(os.path.exists(path) for path in DRIVER_SIGNS):
        return document
    _Probe(request, document, driver_text).run(launch)
    return document


class _Probe:
    """One run over the sections, within one time."""

    def __init__(self, request: Document, document: Document, driver_text: str | None) -> None:
        self.request = request
        self.document = document
        self.driver_text = driver_text
        self.seconds = float(request.get("seconds") or PROBE_SECONDS)
        self.end = time.monotonic() + self.seconds

    def fail(self, source: str, code: int | None, name: str, **more: t.Any) -> None:
        self.document["errors"].append({"source": source, "code": code, "name": name, **more})

    def section(self, name: str, function: t.Callable[[Document], Document]) -> Document | None:
        # One that hangs must leave something for the others.
        seconds = min(self.seconds / 3, self.end - time.monotonic())
        if seconds <= 0:
            self.fail(name, None, "no time was left for this section")
            return None
        value, error = isolated(function, self.request, seconds)
        if error is not None:
            self.fail(name, error["code"], error["name"])
            return None
        self.document["errors"].extend(value.get("errors") or [])
        if value.get("simulated"):
            self.document["simulated"] = value["simulated"]
        if value.get("missing"):
            self.fail(name, None, value["missing"])
        return t.cast("Document", value)

    def run(self, launch: bool) -> None:
        document = self.document
        version, opened = parse_driver_version(self.driver_text)
        if self.driver_text is not None and version is None:
            self.fail(VERSION_FILE, None, "the text has no version")
        nvml = self.section("nvml", section_nvml) or {}
        # Without the kernel module's own text, the library's word is the next best.
        document["driver_version"] = version or nvml.get("driver_version")
        document["open_kernel_module"] = opened
        document["processes"] = nvml.get("processes")
        found = self.libcuda()
        document["cuda_driver_version"] = found.get("cuda_driver_version") or nvml.get("cuda_driver_version")
        devices = self.devices() if document["libcuda"] else None
        cuda = devices["devices"] if devices else None
        document["driver_present"] = bool(
            self.driver_text is not None or document["driver_version"] or (devices and devices["code"] == 0)
        )
        merged = merge_devices(nvml.get("devices"), cuda)
        if merged is None and devices and devices["code"] == _CUDA_NO_DEVICE:
            merged = []
        total = self.request.get("memory_total_bytes") or parse_memory_total(_read("/proc/meminfo"))
        document["devices"] = complete_devices(merged, total)
        if launch and devices:
            self.launch(devices)

    def libcuda(self) -> Document:
        document = self.document
        found = self.section("libcuda", section_libcuda)
        if found is None or (found.get("missing") and found["missing"] != "not found"):
            document["libcuda"] = None
        elif found.get("missing"):
            document["libcuda"] = False
        else:
            version = parse_library_version(found["path"])
            document["libcuda"] = {
                "path": found["path"],
                "version": version,
                "forward_compat": is_forward_compat(found["path"], version, document["driver_version"]),
                "note": found["note"],
            }
        return found or {}

    def devices(self) -> Document | None:
        found = self.section("cuda", section_devices)
        if found is not None and found["code"] != 0:
            self.fail("libcuda", found["code"], cuda_error(found["code"]), call=found["call"])
        return found

    def launch(self, devices: Document) -> None:
        document = self.document
        if devices["code"] != 0:
            # It was tried as far as it goes.
            document["kernel_launch"] = {"ok": False, "code": devices["code"], "error": cuda_error(devices["code"])}
        else:
            document["kernel_launch"] = self.section("kernel_launch", section_launch)
        toolkit = document["toolkit_version"]
        if toolkit is False:
            return
        written = ptx_version(toolkit) if toolkit else None
        if written is None:
            self.fail(
                "ptx_jit", None, f"the PTX version of CUDA {toolkit} is not known" if toolkit else "no toolkit version"
            )
        elif devices["code"] == 0:
            self.request["ptx_version"] = written
            answer = self.section("ptx_jit", section_jit)
            if answer is not None and answer["error"]:
                self.fail("ptx_jit", **answer["error"])
            elif answer is not None:
                document["ptx_jit"] = {"ptx_version": written, "code": answer["code"]}
