# Copyright (c) 2026, The sparkgate.blackwell authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

import io
import json
import os
import shutil
import struct
import subprocess
import time
import typing as t
from pathlib import Path

import pytest
from ansible_collections.sparkgate.blackwell.plugins.module_utils import _cuda_tables, _gpu, _gpu_probe
from hypothesis import given, settings
from hypothesis import strategies as st

OPEN = "NVRM version: NVIDIA UNIX Open Kernel Module for aarch64  580.95.05  Release Build\n"
DRIVERS = [535, 550, 570, 575, 580, 590]
DEVICES = [1, 2, 7, 8, 9, 10, 11, 12, 13, 14]
NOTE_TEXT = json.dumps({"format": 1, "CUDA version": "13.1", "driver": DRIVERS, "device": DEVICES}).encode()
NOTE = {"cuda": "13.1", "driver": DRIVERS, "device": DEVICES}


def make_note(text: bytes, owner: bytes = b"NVIDIA Corporation\0") -> bytes:
    def pad(data: bytes) -> bytes:
        return data + b"\0" * (-len(data) % 4)

    return struct.pack("<III", len(owner), len(text), 1) + pad(owner) + pad(text)


def make_elf(sections: dict[bytes, bytes]) -> bytes:
    """A 64-bit little-endian ELF file with these sections and the table of their names."""
    names = b"\0" + b"".join(name + b"\0" for name in [*sections, b".shstrtab"])
    body, headers = b"", [bytes(64)]
    for name, content in {**sections, b".shstrtab": names}.items():
        header = struct.pack(
            "<IIQQQQIIQQ", names.index(name + b"\0"), 7, 0, 0, 64 + len(body), len(content), 0, 0, 4, 0
        )
        headers.append(header)
        body += content
    start = b"\x7fELF\x02\x01\x01" + bytes(9) + struct.pack("<HHIQQQI", 3, 62, 1, 0, 0, 64 + len(body), 0)
    return start + struct.pack("<HHHHHH", 64, 0, 0, 64, len(headers), len(headers) - 1) + body + b"".join(headers)


ELF = make_elf({b".text": b"\x90" * 40, b".note.cuda.fwd_compatibility": make_note(NOTE_TEXT)})


def reader(data: bytes) -> t.Callable[[int, int], bytes]:
    def read_at(offset: int, size: int) -> bytes:
        stream = io.BytesIO(data)
        stream.seek(min(offset, len(data)))
        return stream.read(size)

    return read_at


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("0000000F:01:00.0", "0000000F:01:00.0"),
        # libcuda writes four digits, and small ones in lower case.
        ("000f:01:00.0", "0000000F:01:00.0"),
        ("0000:c1:00.0", "00000000:C1:00.0"),
        ("0:1", None),
        ("[N/A]", None),
        ("", None),
        (None, None),
    ],
)
def test_parse_bus_id(text: str | None, expected: str | None) -> None:
    assert _gpu_probe.parse_bus_id(text) == expected


@pytest.mark.parametrize(("number", "expected"), [(13010, "13.1"), (12080, "12.8"), (13000, "13.0"), (0, None)])
def test_parse_cuda_version(number: int, expected: str | None) -> None:
    assert _gpu_probe.parse_cuda_version(number) == expected


@pytest.mark.parametrize(
    ("path", "expected"),
    [
        ("/usr/lib/aarch64-linux-gnu/libcuda.so.580.95.05", "580.95.05"),
        ("/usr/lib/libcuda.so.570.26", "570.26"),
        ("/usr/lib/wsl/lib/libcuda.so.1", None),
        ("/usr/local/cuda/lib64/stubs/libcuda.so", None),
        (None, None),
    ],
)
def test_parse_library_version(path: str | None, expected: str | None) -> None:
    assert _gpu_probe.parse_library_version(path) == expected


