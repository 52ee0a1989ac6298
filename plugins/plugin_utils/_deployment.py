# Copyright (c) 2026, The sparkgate.blackwell authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

# Note that this module util is **PRIVATE** to the collection. It can have breaking changes at any time.
# Do not use this from other collections or standalone plugins/modules!

"""From a profile and the nodes to everything that will run: one document, computed once, read by every stage."""

from __future__ import annotations

import ipaddress
import json
import typing as t
from collections.abc import Mapping, Sequence
from pathlib import Path

import yaml
from ansible_collections.sparkgate.blackwell.plugins.plugin_utils._packaging import (
    InvalidSpecifier,
    InvalidVersion,
    SpecifierSet,
    Version,
)

from ._profile import SCHEMA, ProfileError, canonical_digest, check
from ._settings import image_problem, options_problem, path_problem, port_problem

_TABLES: dict[str, t.Any] = yaml.safe_load(Path(__file__).with_name("_deployment.yml").read_text(encoding="utf-8"))
_PARTIAL = Path(__file__).with_name("_partial_model.py")

SECRETS = "/run/secrets/sparkgate"
RAY_UNIT = "sparkgate-ray"
ENGINE_UNIT = "sparkgate-engine"


class DeploymentError(Exception):
    """A deployment that cannot be described; the text says what to do."""


def choose_engine(profile: Mapping[str, t.Any], engine: str, version: str | None) -> Mapping[str, t.Any]:
    """The profile's entry for an engine and its version; without a version, the first entry."""
    entries = profile["engines"].get(engine) or []
    if not entries:
        known = ", ".join(sorted(name for name, value in profile["engines"].items() if value))
        raise DeploymentError(
            f"The profile {profile['name']} has no arguments for {engine}. Set sparkgate_engine to one of: {known}."
        )
    if version is None:
        return t.cast("Mapping[str, t.Any]", entries[0])
    try:
        # A release candidate counts as its release, or it would fall between two ranges.
        wanted = Version(version).base_version
        for entry in entries:
            if SpecifierSet(entry["versions"]).contains(wanted):
                return t.cast("Mapping[str, t.Any]", entry)
    except (InvalidVersion, InvalidSpecifier) as exc:
        raise DeploymentError(f"The profile {profile['name']}: {exc}") from exc
    ranges = "; ".join(str(entry["versions"]) for entry in entries)
    raise DeploymentError(
        f"The profile {profile['name']} has no arguments for {engine} {version}, only for {ranges}. Use an "
        "image with such a version, or extend the profile."
    )


def flags(args: Mapping[str, t.Any]) -> list[str]:
    """Arguments as a command line: true is a bare flag, false and null are left out, mappings are JSON."""
    line: list[str] = []
    for name, value in args.items():
        if value is None or value is False:
            continue
        line.append(f"--{name}")
        if value is True:
            continue
        if isinstance(value, Mapping):
            line.append(json.dumps(value, sort_keys=True, separators=(",", ":")))
        elif isinstance(value, (list, tuple)):
            line.extend(str(item) for item in value)
        else:
            line.append(str(value))
    return line


def _fill(args: Mapping[str, t.Any], values: Mapping[str, t.Any]) -> dict[str, t.Any]:
    return {name: value.format_map(values) if isinstance(value, str) else value for name, value in args.items()}


def container_argv(options: Mapping[str, t.Any], labels: Mapping[str, str]) -> list[str]:
    """The options of `docker run` that are the same on every node and in every stage. Never --privileged."""
    line = ["--network", "host", "--ipc", "host", "--init", "--security-opt", "no-new-privileges"]
    for name, flag in (
        ("cap_drop", "--cap-drop"),
        ("cap_add", "--cap-add"),
        ("devices", "--device"),
        ("volumes", "--volume"),
    ):
        for value in options.get(name) or []:
            line += [flag, str(value)]
    for name, value in sorted((options.get("ulimits") or {}).items()):
        # A ulimit of null is one that the node cannot raise.
        if value is not None:
            line += ["--ulimit", f"{name}={value}"]
    if options.get("gpus"):
        line += ["--gpus", str(options["gpus"])]
    for key, value in sorted(labels.items()):
        line += ["--label", f"{key}={value}"]
    return line


