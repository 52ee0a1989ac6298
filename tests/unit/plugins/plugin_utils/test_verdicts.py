# Copyright (c) 2026, The sparkgate.blackwell authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

import typing as t

import pytest
from ansible_collections.sparkgate.blackwell.plugins.plugin_utils import _verdicts
from ansible_collections.sparkgate.blackwell.plugins.plugin_utils._verdicts import node_verdicts

GIB = 1 << 30

ENGINE = {
    "name": "docker",
    "answers": True,
    "version": "28.5.1",
    "storage_driver": "overlay2",
    "data_root": "/d",
    "free_bytes": 1,
    "nvidia_runtime": True,
}
SYSTEM: dict[str, t.Any] = {
    "memory": {"total_bytes": 120 * GIB, "available_bytes": 110 * GIB, "swap_total_bytes": 0},
    "disks": [
        {"path": "/m", "filesystem": 1, "total_bytes": 500 * GIB, "free_bytes": 200 * GIB, "content_bytes": 0},
        {"path": "/d", "filesystem": 1, "total_bytes": 500 * GIB, "free_bytes": 200 * GIB, "content_bytes": None},
    ],
    "container_engine": ENGINE,
    "systemd": True,
    "tools": {"rsync": "3.2.7", "systemd": "255"},
    "addresses": [{"interface": "lo", "address": "127.0.0.1/8"}, {"interface": "enp1", "address": "10.0.0.1/24"}],
    "listeners": [],
    "holders": [],
}
GB10 = {"name": "NVIDIA GB10", "integrated": True, "memory_total_bytes": 120 * GIB, "memory_free_bytes": None}
PRO = {
    "name": "NVIDIA RTX PRO 6000",
    "integrated": False,
    "memory_total_bytes": 95 * GIB,
    "memory_free_bytes": 90 * GIB,
}
GPU: dict[str, t.Any] = {"driver_present": True, "driver_version": "580.95.05", "devices": [GB10], "errors": []}
SPARK = {"gpu": GPU, "system": SYSTEM}
CUDA = {"accelerator": "cuda", "nodes": 2}
CPU = {"accelerator": "cpu", "nodes": 2}
NEEDS: dict[str, t.Any] = {
    "requirement": CUDA,
    "deployment": {"name": "qwen", "head": "spark-1"},
    "ports": [
        {"port": 8000, "purpose": "API", "exposure": "management", "node": "head"},
        {"port": 6400, "last": 6599},
        6379,
    ],
    "need_bytes": {"/m": 127 * GIB},
    "weight_bytes": 127 * GIB,
    "address": "10.0.0.1",
}


def judge(
    system: dict[str, t.Any] | None = None, gpu: t.Any = None, name: str = "spark-1", **needs: t.Any
) -> dict[str, list[dict[str, t.Any]]]:
    recon = {"gpu": GPU if gpu is None else gpu, "system": {**SYSTEM, **(system or {})}}
    found: dict[str, list[dict[str, t.Any]]] = {}
    for verdict in node_verdicts(recon, name=name, **{**NEEDS, **needs}):
        assert set(verdict) == {"id", "status", "host", "subject", "summary", "remedy", "source", "evidence"}
        assert verdict["host"] == name
        assert verdict["status"] == "ok" or verdict["remedy"], verdict
        found.setdefault(verdict["id"], []).append(verdict)
    return found


def test_a_good_spark() -> None:
    found = judge()
    assert {verdict["status"] for verdicts in found.values() for verdict in verdicts} == {"ok"}
    assert set(found) == {
        "accelerator.expected",
        "container.engine",
        "node.tools",
        "node.address",
        "memory.fit",
        "disk.free",
        "port.in_use",
        "node.leftover",
    }


def test_what_was_not_asked_gives_no_verdict() -> None:
    assert node_verdicts({}, "spark-1") == []
    assert node_verdicts({"gpu": GPU}, "spark-1") == []
    assert {item["id"] for item in node_verdicts({"system": {"tools": {"rsync": "3"}}}, "spark-1")} == {"node.tools"}