MAPS = """\
7f00-7f01 r--p 00000000 fe:01 11 /usr/lib/x86_64-linux-gnu/libc.so.6
7f01-7f02 rw-p 00000000 00:00 0
7f02-7f03 r--p 00000000 fe:01 12 /opt/with a space/libcuda.so.590.48.01
7f03-7f04 r-xp 00000000 fe:01 12 /usr/lib/libcuda.so.1
"""


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (MAPS, "/opt/with a space/libcuda.so.590.48.01"),
        ("1-2 r--p 0 0:0 1 /lib/libcuda.so.580.95.05 (deleted)\n", "/lib/libcuda.so.580.95.05"),
        ("1-2 r--p 0 0:0 1 /lib/libcudart.so.13\n", None),
        ("1-2 r--p 0 0:0 1 [heap]", None),
        (None, None),
    ],
)
def test_parse_maps(text: str | None, expected: str | None) -> None:
    assert _gpu_probe.parse_maps(text, "libcuda.so") == expected


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("MemTotal:       127601388 kB\nMemFree: 1 kB\n", 127601388 * 1024),
        ("MemTotal: many kB\n", None),
        (None, None),
    ],
)
def test_parse_memory_total(text: str | None, expected: int | None) -> None:
    assert _gpu_probe.parse_memory_total(text) == expected


@pytest.mark.parametrize(
    ("data", "expected"),
    [
        (make_note(NOTE_TEXT), NOTE),
        (make_note(b"{}", b"GNU\0") + make_note(NOTE_TEXT + b"\0"), NOTE),
        # The library for Orin names neither drivers nor devices.
        (make_note(b'{"format": 1, "CUDA version": "13.2.1"}'), {"cuda": "13.2.1", "driver": None, "device": None}),
        (make_note(b'{"driver": ["580"], "device": 3}'), {"cuda": None, "driver": None, "device": None}),
        (make_note(b"[]"), None),
        (make_note(b"not JSON"), None),
        (make_note(NOTE_TEXT, b"GNU\0"), None),
        (make_note(NOTE_TEXT)[:-8], None),
        (b"", None),
    ],
)
def test_parse_note(data: bytes, expected: dict[str, t.Any] | None) -> None:
    assert _gpu_probe.parse_note(data) == expected


@pytest.mark.parametrize(
    ("data", "expected"),
    [
        (ELF, make_note(NOTE_TEXT)),
        (make_elf({b".note.cuda.fwd_compatibility.other": b"x"}), None),
        (make_elf({b".note.cuda.fwd_compatibility": b"x" * 70000}), None),
        (b"\x7fELF\x01\x01" + bytes(60), None),
        (ELF[:-65], None),
        (b"#!/bin/sh\n", None),
        (b"", None),
    ],
)
def test_elf_section(data: bytes, expected: bytes | None) -> None:
    assert _gpu_probe.elf_section(reader(data), _gpu_probe.NOTE_SECTION) == expected


def test_find_compat(tmp_path: Path) -> None:
    directory = tmp_path / "cuda-13.1" / "compat" / "lib.real"
    assert _gpu_probe.find_compat([str(directory)]) is False
    directory.mkdir(parents=True)
    (directory / "libcuda.so.1").symlink_to("libcuda.so.590.48.01")
    # A link to nothing is no library.
    assert _gpu_probe.find_compat([str(directory)]) is False
    (directory / "libcuda.so.590.48.01").write_bytes(ELF)
    expected = {"path": str(directory), "version": "590.48.01", "note": NOTE}
    assert _gpu_probe.find_compat([str(tmp_path / "no"), str(tmp_path / "cuda-*" / "compat" / "lib.real")]) == expected
    (directory / "libcuda.so.590.48.01").write_bytes(b"rubbish")
    assert _gpu_probe.find_compat([str(directory)]) == {**expected, "note": None}
    (directory / "libcuda.so.1").unlink()
    assert _gpu_probe.find_compat([str(directory)]) == {**expected, "note": None}


@pytest.mark.parametrize(
    ("path", "version", "driver", "expected"),
    [
        ("/usr/lib/libcuda.so.580.95.05", "580.95.05", "580.95.05", False),
        ("/usr/local/cuda/compat/lib.real/libcuda.so.590.48.01", "590.48.01", "580.95.05", True),
        # Older than the driver and found first all the same: it answers 803.
        ("/usr/local/cuda-12.9/compat/libcuda.so.575.57.08", "575.57.08", "580.95.05", True),
        ("/opt/libcuda.so.590.48.01", "590.48.01", "580.95.05", True),
        ("/usr/lib/libcuda.so.580.9.1", "580.9.1", "580.95.05", False),
        ("/usr/lib/wsl/lib/libcuda.so.1", None, "580.95.05", None),
        ("/usr/lib/libcuda.so.580.95.05", "580.95.05", None, None),
        (None, None, None, None),
    ],
)
def test_is_forward_compat(path: str | None, version: str | None, driver: str | None, expected: bool | None) -> None:
    assert _gpu_probe.is_forward_compat(path, version, driver) is expected


