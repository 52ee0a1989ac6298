# Copyright (c) 2026, The sparkgate.blackwell authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The probe over libraries of GPUs that are not there: real calls through ctypes, made-up answers."""

from __future__ import annotations

import ctypes
import os
import re
import shutil
import subprocess
import sys
import time
import typing as t
from pathlib import Path

import pytest
from ansible_collections.sparkgate.blackwell.lab.simulated_gpu.build import build, driver_text, scenarios, settings
from ansible_collections.sparkgate.blackwell.plugins.module_utils import _gpu
from ansible_collections.sparkgate.blackwell.plugins.module_utils._gpu_probe import find_compat, probe_gpu

HERE = Path(__file__).resolve().parents[3] / "lab" / "simulated_gpu"
NAMES = [
    "compat_803",
    "driver_too_old",
    "gb10",
    "geforce_compat_804",
    "hanging_call",
    "rtx_pro_6000_x4",
    "unknown_999",
    "wrong_value",
]
needs_gcc = pytest.mark.skipif(shutil.which("gcc") is None, reason="the simulated GPU needs gcc")

SPARK_MEMORY = 130_663_821_312
RTX_MEMORY = 97887 << 20

Document = dict[str, t.Any]
Builder = t.Callable[[str], Path]


def text_of(name: str) -> str:
    return (HERE / "scenarios" / f"{name}.scenario").read_text()


def probe(directory: Path, cuda: str = "libcuda.so.1", **request: t.Any) -> Document:
    return probe_gpu(
        {
            "driver_text": (directory / "driver_version").read_text(),
            "nvml": str(directory / "libnvidia-ml.so.1"),
            "cuda": str(directory / cuda),
            "toolkit_version": "13.1",
            "memory_total_bytes": SPARK_MEMORY,
            "seconds": 30,
            **request,
        }
    )


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> Builder:
    """Each scenario is built once for all tests."""
    root = tmp_path_factory.mktemp("simulated_gpu")

    def get(name: str) -> Path:
        if not (root / name).exists():
            build(text_of(name), root / name)
        return root / name

    return get


def test_the_scenarios_that_there_are() -> None:
    assert scenarios() == NAMES


@pytest.mark.parametrize("name", NAMES)
def test_a_scenario_is_named_as_its_file(name: str) -> None:
    assert settings(text_of(name))["scenario"] == name


@pytest.mark.parametrize(
    ("module", "opened"),
    [("open", True), ("proprietary", False)],
)
def test_the_text_of_the_kernel_module(module: str, opened: bool) -> None:
    text = driver_text({"machine": "x86_64", "driver_version": "580.95.05", "kernel_module": module})
    assert _gpu.parse_driver_version(text) == ("580.95.05", opened)


@needs_gcc
@pytest.mark.parametrize(
    ("name", "driver", "cuda", "launch", "jit"),
    [
        # Version of the driver and its CUDA; what the launch answers; what PTX of CUDA 13.1 (9.1) answers.
        ("gb10", "580.95.05", "13.0", (True, 0), 222),
        ("rtx_pro_6000_x4", "590.48.01", "13.1", (True, 0), 0),
        ("driver_too_old", "570.133.07", "12.8", (True, 0), 222),
        # Without their compatibility libraries.
        ("geforce_compat_804", "580.95.05", "13.0", (True, 0), 222),
        ("compat_803", "580.95.05", "13.0", (True, 0), 222),
        ("unknown_999", "580.95.05", "13.0", (False, 999), None),
        ("wrong_value", "580.95.05", "13.0", (False, 0), 222),
    ],
)
def test_the_probe_over_a_scenario(
    built: Builder, name: str, driver: str, cuda: str, launch: tuple[bool, int], jit: int | None
) -> None:
    found = probe(built(name))
    assert found["simulated"] == name
    assert found["driver_present"] is True
    assert found["open_kernel_module"] is True
    assert (found["driver_version"], found["cuda_driver_version"]) == (driver, cuda)
    assert found["libcuda"] == {
        "path": str(built(name) / f"libcuda.so.{driver}"),
        "version": driver,
        "forward_compat": False,
        "note": None,
    }
    assert (found["kernel_launch"]["ok"], found["kernel_launch"]["code"]) == launch
    assert found["ptx_jit"] == (None if jit is None else {"ptx_version": "9.1", "code": jit})


@needs_gcc
def test_a_spark(built: Builder) -> None:
    found = probe(built("gb10"), toolkit_version="13.0")
    assert found["devices"] == [
        {
            "index": 0,
            "name": "NVIDIA GB10",
            "uuid": "GPU-5ca1ab1e-0000-4000-8000-000000000010",
            "pci_bus_id": "0000000F:01:00.0",
            "compute_capability": "12.1",
            "integrated": True,
            "brand": "NVIDIA RTX",
            "memory_total_bytes": SPARK_MEMORY,
            "memory_free_bytes": None,
            "memory_source": "meminfo",
            "mig": False,
        }
    ]
    assert found["processes"] == [{"pid": 4711, "used_bytes": 1 << 30}]
    assert found["kernel_launch"] == {"ok": True, "code": 0, "error": None}
    assert found["ptx_jit"] == {"ptx_version": "9.0", "code": 0}
    memory = {"source": "nvml", "code": 3, "name": "NVML_ERROR_NOT_SUPPORTED", "call": "nvmlDeviceGetMemoryInfo"}
    assert found["errors"] == [memory]