@pytest.mark.parametrize(
    ("gpu", "requirement", "status", "text"),
    [
        ({"driver_present": False, "devices": []}, CUDA, "fail", "no NVIDIA driver"),
        ({"driver_present": False, "devices": []}, CPU, "ok", "no GPU is needed"),
        (GPU, CPU, "ok", "no GPU is needed"),
        ({"driver_present": None}, CUDA, "unknown", "could not be read"),
        ({**GPU, "devices": []}, CUDA, "fail", "sees no GPU"),
        (
            {**GPU, "devices": None, "errors": [{"source": "nvidia-smi", "name": "no answer within 5 s"}]},
            CUDA,
            "unknown",
            "no answer within 5 s",
        ),
        (GPU, {"accelerator": None}, "unknown", "does not say"),
    ],
)
def test_accelerator(gpu: dict[str, t.Any], requirement: dict[str, t.Any], status: str, text: str) -> None:
    verdict = judge(gpu=gpu, requirement=requirement)["accelerator.expected"][0]
    assert verdict["status"] == status
    assert text in verdict["summary"]


OWN = {
    "kind": "container",
    "name": "engine",
    "id": "1",
    "image": "i",
    "deployment": "qwen",
    "memory_bytes": 4 * GIB,
    "gpu": True,
    "gpu_memory_bytes": 60 * GIB,
}
FOREIGN = {**OWN, "name": "old", "deployment": None}


@pytest.mark.parametrize(
    ("available", "holders", "devices", "weights", "requirement", "status", "text"),
    [
        (110 * GIB, [], [GB10], 127 * GIB, CUDA, "ok", "69.1 GiB needed"),
        (60 * GIB, [], [GB10], 127 * GIB, CUDA, "fail", "60.0 GiB of memory available; 69.1 GiB needed"),
        # The running deployment's own memory is not missing.
        (20 * GIB, [OWN], [GB10], 127 * GIB, CUDA, "ok", "64.0 GiB is held by the running deployment"),
        (20 * GIB, [FOREIGN], [GB10], 127 * GIB, CUDA, "fail", "20.0 GiB"),
        (None, [], [GB10], 127 * GIB, CUDA, "unknown", "could not be read"),
        (110 * GIB, [], [GB10], None, CUDA, "unknown", "is not known"),
        # A card has memory of its own; the machine's does not count.
        (1 * GIB, [], [PRO], 127 * GIB, CUDA, "ok", "90.0 GiB of GPU memory"),
        (110 * GIB, [], [PRO], 400 * GIB, CUDA, "fail", "of GPU memory"),
        (110 * GIB, [], [{**PRO, "memory_free_bytes": None}], 127 * GIB, CUDA, "unknown", "GPU memory"),
        (2 * GIB, [], [], 1 << 20, CPU, "ok", "1.7 GiB needed"),
        (1 * GIB, [], [], 1 << 20, CPU, "fail", "1.7 GiB needed"),
        (110 * GIB, [], [], 1 << 20, {"accelerator": "cpu"}, "unknown", "is not known"),
    ],
)
def test_memory(
    available: int | None,
    holders: list[dict[str, t.Any]],
    devices: list[dict[str, t.Any]],
    weights: int | None,
    requirement: dict[str, t.Any],
    status: str,
    text: str,
) -> None:
    system = {"memory": {"total_bytes": 120 * GIB, "available_bytes": available}, "holders": holders}
    verdict = judge(system, {**GPU, "devices": devices}, weight_bytes=weights, requirement=requirement)["memory.fit"][0]
    assert verdict["status"] == status, verdict
    assert text in verdict["summary"]


def test_memory_of_a_node_that_is_too_small() -> None:
    verdict = judge(weight_bytes=400 * GIB)["memory.fit"][0]
    assert verdict["status"] == "fail"
    assert "more nodes" in verdict["remedy"]


def test_memory_bytes_win() -> None:
    assert judge(memory_bytes=111 * GIB)["memory.fit"][0]["status"] == "fail"


@pytest.mark.parametrize(
    ("needs", "disk", "status", "text"),
    [
        ({"/m": 127 * GIB}, {}, "ok", "127.0 GiB still needed"),
        ({"/m": 327 * GIB}, {}, "fail", "200.0 GiB free"),
        # What is there already needs no space.
        ({"/m": 327 * GIB}, {"content_bytes": 327 * GIB}, "ok", "0 bytes still needed"),
        # Two needs on one file system.
        ({"/m": 127 * GIB, "/d": 100 * GIB}, {}, "fail", "227.0 GiB still needed"),
        ({"/m": 127 * GIB, "/d": 100 * GIB}, {"filesystem": 2}, "ok", "127.0 GiB"),
        ({"/m": 127 * GIB}, {"free_bytes": None}, "unknown", "could not be read"),
        ({"/m": None}, {}, "unknown", "not known"),
        ({"/other": 1}, {}, "unknown", "could not be read"),
    ],
)
def test_disk(needs: dict[str, t.Any], disk: dict[str, t.Any], status: str, text: str) -> None:
    disks = [{**SYSTEM["disks"][0], **disk}, SYSTEM["disks"][1]]
    verdict = judge({"disks": disks}, need_bytes=needs)["disk.free"][0]
    assert verdict["status"] == status
    assert text in verdict["summary"]