def nvml_device(**changes: t.Any) -> dict[str, t.Any]:
    return {
        "index": 0,
        "name": "NVIDIA H200",
        "uuid": "GPU-aa-bb",
        "pci_bus_id": "00000000:01:00.0",
        "compute_capability": "9.0",
        "integrated": None,
        "brand": "NVIDIA",
        "memory_total_bytes": 150000000000,
        "memory_free_bytes": 149000000000,
        "memory_source": "nvml",
        "mig": False,
        **changes,
    }


def cuda_device(**changes: t.Any) -> dict[str, t.Any]:
    return {
        "name": "NVIDIA H200",
        "uuid": "aa-bb",
        "pci_bus_id": "00000000:01:00.0",
        "compute_capability": "9.0",
        "integrated": False,
        "memory_total_bytes": 149500000000,
        **changes,
    }


NO_MEMORY = {"memory_total_bytes": None, "memory_free_bytes": None, "memory_source": None}
GB10 = {"name": "NVIDIA GB10", "pci_bus_id": "0000000F:01:00.0", "compute_capability": "12.1"}
MACHINE = 130664833024


@pytest.mark.parametrize(
    ("nvml", "cuda", "expected"),
    [
        (None, None, None),
        ([], None, []),
        ([nvml_device()], [cuda_device()], [nvml_device(integrated=False)]),
        # Memory that NVML knows belongs to the device alone.
        ([nvml_device()], None, [nvml_device(integrated=False)]),
        (
            [nvml_device(**GB10, **NO_MEMORY)],
            [cuda_device(**GB10, integrated=True, memory_total_bytes=1)],
            [
                nvml_device(
                    **GB10, integrated=True, **{**NO_MEMORY, "memory_total_bytes": MACHINE, "memory_source": "meminfo"}
                )
            ],
        ),
        # CUDA is broken; the name still tells.
        (
            [nvml_device(**GB10, **NO_MEMORY)],
            None,
            [
                nvml_device(
                    **GB10, integrated=True, **{**NO_MEMORY, "memory_total_bytes": MACHINE, "memory_source": "meminfo"}
                )
            ],
        ),
        # Unknown stays unknown: it is not 0, and no proof of shared memory.
        ([nvml_device(**NO_MEMORY)], None, [nvml_device(**NO_MEMORY)]),
        (
            [nvml_device(**NO_MEMORY)],
            [cuda_device()],
            [
                nvml_device(
                    integrated=False, memory_total_bytes=149500000000, memory_free_bytes=None, memory_source="cuda"
                )
            ],
        ),
        # Of a GPU in MIG mode a program gets a part.
        (
            [nvml_device(mig=True)],
            [cuda_device(name="NVIDIA H200 MIG 1g.18gb", uuid="cc", memory_total_bytes=18000000000)],
            [
                nvml_device(
                    mig=True,
                    name="NVIDIA H200 MIG 1g.18gb",
                    integrated=False,
                    memory_total_bytes=18000000000,
                    memory_free_bytes=None,
                    memory_source="cuda",
                )
            ],
        ),
        # NVML is missing, as in a container without the driver's utilities.
        (
            None,
            [cuda_device()],
            [
                nvml_device(
                    integrated=False,
                    brand=None,
                    memory_total_bytes=149500000000,
                    memory_free_bytes=None,
                    memory_source="cuda",
                    mig=None,
                )
            ],
        ),
        # Eight, of which CUDA was shown the last only.
        (
            [nvml_device(index=n, pci_bus_id=f"00000000:0{n}:00.0", compute_capability=None) for n in range(8)],
            [cuda_device(pci_bus_id="00000000:07:00.0")],
            [
                nvml_device(
                    index=n,
                    pci_bus_id=f"00000000:0{n}:00.0",
                    compute_capability="9.0" if n == 7 else None,
                    integrated=False,
                )
                for n in range(8)
            ],
        ),
    ],
)
def test_devices(nvml: t.Any, cuda: t.Any, expected: t.Any) -> None:
    assert _gpu_probe.complete_devices(_gpu_probe.merge_devices(nvml, cuda), MACHINE) == expected


