# Copyright (c) 2026, The sparkgate.blackwell authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

import typing as t
from pathlib import Path

import pytest
from ansible_collections.sparkgate.blackwell.plugins.module_utils import _fabric, _gpu, _gpu_probe
from ansible_collections.sparkgate.blackwell.plugins.module_utils._recon import Source

OPEN = "NVRM version: NVIDIA UNIX Open Kernel Module for aarch64  580.95.05  Release Build  (buildd@host)  Wed Sep 17\nGCC version:  gcc 13\n"
CLOSED = "NVRM version: NVIDIA UNIX x86_64 Kernel Module  570.124.06  Wed Feb 12 19:13:41 UTC 2025\n"


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (OPEN, ("580.95.05", True)),
        (CLOSED, ("570.124.06", False)),
        ("NVRM version: NVIDIA UNIX Open Kernel Module for", (None, None)),
        ("", (None, None)),
        (None, (None, None)),
    ],
)
def test_parse_driver_version(text: str | None, expected: tuple[str | None, bool | None]) -> None:
    assert _gpu.parse_driver_version(text) == expected


GB10 = "0, NVIDIA GB10, GPU-1, 0000000F:01:00.0, [N/A], [N/A], 12.1\n"
PRO = "0, NVIDIA RTX PRO 6000 Blackwell Workstation Edition, GPU-2, 00000000:01:00.0, 97887, 97000, 12.0\n"
# Eight devices, and a driver that cannot say what they are capable of.
OLD = "".join(f"{index}, NVIDIA A100, GPU-{index}, 00000000:0{index}:00.0, 81920, 81000\n" for index in range(8))


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (
            GB10,
            [
                {
                    "compute_capability": "12.1",
                    "pci_bus_id": "0000000F:01:00.0",
                    "memory_total_bytes": None,
                    "memory_free_bytes": None,
                    "memory_source": None,
                }
            ],
        ),
        (
            PRO,
            [
                {
                    "compute_capability": "12.0",
                    "memory_total_bytes": 97887 << 20,
                    "memory_source": "nvml",
                }
            ],
        ),
        # A reading that failed is never 0, and no proof of shared memory.
        (
            "0, NVIDIA B200, GPU-3, 0:1, [Unknown Error], [Unknown Error], N/A\n",
            [{"compute_capability": None, "integrated": None, "memory_total_bytes": None, "pci_bus_id": None}],
        ),
        ("0, NVIDIA B200, GPU-3, 0:1, 0, 0, 10.0\n", [{"memory_total_bytes": None, "memory_source": None}]),
        (OLD, [{"index": index, "compute_capability": None, "memory_total_bytes": 81920 << 20} for index in range(8)]),
        ("No devices were found\n", []),
        ("0, name\n", []),
        (None, []),
    ],
)
def test_parse_devices(text: str | None, expected: list[dict[str, t.Any]]) -> None:
    found = _gpu.parse_devices(text)
    assert [{key: device[key] for key in wanted} for device, wanted in zip(found, expected, strict=True)] == expected


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("10, 100\n11, [N/A]\n10, 1\n", [{"pid": 10, "used_bytes": 101 << 20}, {"pid": 11, "used_bytes": None}]),
        ("11, [N/A]\n11, 5\n", [{"pid": 11, "used_bytes": None}]),
        ("No running processes found", []),
        (None, []),
    ],
)
def test_parse_compute_apps(text: str | None, expected: list[dict[str, t.Any]]) -> None:
    assert _gpu.parse_compute_apps(text) == expected


QUERY = """\
Driver Version                            : 580.95.05
CUDA Version                              : 13.0
GPU 0000000F:01:00.0
    Product Name                          : NVIDIA GB10
    Product Brand                         : NVIDIA RTX
    MIG Mode
        Current                           : N/A
        Pending                           : N/A
    Accounting Mode                       : Disabled
    GPU UUID                              : GPU-1
GPU 00000000:01:00.0
    Product Name                          : NVIDIA H200
    MIG Mode
        Current                           : Enabled
        Pending                           : Enabled
    GPU UUID                              : GPU-2
"""


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (
            QUERY,
            {
                "cuda_driver_version": "13.0",
                "brands": {"GPU-1": "NVIDIA RTX"},
                "migs": {"GPU-1": False, "GPU-2": True},
            },
        ),
        ("CUDA Version   : Not Found\nGPU UUID : GPU-1\n", {"cuda_driver_version": None, "brands": {}, "migs": {}}),
        (None, {"cuda_driver_version": None, "brands": {}, "migs": {}}),
    ],
)
def test_parse_smi_query(text: str | None, expected: dict[str, t.Any]) -> None:
    assert _gpu.parse_smi_query(text) == expected