def listener(port: int, **owner: t.Any) -> dict[str, t.Any]:
    return {
        "address": "0.0.0.0",
        "port": port,
        "process": "python3",
        "pid": 7,
        "container": None,
        "unit": None,
        "deployment": None,
        **owner,
    }


@pytest.mark.parametrize(
    ("name", "listeners", "status", "text", "remedy"),
    [
        ("spark-1", [], "ok", "no foreign listener", None),
        ("spark-1", [listener(22)], "ok", "no foreign listener", None),
        (
            "spark-1",
            [listener(8000)],
            "fail",
            "Port 8000, which is needed for API, is held by python3 (pid 7).",
            "Stop process 7 on that node, or set sparkgate_api_port.",
        ),
        ("spark-1", [listener(8000, container="old")], "fail", "container old, python3 (pid 7)", "docker stop old"),
        ("spark-1", [listener(8000, unit="nginx.service")], "fail", "python3", "Stop process 7 (unit nginx.service)"),
        (
            "spark-1",
            [listener(6379, container="x", deployment="other")],
            "fail",
            "container x",
            "Stop the deployment other",
        ),
        ("spark-1", [listener(6379, process=None, pid=None)], "fail", "could not be identified", "ss -ltnp"),
        (
            "spark-1",
            [listener(8000, container="engine", deployment="qwen")],
            "ok",
            "1 held by the running deployment",
            None,
        ),
        ("spark-1", [listener(8000, unit="sparkgate-engine.service")], "ok", "1 held", None),
        # The API is the head's; another server on the worker's 8000 is in nobody's way.
        ("spark-2", [listener(8000)], "ok", "no foreign listener", None),
        # One of two hundred.
        ("spark-1", [listener(6450)], "warn", "Port 6450", "Stop process 7"),
        ("spark-1", None, "unknown", "could not be read", "recon_info"),
    ],
)
def test_ports(name: str, listeners: t.Any, status: str, text: str, remedy: str | None) -> None:
    verdicts = judge({"listeners": listeners}, name=name)["port.in_use"]
    assert len(verdicts) == 1
    assert verdicts[0]["status"] == status
    assert text in verdicts[0]["summary"]
    assert remedy is None or remedy in verdicts[0]["remedy"]


def test_one_verdict_for_a_listener_on_both_protocols() -> None:
    verdicts = judge({"listeners": [listener(6379), {**listener(6379), "address": "::"}]})["port.in_use"]
    assert len(verdicts) == 1
    assert verdicts[0]["evidence"]["addresses"] == ["0.0.0.0", "::"]


@pytest.mark.parametrize(
    ("engine", "requirement", "status", "remedy"),
    [
        (ENGINE, CUDA, "ok", None),
        (False, CUDA, "fail", "Install Docker"),
        (None, CUDA, "unknown", "docker info"),
        ({**ENGINE, "version": None, "answers": False}, CUDA, "fail", "systemctl start docker"),
        ({**ENGINE, "version": None, "answers": None}, CUDA, "unknown", "docker info"),
        ({**ENGINE, "version": "19.03.15"}, CUDA, "fail", "20.10"),
        ({**ENGINE, "version": "20.10.24+dfsg1"}, CUDA, "ok", None),
        ({**ENGINE, "nvidia_runtime": False}, CUDA, "fail", "nvidia-container-toolkit"),
        ({**ENGINE, "nvidia_runtime": None}, CUDA, "unknown", "docker info"),
        ({**ENGINE, "nvidia_runtime": False}, CPU, "ok", None),
    ],
)
def test_engine(engine: t.Any, requirement: dict[str, t.Any], status: str, remedy: str | None) -> None:
    verdict = judge({"container_engine": engine}, requirement=requirement)["container.engine"][0]
    assert verdict["status"] == status
    assert remedy is None or remedy in verdict["remedy"]


@pytest.mark.parametrize(
    ("system", "expected"),
    [
        ({}, {None: "ok"}),
        ({"tools": {"rsync": False, "systemd": "255"}}, {"rsync": "fail", None: "ok"}),
        ({"tools": {"rsync": None, "systemd": "255"}}, {"rsync": "unknown", None: "ok"}),
        ({"systemd": False}, {"systemd": "fail", None: "ok"}),
    ],
)
def test_tools(system: dict[str, t.Any], expected: dict[str | None, str]) -> None:
    assert {verdict["subject"]: verdict["status"] for verdict in judge(system)["node.tools"]} == expected