NVML_OK = {
    "simulated": False,
    "driver_version": "580.95.05",
    "cuda_driver_version": "13.0",
    "devices": [nvml_device()],
    "processes": [{"pid": 1, "used_bytes": None}],
    "errors": [],
}
LIBCUDA_OK = {
    "simulated": False,
    "path": "/usr/lib/libcuda.so.580.95.05",
    "cuda_driver_version": "13.0",
    "note": None,
    "errors": [],
}
CUDA_OK = {"code": 0, "call": None, "devices": [cuda_device()], "errors": []}
LAUNCH_OK = {"ok": True, "code": 0, "error": None}
JIT_OK = {"code": 0, "error": None}
GOOD = {"nvml": NVML_OK, "libcuda": LIBCUDA_OK, "devices": CUDA_OK, "launch": LAUNCH_OK, "jit": JIT_OK}


def hang(request: dict[str, t.Any]) -> t.Any:
    time.sleep(60)


def crash(request: dict[str, t.Any]) -> t.Any:
    os.kill(os.getpid(), 9)


def failed(code: int) -> dict[str, t.Any]:
    return {"code": code, "call": "cuInit", "devices": None, "errors": []}


@pytest.mark.parametrize(
    ("changes", "expected", "errors"),
    [
        ({}, {"driver_present": True, "kernel_launch": LAUNCH_OK, "ptx_jit": {"ptx_version": "9.0", "code": 0}}, []),
        ({}, {"simulated": False, "cuda_driver_version": "13.0", "open_kernel_module": True}, []),
        ({"libcuda": {**LIBCUDA_OK, "simulated": "gb10"}}, {"simulated": "gb10"}, []),
        ({"nvml": {"missing": "not found"}}, {"processes": None, "driver_version": "580.95.05"}, [("nvml", None)]),
        (
            {"nvml": {"missing": "not found"}, "libcuda": {"missing": "not found"}},
            {"driver_present": True, "libcuda": False, "devices": None, "kernel_launch": None, "ptx_jit": None},
            [("nvml", None), ("libcuda", None)],
        ),
        ({"libcuda": {"missing": "wrong ELF class"}}, {"libcuda": None, "kernel_launch": None}, [("libcuda", None)]),
        ({"libcuda": hang}, {"libcuda": None, "devices": [nvml_device(integrated=False)]}, [("libcuda", None)]),
        ({"nvml": crash}, {"processes": None, "kernel_launch": LAUNCH_OK}, [("nvml", 9)]),
        ({"devices": hang}, {"kernel_launch": None, "devices": [nvml_device(integrated=False)]}, [("cuda", None)]),
        (
            {"launch": hang},
            {"kernel_launch": None, "ptx_jit": {"ptx_version": "9.0", "code": 0}},
            [("kernel_launch", None)],
        ),
        ({"jit": crash}, {"kernel_launch": LAUNCH_OK, "ptx_jit": None}, [("ptx_jit", 9)]),
        ({"jit": {"code": 222, "error": None}}, {"ptx_jit": {"ptx_version": "9.0", "code": 222}}, []),
        (
            {"jit": {"code": None, "error": {"code": 2, "name": "CUDA_ERROR_OUT_OF_MEMORY", "call": "x"}}},
            {"ptx_jit": None},
            [("ptx_jit", 2)],
        ),
        *[
            (
                {"devices": failed(code)},
                {"kernel_launch": {"ok": False, "code": code, "error": name}, "ptx_jit": None},
                [("libcuda", code)],
            )
            for code, name in [
                (803, "CUDA_ERROR_SYSTEM_DRIVER_MISMATCH"),
                (804, "CUDA_ERROR_COMPAT_NOT_SUPPORTED_ON_DEVICE"),
                (999, "CUDA_ERROR_UNKNOWN"),
                (98765, "CUDA error 98765"),
            ]
        ],
        (
            {"nvml": {"missing": "not found"}, "devices": failed(100)},
            {"devices": []},
            [("nvml", None), ("libcuda", 100)],
        ),
        (
            {"nvml": {"missing": "not found"}, "devices": failed(999)},
            {"devices": None},
            [("nvml", None), ("libcuda", 999)],
        ),
    ],
)
def test_probe(
    monkeypatch: pytest.MonkeyPatch,
    changes: dict[str, t.Any],
    expected: dict[str, t.Any],
    errors: list[tuple[str, int | None]],
) -> None:
    for name, answer in {**GOOD, **changes}.items():
        section = answer if callable(answer) else lambda request, answer=answer: answer
        monkeypatch.setattr(_gpu_probe, f"section_{name}", section)
    started = time.monotonic()
    # A section gets a third of the time.
    document = _gpu_probe.probe_gpu({"driver_text": OPEN, "toolkit_version": "13.0", "seconds": 1.5})
    assert time.monotonic() - started < 5
    assert {key: document[key] for key in expected} == expected
    assert [(error["source"], error["code"]) for error in document["errors"]] == errors
    assert set(document) == set(_gpu_probe.empty_document("x"))