def rank_environment(
    *, accelerator: str, engine: str, node: Mapping[str, t.Any], ray_token: str, extra: Mapping[str, str] | None = None
) -> dict[str, str]:
    """The environment of one rank; what the profile says about the engine wins over the table."""
    facts: dict[str, t.Any] = {
        "address": node["fabric_address"],
        "interface": node["fabric_interface"],
        "ray_token": ray_token,
    }
    if node.get("rdma_devices"):
        facts["rdma_devices"] = ",".join(node["rdma_devices"])
    if isinstance(node.get("gid_index"), int) and not isinstance(node["gid_index"], bool):
        facts["gid_index"] = node["gid_index"]
    found: dict[str, str] = {}
    for row in _TABLES["environment"]:
        when = row.get("when") or {}
        if when.get("engine", engine) != engine or when.get("accelerator", accelerator) != accelerator:
            continue
        if "known" in when and when["known"] not in facts:
            continue
        found[row["name"]] = row["value"].format_map(facts)
    found.update({name: str(value) for name, value in (extra or {}).items()})
    return dict(sorted(found.items()))


def ray_argv(*, head: str, own: str, is_head: bool, accelerators: int, logical: bool) -> list[str]:
    """`ray start` for one node, with every port that Ray lets one fix."""
    ports = _TABLES["ports"]
    args: dict[str, t.Any] = {"block": True, "disable-usage-stats": True, "node-ip-address": own}
    if is_head:
        # The dashboard takes jobs, which is to say code; the cluster needs none of it.
        args |= {
            "head": True,
            "port": ports["gcs"],
            "include-dashboard": "false",
            "ray-client-server-port": ports["ray_client"],
        }
    else:
        args |= {"address": f"{head}:{ports['gcs']}"}
    args |= {
        "node-manager-port": ports["node_manager"],
        "object-manager-port": ports["object_manager"],
        "runtime-env-agent-port": ports["runtime_env_agent"],
        "dashboard-agent-listen-port": ports["dashboard_agent_http"],
        "dashboard-agent-grpc-port": ports["dashboard_agent_grpc"],
        "metrics-export-port": ports["metrics"],
        "min-worker-port": ports["worker_first"],
        "max-worker-port": ports["worker_last"],
        # eugr/spark-vllm-docker takes 1 GiB; no object of ours goes through the store.
        "object-store-memory": 200_000_000,
    }
    if logical:
        # Without a GPU that Ray could count, the node declares one that is only a number to schedule by.
        args["num-gpus"] = accelerators
    return ["ray", "start", *(f"{item}" for item in flags(args))]


def _bind(address: str) -> str:
    # A name may resolve to a loopback address on the machine that has it, so only an address is bound to.
    try:
        return str(ipaddress.ip_address(address))
    except ValueError:
        return "0.0.0.0"


def _port_list(api_port: int) -> list[dict[str, t.Any]]:
    ports = _TABLES["ports"]
    rows: list[dict[str, t.Any]] = [
        {"port": api_port, "proto": "tcp", "purpose": "API of the engine", "exposure": "management", "node": "head"}
    ]
    for key, purpose, node in (
        ("gcs", "Ray, global control store", "head"),
        ("node_manager", "Ray, node manager", "all"),
        ("object_manager", "Ray, object manager", "all"),
        ("runtime_env_agent", "Ray, runtime environment agent", "all"),
        ("dashboard_agent_http", "Ray, agent, HTTP", "all"),
        ("dashboard_agent_grpc", "Ray, agent, gRPC", "all"),
        ("metrics", "Ray, metrics", "all"),
        ("ray_client", "Ray, client server", "head"),
    ):
        rows.append({"port": ports[key], "proto": "tcp", "purpose": purpose, "exposure": "fabric", "node": node})
    rows.append(
        {
            "port": ports["worker_first"],
            "last": ports["worker_last"],
            "proto": "tcp",
            "purpose": "Ray, worker processes",
            "exposure": "fabric",
            "node": "all",
        }
    )
    rows.append(
        {
            "port": ports["engine"],
            "proto": "tcp",
            "purpose": "rendezvous of the ranks",
            "exposure": "fabric",
            "node": "head",
        }
    )
    rows.append(
        {"port": ports["smoke"], "proto": "tcp", "purpose": "smoke run", "exposure": "loopback", "node": "head"}
    )
    return rows


def _reject_ports() -> list[str]:
    ports = _TABLES["ports"]
    return [
        f"{ports['gcs']}-{ports['ray_client']}",
        f"{ports['worker_first']}-{ports['worker_last']}",
        f"{ports['engine']}-{ports['engine']}",
        f"{ports['ephemeral_first']}-{ports['ephemeral_last']}",
    ]