@pytest.mark.parametrize(
    ("holders", "available", "expected"),
    [
        ([OWN], 110, [("ok", "Nothing else")]),
        ([{**FOREIGN, "unit": "sparkgate-ray.service"}], 110, [("ok", "Nothing else")]),
        ([FOREIGN], 110, [("warn", "Container old (i) holds 64.0 GiB of memory and uses the GPU.")]),
        ([FOREIGN], 20, [("fail", "Container old")]),
        ([{**FOREIGN, "kind": "process", "name": "python3", "id": "77"}], 20, [("fail", "Process python3 (pid 77)")]),
        # A desktop session.
        (
            [{**FOREIGN, "kind": "process", "memory_bytes": 1 << 20, "gpu_memory_bytes": 100 << 20}],
            20,
            [("ok", "Nothing else")],
        ),
        ([{**FOREIGN, "memory_bytes": 0, "gpu_memory_bytes": None}], 110, [("warn", "uses the GPU")]),
        (
            [{**FOREIGN, "memory_bytes": 0, "gpu_memory_bytes": 0, "gpu": False, "deployment": "other"}],
            110,
            [("warn", "belongs to the deployment other")],
        ),
        (None, 110, [("unknown", "not known")]),
    ],
)
def test_leftovers(holders: t.Any, available: int, expected: list[tuple[str, str]]) -> None:
    system = {"memory": {"total_bytes": 120 * GIB, "available_bytes": available * GIB}, "holders": holders}
    verdicts = judge(system)["node.leftover"]
    assert len(verdicts) == len(expected)
    for verdict, (status, text) in zip(verdicts, expected, strict=True):
        assert verdict["status"] == status
        assert text in verdict["summary"]


def test_a_container_that_holds_only_a_port_is_named() -> None:
    holder = {**FOREIGN, "memory_bytes": 0, "gpu_memory_bytes": 0, "gpu": False}
    verdict = judge({"holders": [holder], "listeners": [listener(8000, container="old")]})["node.leftover"][0]
    assert (verdict["status"], verdict["subject"]) == ("warn", "old")
    assert "listens on 8000" in verdict["summary"]


@pytest.mark.parametrize(
    ("address", "addresses", "status", "text"),
    [
        ("10.0.0.1", SYSTEM["addresses"], "ok", "on enp1"),
        (None, SYSTEM["addresses"], "fail", "is not set"),
        ("", SYSTEM["addresses"], "fail", "is not set"),
        ("198.51.100.11", SYSTEM["addresses"], "fail", "is an example"),
        ("REPLACE_ME", SYSTEM["addresses"], "fail", "is an example"),
        ("10.0.0.2", SYSTEM["addresses"], "fail", "no interface of the node has it"),
        ("10.0.0.1", None, "unknown", "could not be read"),
        # A network that is reserved for examples and really used here.
        ("192.0.2.2", [{"interface": "eth0", "address": "192.0.2.2/24"}], "ok", "on eth0"),
    ],
)
def test_address(address: str | None, addresses: t.Any, status: str, text: str) -> None:
    verdict = judge({"addresses": addresses}, address=address)["node.address"][0]
    assert verdict["status"] == status
    assert text in verdict["summary"]
    if status == "fail":
        assert "10.0.0.1/24 (enp1)" in verdict["remedy"]


def verdict_of(
    identifier: str, status: str, host: str, summary: str = "text", remedy: str | None = "do it"
) -> dict[str, t.Any]:
    return {
        "id": identifier,
        "status": status,
        "host": host,
        "subject": None,
        "summary": summary,
        "remedy": remedy,
        "source": None,
        "evidence": None,
    }


MIXED = [
    verdict_of("a.ok", "ok", "b"),
    verdict_of("b.fail", "fail", "b"),
    verdict_of("b.fail", "fail", "a"),
    verdict_of("c.warn", "warn", "a"),
    verdict_of("d.unknown", "unknown", "a"),
]


@pytest.mark.parametrize(
    ("accepted", "expected"),
    [
        ([], [("b.fail", "b"), ("b.fail", "a")]),
        (["b.fail"], []),
        (["b.fail@a"], [("b.fail", "b")]),
        (["b.fail@c", "a.ok"], [("b.fail", "b"), ("b.fail", "a")]),
    ],
)
def test_failures(accepted: list[str], expected: list[tuple[str, str]]) -> None:
    assert [(item["id"], item["host"]) for item in _verdicts.failures(MIXED, accepted)] == expected
    marked = _verdicts.accept(MIXED, accepted)
    assert [(item["id"], item["host"]) for item in _verdicts.failures(marked)] == expected
    assert len(marked) == len(MIXED)