@needs_gcc
def test_four_gpus(built: Builder) -> None:
    found = probe(built("rtx_pro_6000_x4"))
    devices = found["devices"]
    assert [device["index"] for device in devices] == [0, 1, 2, 3]
    assert [device["pci_bus_id"][:11] for device in devices] == [f"00000000:{bus}" for bus in ("01", "41", "81", "C1")]
    assert len({device["uuid"] for device in devices}) == 4
    for device in devices:
        assert device["name"] == "NVIDIA RTX PRO 6000 Blackwell Workstation Edition"
        assert (device["compute_capability"], device["integrated"], device["mig"]) == ("12.0", False, False)
        assert (device["memory_total_bytes"], device["memory_source"]) == (RTX_MEMORY, "nvml")
        assert 0 < device["memory_free_bytes"] < RTX_MEMORY
    assert found["processes"] == [{"pid": 4711, "used_bytes": 2 << 30}, {"pid": 4712, "used_bytes": 1 << 29}]
    assert found["errors"] == []


@needs_gcc
@pytest.mark.parametrize(
    ("name", "version", "cuda", "code", "error", "brand_listed", "driver_listed"),
    [
        (
            "geforce_compat_804",
            "590.48.01",
            "13.1",
            804,
            "CUDA_ERROR_COMPAT_NOT_SUPPORTED_ON_DEVICE",
            False,
            True,
        ),
        ("compat_803", "575.57.08", "12.9", 803, "CUDA_ERROR_SYSTEM_DRIVER_MISMATCH", True, False),
    ],
)
def test_compatibility_libraries_that_do_not_fit(
    built: Builder,
    name: str,
    version: str,
    cuda: str,
    code: int,
    error: str,
    brand_listed: bool,
    driver_listed: bool,
) -> None:
    directory = built(name)
    found = probe(directory, "compat/libcuda.so.1")
    note = found["libcuda"]["note"]
    assert found["simulated"] == name
    assert (found["driver_version"], found["cuda_driver_version"]) == ("580.95.05", cuda)
    assert found["libcuda"]["path"] == str(directory / "compat" / f"libcuda.so.{version}")
    assert (found["libcuda"]["version"], found["libcuda"]["forward_compat"]) == (version, True)
    assert note["cuda"] == cuda
    assert (580 in note["driver"]) is driver_listed
    brand = {"GeForce": 5, "NVIDIA RTX": 13}[found["devices"][0]["brand"]]
    assert (brand in note["device"]) is brand_listed
    assert found["kernel_launch"] == {"ok": False, "code": code, "error": error}
    assert found["ptx_jit"] is None
    assert {"source": "libcuda", "code": code, "name": error, "call": "cuInit"} in found["errors"]
    assert find_compat([str(directory / "compat")]) == {
        "path": str(directory / "compat"),
        "version": version,
        "note": note,
    }


@needs_gcc
def test_999_although_the_rest_answers(built: Builder) -> None:
    found = probe(built("unknown_999"))
    assert found["devices"][0]["name"] == "NVIDIA GB10"
    assert found["kernel_launch"]["error"] == "CUDA_ERROR_UNKNOWN"
    assert run_smi(built("unknown_999"), "-L").startswith("GPU 0: NVIDIA GB10 ")


@needs_gcc
def test_a_wrong_value_is_found(built: Builder) -> None:
    launch = probe(built("wrong_value"))["kernel_launch"]
    assert launch == {
        "ok": False,
        "code": 0,
        "error": "device 0: the kernel should have written 42, but 41 was read back",
    }


@needs_gcc
def test_a_call_that_hangs_is_left_alone(built: Builder) -> None:
    start = time.monotonic()
    found = probe(built("hanging_call"), seconds=3)
    assert time.monotonic() - start < 6
    assert found["simulated"] == "hanging_call"
    assert found["devices"][0]["compute_capability"] == "12.1"
    assert found["kernel_launch"] is None
    assert found["ptx_jit"] == {"ptx_version": "9.1", "code": 222}
    assert {"source": "kernel_launch", "code": None, "name": "no answer within 1 s"} in found["errors"]
    with pytest.raises(subprocess.TimeoutExpired):
        run_smi(built("hanging_call"), "-L", seconds=0.3)