def _requirement(
    profile: Mapping[str, t.Any], engine: str, nodes: int, tensor_parallel: int, dtype_kv: str
) -> dict[str, t.Any]:
    minimum = profile["min_versions"]
    found: dict[str, t.Any] = {
        "accelerator": profile["accelerator"],
        "quantization": profile["quantization"],
        "dtype_kv": dtype_kv,
        "min_transformers": minimum.get("transformers"),
        "min_ray": minimum.get("ray"),
        "engine": engine,
        "min_engine": minimum.get(engine),
        "tensor_parallel": tensor_parallel,
        "nodes": nodes,
    }
    for key in ("fp8_block", "kv_scales"):
        if key in profile:
            found[key] = profile[key]
    found.update({key: value for key, value in profile["config"].items() if key != "source" and value is not None})
    return found


def _options_problem(options: Mapping[str, t.Any]) -> str | None:
    known = ((SCHEMA.keys or {})["container"].keys or {})["options"]
    # A null takes a key of the profile's away.
    kept = {
        key: {name: entry for name, entry in value.items() if entry is not None}
        if isinstance(value, Mapping)
        else value
        for key, value in options.items()
        if value is not None
    }
    try:
        check(known, kept, "sparkgate_container_options", "and inventory together")
    except ProfileError as exc:
        return str(exc)
    return options_problem("sparkgate_container_options", kept)


def _refuse(*problems: str | None) -> None:
    found = [problem for problem in problems if problem]
    if found:
        raise DeploymentError(" ".join(found))