def test_table() -> None:
    marked = _verdicts.accept([*MIXED, verdict_of("e.fail", "fail", "spark-1", "word " * 30)], ["b.fail@a"])
    lines = _verdicts.table(marked, 80).splitlines()
    assert lines[0] == "STATUS    NODE     CHECK      RESULT"
    # The worst first, and by node within.
    assert [line.split()[:3] for line in lines if not line.startswith(" ")][1:-1] == [
        ["FAIL", "b", "b.fail"],
        ["FAIL", "spark-1", "e.fail"],
        ["UNKNOWN", "a", "d.unknown"],
        ["WARN", "a", "c.warn"],
        ["ACCEPTED", "a", "b.fail"],
        ["OK", "b", "a.ok"],
    ]
    assert lines[-1] == "2 failed, 1 unknown, 1 warned, 1 accepted, 1 ok"
    assert max(len(line) for line in lines) <= 80
    assert sum(1 for line in lines if line.strip() == "-> do it") == 5
    # YAML shows a text in its lines only where none ends in a space.
    assert all(line == line.rstrip() for line in lines)


def test_table_of_nothing() -> None:
    assert _verdicts.table([]).splitlines()[-1] == "nothing was checked"


def host(address: t.Any = "10.0.0.1", **variables: t.Any) -> dict[str, t.Any]:
    return {"ansible_host": "10.9.9.9", "sparkgate_fabric_address": address, **variables}


@pytest.mark.parametrize(
    ("hostvars", "nodes", "texts"),
    [
        ({"a": host(), "b": host("10.0.0.2")}, None, []),
        ({"a": host()}, ["a"], []),
        ({}, None, ["names no node"]),
        ({"a": host()}, [], ["names no node"]),
        ({"a": host()}, ["a", "c"], ["c: sparkgate_nodes names it"]),
        ({"a": host("198.51.100.11")}, None, ["a: sparkgate_fabric_address is 198.51.100.11, which is an example"]),
        ({"a": host("203.0.113.7")}, None, ["is an example"]),
        ({"a": host("REPLACE_ME")}, None, ["is an example"]),
        ({"a": host("<address>")}, None, ["is an example"]),
        ({"a": host(None)}, None, ["a: sparkgate_fabric_address is not set"]),
        ({"a": {"ansible_host": "10.9.9.9"}}, None, ["a: sparkgate_fabric_address is not set"]),
        ({"a": host("spark-a.local")}, None, ["not an IPv4 address"]),
        ({"a": host(ansible_host="198.51.100.1")}, None, ["a: ansible_host is 198.51.100.1"]),
        ({"a": host(ansible_host="spark.example.com")}, None, ["a: ansible_host is spark.example.com"]),
        ({"a.example": {"sparkgate_fabric_address": "10.0.0.1"}}, None, ["ansible_host is a.example"]),
        ({"a.example": {"sparkgate_fabric_address": "10.0.0.1", "ansible_connection": "local"}}, None, []),
        ({"a": host(), "b": host()}, None, ["a, b: sparkgate_fabric_address is 10.0.0.1 on all of them"]),
        (
            {
                "a": host("198.51.100.111", ansible_host="198.51.100.11"),
                "b": host("198.51.100.112", ansible_host="198.51.100.12"),
            },
            None,
            ["a: ansible_host", "a: sparkgate_fabric", "b: ansible_host", "b: sparkgate_fabric"],
        ),
    ],
)
def test_inventory(hostvars: dict[str, t.Any], nodes: list[str] | None, texts: list[str]) -> None:
    problems = _verdicts.inventory_problems(hostvars, nodes)
    assert len(problems) == len(texts), problems
    for problem, text in zip(problems, texts, strict=True):
        assert text in problem


@pytest.mark.parametrize(
    ("value", "expected"),
    [(0, "0 bytes"), (1023, "1023 bytes"), (1024, "1.0 KiB"), (130664833024, "121.7 GiB"), (2 << 40, "2.0 TiB")],
)
def test_human_bytes(value: int, expected: str) -> None:
    assert _verdicts.human_bytes(value) == expected


def test_rules_have_sources() -> None:
    rules = _verdicts.node_rules()
    assert rules["container_engine"]["source"]
    assert all(rule["source"] for rule in rules["memory"]["overhead"].values())
