# Copyright (c) 2026, The sparkgate.blackwell authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The deployment document, and the golden files for two Sparks.

Set SPARKGATE_WRITE_GOLDEN=1 to write the golden files anew, and read the difference.
"""

from __future__ import annotations

import copy
import itertools
import json
import os
import typing as t
from pathlib import Path

import pytest
from ansible_collections.sparkgate.blackwell.plugins.plugin_utils import _deployment as deployments
from ansible_collections.sparkgate.blackwell.plugins.plugin_utils import _profile as profiles

GOLDEN = Path(__file__).parents[2] / "golden"
SPARK = "qwen3.5-122b-a10b-fp8"
LAB = "lab-tiny-qwen3.5-moe"
HCAS = ["rocep1s0f0", "roceP2p1s0f0"]


def nodes(count: int = 2, **more: t.Any) -> list[dict[str, t.Any]]:
    return [
        {
            "host": f"spark-{number}",
            "fabric_address": f"198.51.100.1{number}",
            "fabric_interface": "enp1s0f0np0",
            "management_address": f"192.0.2.1{number}",
            **more,
        }
        for number in range(1, count + 1)
    ]


def describe(profile: str = SPARK, engine: str | None = None, **more: t.Any) -> dict[str, t.Any]:
    more.setdefault("nodes", nodes())
    if engine == "vllm" and profile == SPARK:
        more.setdefault("base_image", "registry.example/spark-vllm:0.33.0")
    return deployments.describe(profiles.load(profile), engine=engine, **more)


def options(argv: list[str]) -> dict[str, list[str]]:
    found: dict[str, list[str]] = {}
    for index, word in enumerate(argv):
        if word.startswith("--"):
            value = argv[index + 1] if index + 1 < len(argv) and not argv[index + 1].startswith("--") else ""
            found.setdefault(word, []).append(value)
    return found


@pytest.mark.parametrize("engine", ["sglang", "vllm"])
def test_golden_two_sparks(engine: str) -> None:
    document = describe(engine=engine, nodes=nodes())
    got = {
        "container": document["container"],
        "engine_argv": document["engine_argv"],
        "engine_environment": document["engine_environment"],
        "engine_extra_argv": document["engine_extra_argv"],
        "ray_extra_argv": document["ray"]["extra_argv"],
        "nodes": document["nodes"],
        "smoke_argv": document["smoke"]["argv"],
    }
    file = GOLDEN / f"two_sparks_{engine}.json"
    if os.environ.get("SPARKGATE_WRITE_GOLDEN"):
        file.write_text(json.dumps(got, indent=2) + "\n", encoding="utf-8")
    assert got == json.loads(file.read_text(encoding="utf-8"))


@pytest.mark.parametrize("engine", ["sglang", "vllm"])
def test_container_options_of_a_spark(engine: str) -> None:
    document = describe(engine=engine)
    found = options(document["container"]["argv"])
    assert found["--gpus"] == ["all"]
    assert found["--ipc"] == ["host"]
    assert found["--network"] == ["host"]
    assert {"memlock=-1", "stack=67108864"} <= set(found["--ulimit"])
    assert found["--device"] == ["/dev/infiniband"]
    assert found["--cap-add"] == ["IPC_LOCK"]
    assert found["--security-opt"] == ["no-new-privileges"]
    assert "/var/lib/sparkgate/models/Qwen3.5-122B-A10B-FP8:/models/Qwen3.5-122B-A10B-FP8:ro" in found["--volume"]


def test_flags_of_sglang_on_a_spark() -> None:
    found = options(describe(engine="sglang")["engine_argv"])
    want = {
        "--use-ray": "",
        "--tp-size": "2",
        "--nnodes": "2",
        "--attention-backend": "triton",
        "--moe-runner-backend": "triton",
        "--fp8-gemm-backend": "triton",
        "--kv-cache-dtype": "auto",
        "--reasoning-parser": "qwen3",
        "--tool-call-parser": "qwen3_coder",
        "--mem-fraction-static": "0.7",
    }
    assert {name: found.get(name, [None])[0] for name in want} == want


def test_flags_of_vllm_on_a_spark() -> None:
    document = describe(engine="vllm")
    found = options(document["engine_argv"])
    assert found["--distributed-executor-backend"] == ["ray"]
    assert found["--tensor-parallel-size"] == ["2"]
    assert found["--moe-backend"] == ["triton"]
    assert "--nnodes" not in found
    assert document["nodes"][0]["environment"]["RAY_memory_monitor_refresh_ms"] == "0"


@pytest.mark.parametrize(("engine", "variable"), [("sglang", "SGLANG_HOST_IP"), ("vllm", "VLLM_HOST_IP")])
def test_environment_of_the_ranks(engine: str, variable: str) -> None:
    document = describe(engine=engine, nodes=nodes(rdma_devices=HCAS))
    first, second = (node["environment"] for node in document["nodes"])
    assert (first[variable], second[variable]) == ("198.51.100.11", "198.51.100.12")
    assert {name for name in first if first[name] != second[name]} == {variable}
    assert first["NCCL_IB_HCA"] == "=rocep1s0f0,roceP2p1s0f0"
    assert first["NCCL_NET"] == "IB"
    assert first["NCCL_NVLS_ENABLE"] == "0"
    for name in ("NCCL_SOCKET_IFNAME", "GLOO_SOCKET_IFNAME", "TP_SOCKET_IFNAME"):
        assert first[name] == "enp1s0f0np0"
    assert "CUDA_LAUNCH_BLOCKING" not in first
    assert "NCCL_IB_GID_INDEX" not in first


def test_unknown_rdma_devices_are_left_to_nccl() -> None:
    environment = describe()["nodes"][0]["environment"]
    assert not {"NCCL_IB_HCA", "NCCL_NET", "NCCL_IB_GID_INDEX"} & set(environment)
    assert environment["NCCL_IB_DISABLE"] == "0"


@pytest.mark.parametrize(
    ("profile", "engine", "count"), list(itertools.product([SPARK, LAB], ["sglang", "vllm"], [1, 2, 3]))
)
def test_what_holds_for_every_deployment(profile: str, engine: str, count: int) -> None:
    document = describe(profile, engine, nodes=nodes(count), base_image="registry.example/engines:1")
    text = json.dumps(document)
    assert "--privileged" not in text
    assert ":latest" not in text
    assert document["tensor_parallel"] == count
    # The same options on every node: nothing of a node is in them.
    for node in document["nodes"]:
        assert not any(node["address"] in word or node["host"] in word for word in document["container"]["argv"])
    # The probe's options are the launch's, without the weights.
    probe = document["container"]["probe_argv"]
    assert document["container"]["argv"][: len(probe)] == probe
    # Secrets come by file only.
    for line in [document["engine_argv"], *(node["ray_argv"] for node in document["nodes"])]:
        assert not {"--api-key", "--admin-api-key", "--hf-token", "--redis-password"} & set(line)
    assert options(document["engine_argv"])["--config"] == ["/run/secrets/sparkgate/engine.yaml"]
    for node in document["nodes"]:
        assert not any(name.endswith(("_TOKEN", "_KEY", "_SECRET")) for name in node["environment"])
    # Smoke: one node, no Ray, loopback.
    smoke = options(document["smoke"]["argv"])
    assert smoke["--host"] == ["127.0.0.1"]
    assert not {"--use-ray", "--distributed-executor-backend", "--config", "--nnodes"} & set(smoke)
    assert document["smoke"]["argv_partial"][-len(document["smoke"]["argv"]) :] == [
        word.replace(document["model"]["container_path"], "/tmp/sparkgate-partial")
        for word in document["smoke"]["argv"]
    ]
    # All fixed ports are different.
    used = [port for row in document["ports"] for port in range(row["port"], row.get("last", row["port"]) + 1)]
    assert len(used) == len(set(used))


def test_the_lab_has_logical_accelerators_and_no_gpu_options() -> None:
    document = describe(LAB)
    assert document["engine"] == "vllm"
    found = options(document["container"]["argv"])
    assert not {"--gpus", "--device", "--ulimit"} & set(found)
    assert all(options(node["ray_argv"])["--num-gpus"] == ["1"] for node in document["nodes"])
    assert not any(name.startswith("NCCL") for name in document["nodes"][0]["environment"])
    assert "--num-gpus" not in options(describe(SPARK)["nodes"][0]["ray_argv"])


def test_ray_on_head_and_worker() -> None:
    head, worker = (options(node["ray_argv"]) for node in describe()["nodes"])
    assert (
        "--head" in head and head["--node-ip-address"] == ["198.51.100.11"] and head["--include-dashboard"] == ["false"]
    )
    assert (
        "--head" not in worker
        and worker["--address"] == ["198.51.100.11:6379"]
        and worker["--node-ip-address"] == ["198.51.100.12"]
    )
    for line in (head, worker):
        for name in (
            "--node-manager-port",
            "--object-manager-port",
            "--runtime-env-agent-port",
            "--dashboard-agent-listen-port",
            "--dashboard-agent-grpc-port",
            "--metrics-export-port",
            "--min-worker-port",
            "--max-worker-port",
        ):
            assert line[name][0].isdigit()


VERSIONS = [
    (None, "cuda-graph-max-bs"),
    ("0.5.11", "cuda-graph-max-bs"),
    ("0.5.12.post1", "cuda-graph-max-bs"),
    ("0.5.14rc0", "cuda-graph-max-bs-decode"),
    ("0.5.23", "cuda-graph-max-bs-decode"),
]


@pytest.mark.parametrize(("version", "flag"), VERSIONS)
def test_arguments_by_version(version: str | None, flag: str) -> None:
    assert f"--{flag}" in describe(engine="sglang", engine_version=version)["engine_argv"]


def lookalike(**more: t.Any) -> dict[str, t.Any]:
    return {"nodes": nodes(), **more}


REFUSALS: list[tuple[dict[str, t.Any], str]] = [
    ({"nodes": []}, "There is no node to deploy to."),
    (lookalike(engine="tgi"), "has no tgi. Set sparkgate_base_image"),
    (
        lookalike(engine="tgi", base_image="x:1"),
        "has no arguments for tgi. Set sparkgate_engine to one of: sglang, vllm.",
    ),
    (lookalike(engine="vllm"), "The profile's base image scitrera/dgx-spark-sglang:0.5.12 has no vllm."),
    (lookalike(engine_version="0.5.10"), "has no arguments for sglang 0.5.10, only for >=0.5.11,<0.5.14; >=0.5.14."),
    (lookalike(engine_version="new"), "Invalid version: 'new'"),
    (
        {"nodes": nodes(fabric_interface=None)},
        "spark-1: no network interface has the fabric address 198.51.100.11.",
    ),
    ({"nodes": nodes(fabric_address="198.51.100.11")}, "spark-1, spark-2 have the same fabric address 198.51.100.11."),
]


@pytest.mark.parametrize(("arguments", "text"), REFUSALS)
def test_refusals(arguments: dict[str, t.Any], text: str) -> None:
    with pytest.raises(deployments.DeploymentError) as caught:
        deployments.describe(profiles.load(SPARK), **arguments)
    assert text in str(caught.value)


def test_user_overrides_container_options_by_key() -> None:
    document = describe(container_options={"ulimits": {"memlock": None, "stack": 1}, "gpus": None})
    found = options(document["container"]["argv"])
    assert found["--ulimit"] == ["stack=1"]
    assert "--gpus" not in found
    assert found["--device"] == ["/dev/infiniband"]


def test_the_image_has_another_name_for_another_recipe() -> None:
    profile = profiles.load(LAB)
    other = copy.deepcopy(profile)
    other["image"]["pip"] = ["transformers==5.18.0"]
    names = {
        deployments.describe(profile, nodes=nodes())["image"]["name"],
        deployments.describe(profile, nodes=nodes(), base_image="x:2")["image"]["name"],
        deployments.describe(profile, nodes=nodes(), engine="sglang")["image"]["name"],
        deployments.describe(other, nodes=nodes())["image"]["name"],
    }
    assert len(names) == 4
    assert deployments.describe(profile, nodes=nodes())["image"]["name"].startswith(
        "sparkgate/lab-tiny-qwen3.5-moe-vllm:"
    )


BINDS = [("192.0.2.11", "192.0.2.11"), ("spark-1.example", "0.0.0.0")]


@pytest.mark.parametrize(("address", "bind"), BINDS)
def test_the_api_binds_to_an_address_never_to_a_name(address: str, bind: str) -> None:
    document = describe(nodes=nodes(management_address=address))
    assert options(document["engine_argv"])["--host"] == [bind]
    assert document["api"]["url"] == f"http://{address}:8000"


FLAGS: list[tuple[dict[str, t.Any], list[str]]] = [
    ({"a": True, "b": False, "c": None}, ["--a"]),
    ({"a": 1, "b": "x y", "c": 0.5}, ["--a", "1", "--b", "x y", "--c", "0.5"]),
    ({"a": {"z": 1, "b": [2]}}, ["--a", '{"b":[2],"z":1}']),
    ({"a": ["x", 2]}, ["--a", "x", "2"]),
]


@pytest.mark.parametrize(("args", "line"), FLAGS)
def test_flags(args: dict[str, t.Any], line: list[str]) -> None:
    assert deployments.flags(args) == line