@pytest.mark.parametrize(
    ("toolkit", "expected", "errors"), [(False, False, 0), (None, None, 1), ("99.0", None, 1), ("rubbish", None, 1)]
)
def test_toolkits_without_a_known_ptx_version(
    monkeypatch: pytest.MonkeyPatch, toolkit: t.Any, expected: t.Any, errors: int
) -> None:
    for name, answer in GOOD.items():
        monkeypatch.setattr(_gpu_probe, f"section_{name}", lambda request, answer=answer: answer)
    document = _gpu_probe.probe_gpu({"driver_text": OPEN, "toolkit_version": toolkit})
    assert document["ptx_jit"] is expected
    assert len(document["errors"]) == errors


def test_a_launch_that_was_not_asked_for_has_no_key(monkeypatch: pytest.MonkeyPatch) -> None:
    for name, answer in {**GOOD, "launch": crash, "jit": crash}.items():
        section = answer if callable(answer) else lambda request, answer=answer: answer
        monkeypatch.setattr(_gpu_probe, f"section_{name}", section)
    document = _gpu_probe.probe_gpu({"driver_text": OPEN, "toolkit_version": "13.0", "launch": False})
    assert not {"kernel_launch", "ptx_jit"} & set(document)
    assert document["errors"] == []


def test_without_a_driver_no_process_is_started(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(_gpu_probe, "DRIVER_SIGNS", ("/no/such/file",))
    monkeypatch.setattr(_gpu_probe, "isolated", None)
    document = _gpu_probe.probe_gpu({"machine": "aarch64", "driver_text": None})
    assert document == {**_gpu_probe.empty_document("aarch64"), "ptx_jit": False}


def test_libraries_that_are_missing_or_no_libraries(tmp_path: Path) -> None:
    broken = tmp_path / "libcuda.so.1"
    broken.write_text("rubbish")
    request = {"driver_text": OPEN, "nvml": "libsparkgate-absent.so.1", "cuda": str(broken), "toolkit_version": "13.0"}
    document = _gpu_probe.probe_gpu(request)
    assert (document["driver_present"], document["libcuda"], document["devices"]) == (True, None, None)
    assert document["errors"][0] == {"source": "nvml", "code": None, "name": "not found"}
    assert "libcuda.so.1" in document["errors"][1]["name"]


PTXAS = shutil.which("ptxas") or shutil.which("ptxas", path="/usr/local/cuda/bin")


@pytest.mark.skipif(PTXAS is None, reason="no CUDA toolkit on this machine")
@pytest.mark.parametrize("target", ["sm_80", "sm_90", "sm_120", "sm_121"])
def test_the_kernels_assemble(tmp_path: Path, target: str) -> None:
    assert PTXAS is not None
    done = subprocess.run([PTXAS, "--version"], capture_output=True, text=True, check=True)
    own = _cuda_tables.ptx_version(str(_gpu.parse_nvcc(done.stdout)))
    assert own is not None
    for version in ("7.0", own):
        source = tmp_path / f"{version}.ptx"
        source.write_bytes(_gpu_probe._ptx(version, "sm_70"))
        argv = [PTXAS, "--gpu-name", target, str(source), "-o", str(tmp_path / "out")]
        assert subprocess.run(argv, capture_output=True, text=True, check=False).stderr == ""
    # The table names the newest version that it takes, so that a driver that is older by one release is noticed.
    major, minor = own.split(".")
    source.write_bytes(_gpu_probe._ptx(f"{major}.{int(minor) + 1}", "sm_70"))
    assert "current version is '" + own in subprocess.run(argv, capture_output=True, text=True, check=False).stderr


def test_tables() -> None:
    assert _cuda_tables.ptx_version("13.1.1") == _cuda_tables.ptx_version("13.1") == "9.1"
    assert _cuda_tables.CUDA_ERRORS[804] == "CUDA_ERROR_COMPAT_NOT_SUPPORTED_ON_DEVICE"
    assert _cuda_tables.NVML_BRANDS[13] == "NVIDIA RTX"
    assert len(set(_cuda_tables.CUDA_ERRORS.values())) == len(_cuda_tables.CUDA_ERRORS)


# Broken input: no exception, no hang.

FAST = settings(max_examples=100, deadline=1000, derandomize=True)
CSV_LINES = st.lists(
    st.lists(st.one_of(st.text(max_size=12), st.sampled_from(["0", "GPU-1", "[N/A]", "97887"])), max_size=9)
)


def mutated(good: bytes) -> st.SearchStrategy[bytes]:
    """The good bytes, cut off, and with some of them replaced."""

    def apply(changes: list[tuple[int, int]], end: int) -> bytes:
        data = bytearray(good)
        for position, value in changes:
            data[position % len(data)] = value
        return bytes(data[: len(good) - end % (len(good) // 2)])

    places = st.lists(st.tuples(st.integers(0, len(good)), st.integers(0, 255)), max_size=12)
    return st.builds(apply, places, st.one_of(st.just(0), st.integers(0, len(good))))


@FAST
@given(CSV_LINES)
def test_broken_csv(lines: list[list[str]]) -> None:
    text = "\n".join(", ".join(fields) for fields in lines)
    for device in _gpu.parse_devices(text):
        assert device["memory_total_bytes"] != 0
        assert (device["memory_source"] is None) == (device["memory_total_bytes"] is None)
    for process in _gpu.parse_compute_apps(text):
        assert process["pid"] >= 0


@FAST
@given(
    st.one_of(
        st.text(), mutated(b"GPU 0:1:0.0\n MIG Mode\n  Current : Enabled\n Product Brand : x\n GPU UUID : GPU-1\n")
    )
)
def test_broken_text(text: str | bytes) -> None:
    text = text if isinstance(text, str) else text.decode("utf-8", "replace")
    assert set(_gpu.parse_smi_query(text)) == {"cuda_driver_version", "brands", "migs"}
    _gpu.parse_nvcc(text)
    _gpu_probe.parse_bus_id(text)
    _gpu_probe.parse_maps(text, "libcuda.so")
    _gpu_probe.parse_memory_total(text)
    _gpu_probe.parse_library_version(text)


@FAST
@given(st.one_of(st.text(), mutated(OPEN.encode())))
def test_broken_proc_text(text: str | bytes) -> None:
    version, opened = _gpu_probe.parse_driver_version(
        text if isinstance(text, str) else text.decode("utf-8", "replace")
    )
    assert (version is None) == (opened is None)
    assert version is None or _gpu_probe.is_forward_compat("/lib/libcuda.so.1", version, version) is False


@FAST
@given(st.one_of(st.binary(max_size=300), mutated(make_note(NOTE_TEXT))))
def test_broken_note(data: bytes) -> None:
    note = _gpu_probe.parse_note(data)
    assert note is None or set(note) == set(NOTE)


@FAST
@given(st.one_of(st.binary(max_size=300), mutated(ELF)))
def test_broken_elf(data: bytes) -> None:
    asked = []

    def read_at(offset: int, size: int) -> bytes:
        asked.append(size)
        return reader(data)(offset, size)

    section = _gpu_probe.elf_section(read_at, _gpu_probe.NOTE_SECTION)
    assert section is None or len(section) <= 1 << 16
    # Whatever the file says about itself, memory is bounded.
    assert max(asked) <= 1 << 22