@needs_gcc
@pytest.mark.parametrize(
    ("line", "lost", "error"),
    [
        ("call.nvmlInit_v2 crash", "processes", {"source": "nvml", "code": 6}),
        ("call.cuDeviceGetCount crash", "kernel_launch", {"source": "cuda", "code": 6}),
        ("call.nvmlInit_v2 999", "processes", {"source": "nvml", "code": 999, "call": "nvmlInit_v2"}),
        ("call.cuMemAlloc_v2 2", None, {"source": "nvml", "code": 3}),
    ],
)
def test_any_call_can_be_made_to_fail(
    built: Builder, tmp_path: Path, line: str, lost: str | None, error: Document
) -> None:
    # The libraries read the file anew, so that one build does for many scenarios.
    shutil.copytree(built("gb10"), tmp_path / "gb10", symlinks=True)
    (tmp_path / "gb10" / "simulated_gpu.scenario").write_text(f"{line}\n{text_of('gb10')}")
    found = probe(tmp_path / "gb10")
    assert found["simulated"] == "gb10"
    assert found["devices"][0]["compute_capability"] == "12.1"
    assert [entry for entry in found["errors"] if error.items() <= entry.items()]
    if lost:
        assert found[lost] is None
    else:
        assert found["kernel_launch"]["error"] == "CUDA_ERROR_OUT_OF_MEMORY"


@needs_gcc
@pytest.mark.parametrize("library", ["libcuda.c", "libnvidia_ml.c"])
def test_every_function_that_the_probe_calls_is_there(built: Builder, library: str) -> None:
    prefix, name = {"libcuda.c": ("cu", "libcuda.so.1"), "libnvidia_ml.c": ("nvml", "libnvidia-ml.so.1")}[library]
    called = re.findall(
        rf'"({prefix}[A-Z]\w+)"',
        (HERE.parents[1] / "plugins" / "module_utils" / "_gpu_probe.py").read_text(),
    )
    loaded = ctypes.CDLL(str(built("gb10") / name))
    assert len(called) > 5
    assert [function for function in called if not hasattr(loaded, function)] == []


@needs_gcc
def test_a_library_without_a_scenario_does_not_load(built: Builder, tmp_path: Path) -> None:
    library = shutil.copy(built("gb10") / "libcuda.so.1", tmp_path)
    done = subprocess.run(
        [sys.executable, "-c", f"import ctypes; ctypes.CDLL({library!r})"], capture_output=True, text=True, check=False
    )
    assert done.returncode < 0
    assert "there is no simulated_gpu.scenario" in done.stderr


def run_smi(directory: Path, *arguments: str, seconds: float = 20) -> str:
    argv = [str(directory / "nvidia-smi"), *arguments]
    return subprocess.run(argv, capture_output=True, text=True, check=True, timeout=seconds).stdout


@needs_gcc
@pytest.mark.parametrize("name", ["gb10", "rtx_pro_6000_x4", "geforce_compat_804"])
def test_nvidia_smi_says_what_the_libraries_say(built: Builder, name: str) -> None:
    directory = built(name)
    found = probe(directory, launch=False)
    form = "--format=csv,noheader,nounits"
    fields = "index,name,uuid,pci.bus_id,memory.total,memory.free,compute_cap"
    devices = _gpu.parse_devices(run_smi(directory, f"--query-gpu={fields}", form))
    query = _gpu.parse_smi_query(run_smi(directory, "-q"))
    for device in devices:
        device.update(brand=query["brands"][device["uuid"]], mig=query["migs"][device["uuid"]])
    assert _gpu.complete_devices(devices, SPARK_MEMORY) == [
        # It rounds to MiB.
        {**device, "memory_free_bytes": device["memory_free_bytes"] and device["memory_free_bytes"] >> 20 << 20}
        for device in found["devices"]
    ]
    assert query["cuda_driver_version"] == found["cuda_driver_version"]
    apps = run_smi(directory, "--query-compute-apps=pid,used_memory", form)
    assert _gpu.parse_compute_apps(apps) == found["processes"]


@needs_gcc
def test_nvidia_smi_refuses_a_field_that_it_does_not_know(built: Builder) -> None:
    with pytest.raises(subprocess.CalledProcessError) as caught:
        run_smi(built("gb10"), "--query-gpu=name,colour", "--format=csv")
    assert (caught.value.returncode, caught.value.stdout) == (2, 'Field "colour" is not a valid field to query.\n')


@needs_gcc
def test_the_builder_as_a_command(tmp_path: Path) -> None:
    into = tmp_path / "gpu"
    argv = [sys.executable, str(HERE / "build.py"), "--into", str(into), "--scenario"]
    subprocess.run([*argv, "compat_803"], check=True, timeout=60)
    assert (into / "compat" / "libcuda.so.1").exists()
    # A second build leaves nothing of the first, and nothing else is ever replaced.
    subprocess.run([*argv, "driver_too_old"], check=True, timeout=60)
    assert not (into / "compat").exists()
    assert os.readlink(into / "libcuda.so.1") == "libcuda.so.570.133.07"
    (into / "simulated_gpu.scenario").unlink()
    refused = subprocess.run([*argv, "gb10"], capture_output=True, text=True, timeout=60, check=False)
    assert (refused.returncode, "holds something else" in refused.stderr) == (2, True)
    assert (into / "nvidia-smi").exists()