def make_source(root: Path, answers: dict[str, tuple[int, str, str]]) -> Source:
    def run(argv: list[str]) -> tuple[int, str, str]:
        line = " ".join(argv[4:])
        return next((answer for part, answer in answers.items() if part in line), (1, "", "refused"))

    return Source(run, lambda name: name if any(name in part for part in answers) else None, str(root))


SMI = {
    "nvidia-smi --query-gpu": (0, GB10, ""),
    "nvidia-smi -q": (0, QUERY, ""),
    "nvidia-smi --query-compute-apps": (0, "10, 100\n", ""),
}
WITHOUT_CAPABILITY = {
    "--query-gpu=index,name,uuid,pci.bus_id,memory.total,memory.free,compute_cap": (
        2,
        'Field "compute_cap" is not a valid field to query.\n\n',
        "",
    ),
    "nvidia-smi --query-gpu": (0, OLD, ""),
    "nvidia-smi -q": (0, "", ""),
    "nvidia-smi --query-compute-apps": (0, "", ""),
}
MISSING = {"source": "nvml", "code": None, "name": "not found"}
NOTHING = {"driver_present": True, "devices": None, "errors": [MISSING], "processes": None}


def make_probe(**changes: t.Any) -> t.Callable[[dict[str, t.Any]], dict[str, t.Any]]:
    def probe(request: dict[str, t.Any]) -> dict[str, t.Any]:
        document = _gpu_probe.empty_document(request["machine"])
        version, opened = _gpu_probe.parse_driver_version(request["driver_text"])
        document.update(driver_version=version, open_kernel_module=opened, toolkit_version=request["toolkit_version"])
        return {**document, **{key: list(value) if key == "errors" else value for key, value in changes.items()}}

    return probe


@pytest.mark.parametrize(
    ("changes", "answers", "expected", "errors"),
    [
        ({}, {}, {"driver_present": False, "devices": [], "libcuda": False, "toolkit_version": False}, 0),
        # NVML answered, so nvidia-smi is not asked.
        ({"driver_present": True, "devices": [{"name": "GPU"}]}, SMI, {"devices": [{"name": "GPU"}]}, 0),
        ({"errors": [{**MISSING, "code": 18, "name": "NVML_ERROR"}], "devices": None}, SMI, {"devices": None}, 1),
        (NOTHING, {}, {"driver_version": "580.95.05", "devices": None}, 2),
        (NOTHING, SMI, {"driver_present": True, "open_kernel_module": True, "cuda_driver_version": "13.0"}, 1),
        (NOTHING, {"nvidia-smi": (124, "", "")}, {"devices": None, "cuda_driver_version": None}, 2),
        (NOTHING, {"nvidia-smi": (0, "No devices were found\n", "")}, {"devices": []}, 1),
        (NOTHING, {"nvidia-smi": (0, "Aucun périphérique\n", "")}, {"devices": None}, 2),
        (NOTHING, WITHOUT_CAPABILITY, {"cuda_driver_version": None}, 1),
    ],
)
def test_read_gpu(
    tmp_path: Path, changes: dict[str, t.Any], answers: dict[str, t.Any], expected: dict[str, t.Any], errors: int
) -> None:
    write(tmp_path, "proc/driver/nvidia/version", OPEN)
    source = make_source(tmp_path, answers)
    gpu, processes = _gpu.read_gpu(source, "aarch64", 130664833024, probe=make_probe(**changes))
    assert {key: gpu[key] for key in expected} == expected
    assert len(gpu["errors"]) == errors
    # The keys of the contract are there whatever happens.
    assert set(gpu) == set(_gpu_probe.empty_document("aarch64")) - {"processes"}
    if answers is SMI and changes is NOTHING:
        assert gpu["devices"][0]["memory_total_bytes"] == 130664833024
        assert (gpu["devices"][0]["memory_source"], gpu["devices"][0]["brand"]) == ("meminfo", "NVIDIA RTX")
        assert (gpu["devices"][0]["integrated"], gpu["devices"][0]["mig"]) == (True, False)
        assert processes == [{"pid": 10, "used_bytes": 100 << 20}]
    if answers is WITHOUT_CAPABILITY:
        assert [device["integrated"] for device in gpu["devices"]] == [False] * 8