def describe(
    profile: Mapping[str, t.Any],
    *,
    nodes: Sequence[Mapping[str, t.Any]],
    engine: str | None = None,
    state_dir: str = "/var/lib/sparkgate",
    models_dir: str | None = None,
    api_port: int | str = 8000,
    base_image: str | None = None,
    revision: str | None = None,
    container_options: Mapping[str, t.Any] | None = None,
    engine_version: str | None = None,
) -> dict[str, t.Any]:
    """The deployment document. The first node is the head."""
    if not nodes:
        raise DeploymentError("There is no node to deploy to. Put at least one host into the inventory.")
    for node in nodes:
        if not node.get("fabric_interface"):
            raise DeploymentError(
                f"{node['host']}: no network interface has the fabric address {node['fabric_address']}. "
                "Give the address to the interface of the fabric, or correct sparkgate_fabric_address in the inventory."
            )
    addresses = [node["fabric_address"] for node in nodes]
    twice = sorted({address for address in addresses if addresses.count(address) > 1})
    if twice:
        hosts = ", ".join(node["host"] for node in nodes if node["fabric_address"] == twice[0])
        raise DeploymentError(
            f"{hosts} have the same fabric address {twice[0]}. Correct sparkgate_fabric_address in the inventory."
        )

    models_dir = models_dir or f"{state_dir}/models"
    options = {**profile["container"]["options"], **(container_options or {})}
    _refuse(
        path_problem("sparkgate_state_dir", state_dir, 2),
        path_problem("sparkgate_models_dir", models_dir, 1),
        port_problem("sparkgate_api_port", api_port, [*_reject_ports(), str(_TABLES["ports"]["smoke"])]),
        image_problem("sparkgate_base_image", base_image) if base_image else None,
        _options_problem(options),
    )
    # A number from the command line is text.
    api_port = int(api_port)
    engine = engine or profile["default_engine"]
    default_base = profile["image"]["base"]
    base = base_image or (
        f"{default_base}@{profile['image']['digest']}" if profile["image"]["digest"] else default_base
    )
    if engine not in profile["image"]["engines"] and base.partition("@")[0] == default_base:
        raise DeploymentError(
            f"The profile's base image {default_base} has no {engine}. Set sparkgate_base_image to an image "
            "that has it."
        )
    entry = choose_engine(profile, engine, engine_version)
    head = nodes[0]
    # Every node of the machines that this is made for has one accelerator.
    accelerators = 1
    tensor_parallel = len(nodes) * accelerators
    name = f"{profile['name']}-{engine}"
    directory = profile["model"]["id"].rpartition("/")[2]
    ports = _TABLES["ports"]
    minimum = profile["min_versions"]

    recipe = {
        # Raised when the template of the image changes what is built.
        "recipe": 2,
        "base": base,
        "engine": engine,
        "min_transformers": minimum.get("transformers"),
        "min_engine": minimum.get(engine),
        "min_ray": minimum.get("ray"),
        "pip": list(profile["image"]["pip"]),
    }
    model_path = f"/models/{directory}"
    options["volumes"] = [volume.replace("{state_dir}", state_dir) for volume in options.get("volumes") or []]
    probe = container_argv(options, {"sparkgate.deployment": name})
    argv = [*probe, "--volume", f"{models_dir}/{directory}:{model_path}:ro"]

    table = _TABLES["engines"][engine]
    values = {
        "model": model_path,
        "served": profile["model"]["id"],
        "tensor_parallel": tensor_parallel,
        "nodes": len(nodes),
        "engine_port": ports["engine"],
        "bind": _bind(head["management_address"]),
        "api_port": api_port,
        "smoke_port": ports["smoke"],
        "config": f"{SECRETS}/engine.yaml",
    }

    def engine_line(kind: str, model: str) -> list[str]:
        filled = {**values, "model": model}
        command = [part.format_map(filled) for part in table["command"]]
        return [
            *command,
            *flags(_fill(table["common"], filled)),
            *flags(_fill(table[kind], filled)),
            *flags(entry["args"]),
        ]

    partial_path = "/tmp/sparkgate-partial"
    layers = profile["smoke"]["partial"]["layers"]
    ray_token = f"{SECRETS}/ray_token"
    documents = [
        {
            "host": node["host"],
            "rank": rank,
            "address": node["fabric_address"],
            "interface": node["fabric_interface"],
            "management_address": node["management_address"],
            "environment": rank_environment(
                accelerator=profile["accelerator"],
                engine=engine,
                node=node,
                ray_token=ray_token,
                extra=entry.get("env"),
            ),
            "ray_argv": ray_argv(
                head=head["fabric_address"],
                own=node["fabric_address"],
                is_head=rank == 0,
                accelerators=accelerators,
                logical=profile["accelerator"] == "cpu",
            ),
        }
        for rank, node in enumerate(nodes)
    ]
    answer = {**profile["answer"], "dtype": profile["answer"]["dtype"].get(engine)}
    return {
        "name": name,
        "profile": profile["name"],
        "profile_digest": profile["digest"],
        "accelerator": profile["accelerator"],
        "engine": engine,
        "tensor_parallel": tensor_parallel,
        "head": head["host"],
        "image": {
            "base": base,
            "name": f"sparkgate/{name}:{canonical_digest(recipe)[7:19]}",
            "min_transformers": minimum.get("transformers"),
            "min_engine": minimum.get(engine),
            "min_ray": minimum.get("ray"),
            "pip": list(profile["image"]["pip"]),
        },
        "model": {
            "id": profile["model"]["id"],
            "revision": revision or profile["model"]["revision"],
            "name": directory,
            "host_path": f"{models_dir}/{directory}",
            "container_path": model_path,
        },
        "container": {"argv": argv, "probe_argv": probe},
        "requirement": _requirement(
            profile, engine, len(nodes), tensor_parallel, str(entry["args"].get("kv-cache-dtype", "auto"))
        ),
        "nodes": documents,
        "ray": {
            "port": ports["gcs"],
            "ports": dict(ports),
            "head_argv": documents[0]["ray_argv"],
            "address": f"{head['fabric_address']}:{ports['gcs']}",
            "unit": RAY_UNIT,
            "token_path": ray_token,
            # Ray's sockets and the engine's IPC files lie in /tmp, so both containers have the same one.
            "extra_argv": [
                "--volume",
                f"{state_dir}/tmp:/tmp",
                "--volume",
                f"{state_dir}/secrets/ray_token:{ray_token}:ro",
            ],
        },
        "engine_unit": ENGINE_UNIT,
        "engine_argv": engine_line("launch", model_path),
        "engine_environment": {"RAY_ADDRESS": f"{head['fabric_address']}:{ports['gcs']}"},
        "engine_extra_argv": [
            *("--pid", f"container:{RAY_UNIT}"),
            *("--volume", f"{state_dir}/tmp:/tmp"),
            *("--volume", f"{state_dir}/secrets/ray_token:{ray_token}:ro"),
            *("--volume", f"{state_dir}/secrets/engine.yaml:{SECRETS}/engine.yaml:ro"),
        ],
        "engine_config": {},
        "smoke": {
            "argv": engine_line("smoke", model_path),
            "argv_partial": [
                "python3",
                "-c",
                _PARTIAL.read_text(encoding="utf-8"),
                model_path,
                partial_path,
                str(layers),
                *engine_line("smoke", partial_path),
            ],
            "layers": layers,
            "port": ports["smoke"],
        },
        "api": {
            "address": head["management_address"],
            "port": api_port,
            "served_model_name": profile["model"]["id"],
            "url": f"http://{head['management_address']}:{api_port}",
        },
        "answer": answer,
        "ports": _port_list(api_port),
        # What the firewall closes to all but loopback and the fabric: the fixed ports, and the kernel's ephemeral
        # range, for the engines
        # let the kernel choose the ports of some of their stores.
        "reject_ports": _reject_ports(),
    }