def test_what_cuda_knows_completes_nvidia_smi(tmp_path: Path) -> None:
    device = {
        "name": "NVIDIA A100",
        "uuid": "GPU-3",
        "pci_bus_id": "00000000:03:00.0",
        "compute_capability": "8.0",
        "integrated": False,
        "memory_total_bytes": 85000000000,
    }
    probe = make_probe(**{**NOTHING, "devices": [device]})
    gpu, _processes = _gpu.read_gpu(make_source(tmp_path, WITHOUT_CAPABILITY), "x86_64", None, probe=probe)
    assert [item["compute_capability"] for item in gpu["devices"]] == [None] * 3 + ["8.0"] + [None] * 4


def test_the_time_of_nvidia_smi_is_bounded(tmp_path: Path) -> None:
    asked: list[list[str]] = []

    def run(argv: list[str]) -> tuple[int, str, str]:
        asked.append(argv)
        return 124, "", ""

    source = Source(run, lambda name: f"/bin/{name}" if name == "nvidia-smi" else None, str(tmp_path))
    _gpu.read_gpu(source, "x86_64", None, probe=make_probe(**NOTHING))
    # One that hangs is not asked again.
    assert [argv[:4] for argv in asked] == [["timeout", "-k", "1", "20"]]
    assert source.errors[-1]["name"] == "no answer within 20 s"


def write(root: Path, path: str, text: str) -> None:
    file = root / path
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(text)


def test_read_fabric(tmp_path: Path) -> None:
    net = "sys/class/net"
    for name, values in {
        "lo": {"operstate": "unknown", "carrier": "1", "mtu": "65536", "type": "772"},
        "enp1s0f1np1": {"operstate": "up", "speed": "200000", "mtu": "9000", "type": "1"},
        "ib0": {"operstate": "down", "speed": "-1", "mtu": "2044", "type": "32"},
        "docker0": {"operstate": "down", "mtu": "1500", "bridge/bridge_id": "8000"},
        "veth1": {"operstate": "up", "mtu": "1500", "brport/state": "3"},
        "odd0": {"operstate": "unknown", "mtu": "broken"},
    }.items():
        for key, value in values.items():
            write(tmp_path, f"{net}/{name}/{key}", f"{value}\n")
    write(tmp_path, f"{net}/bonding_masters", "\n")
    (tmp_path / net / "enp1s0f1np1" / "device" / "infiniband" / "rocep1s0f1").mkdir(parents=True)
    write(tmp_path, "sys/class/infiniband/rocep1s0f1/ports/1/link_layer", "Ethernet\n")
    write(tmp_path, "proc/meminfo", "CmaTotal:  65536 kB\nCmaFree:  262144 kB\n")
    write(tmp_path, "proc/cmdline", "quiet kho=off\n")
    source = Source(lambda argv: (1, "", ""), lambda name: None, str(tmp_path))
    uname = t.cast("t.Any", type("Uname", (), {"release": "7.0.0-1019-nvidia"}))
    fabric = _fabric.read_fabric(source, uname, [{"interface": "enp1s0f1np1", "address": "192.168.100.11/24"}])
    ports = {port["name"]: port for port in fabric["ports"]}
    assert set(ports) == {"enp1s0f1np1", "ib0", "odd0"}
    fast = ports["enp1s0f1np1"]
    assert (fast["up"], fast["speed_mbit"], fast["mtu"], fast["rdma_device"]) == (True, 200000, 9000, "rocep1s0f1")
    assert (fast["ipv4"], fast["link_layer"], fast["gid_index"]) == (["192.168.100.11/24"], "Ethernet", None)
    assert (ports["ib0"]["up"], ports["ib0"]["speed_mbit"], ports["ib0"]["link_layer"]) == (False, None, "InfiniBand")
    # No RDMA device is known to be absent, so it is false and not unknown.
    assert (ports["ib0"]["rdma_device"], ports["ib0"]["gid_index"]) == (False, False)
    assert (ports["odd0"]["up"], ports["odd0"]["mtu"]) == (None, None)
    assert fabric["host"] == {
        "kernel": "7.0.0-1019-nvidia",
        "cmdline": "quiet kho=off",
        "cma_total_bytes": 67108864,
        "cma_free_bytes": 268435456,
        "firmware": None,
    }


def test_addresses_that_are_not_known(tmp_path: Path) -> None:
    write(tmp_path, "sys/class/net/eth0/operstate", "up\n")
    source = Source(lambda argv: (1, "", ""), lambda name: None, str(tmp_path))
    uname = t.cast("t.Any", type("Uname", (), {"release": "6"}))
    fabric = _fabric.read_fabric(source, uname, None)
    assert fabric["ports"][0]["ipv4"] is None
    assert (fabric["host"]["cma_total_bytes"], fabric["host"]["cmdline"]) == (None, None)
