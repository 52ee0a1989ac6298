# Copyright (c) 2026, The sparkgate.blackwell authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

import json
import os
import typing as t
from pathlib import Path

import pytest
from ansible_collections.sparkgate.blackwell.plugins.module_utils import _recon
from ansible_collections.sparkgate.blackwell.plugins.module_utils._recon import Source

OUTER = "a" * 64
INNER = "b" * 64

TCP = """\
  sl  local_address rem_address   st tx_queue rx_queue tr tm->when retrnsmt   uid  timeout inode
   0: 00000000:1F40 00000000:0000 0A 00000000:00000000 00:00000000 00000000     0        0 4711 1 0000 100 0 0 10 0
   1: 0100007F:18EB 00000000:0000 0A 00000000:00000000 00:00000000 00000000     0        0 4712 1 0000 100 0 0 10 0
   2: 0100007F:D431 0100007F:18EB 01 00000000:00000000 00:00000000 00000000     0        0 4713 1 0000 100 0 0 10 0
"""
TCP6 = """\
  sl  local_address                         remote_address                        st tx_queue rx_queue tr tm->when retrnsmt   uid  timeout inode
   0: 00000000000000000000000000000000:1F40 00000000000000000000000000000000:0000 0A 00000000:00000000 00:00000000 00000000     0        0 1 1 0
   1: 0000000000000000FFFF00000100007F:0016 00000000000000000000000000000000:0000 0A 00000000:00000000 00:00000000 00000000     0        0 2 1 0
"""


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (TCP, [("0.0.0.0", 8000, 4711), ("127.0.0.1", 6379, 4712)]),
        (TCP6, [("::", 8000, 1), ("127.0.0.1", 22, 2)]),
        (None, []),
        ("", []),
        ("header\n 0: XYZ:1F40 0:0 0A 0 0 0 0 0 0 1", []),
        ("header\n 0: 00000000:1F40 0:0 0A", []),
        ("header\n 0: 0000:1F40 0:0 0A 0 0 0 0 0 1 1", []),
    ],
)
def test_parse_proc_net_tcp(text: str | None, expected: list[tuple[str, int, int]]) -> None:
    found = _recon.parse_proc_net_tcp(text)
    assert [(item["address"], item["port"], item["inode"]) for item in found] == expected


@pytest.mark.parametrize(
    ("text", "containers", "unit"),
    [
        (f"0::/system.slice/docker-{INNER}.scope\n", [INNER], None),
        (
            f"4:memory:/docker/{OUTER}/docker/{INNER}\n1:name=systemd:/docker/{OUTER}/docker/{INNER}",
            [INNER, OUTER],
            None,
        ),
        (f"1:name=systemd:/docker/{OUTER}/system.slice/ssh.service", [OUTER], "ssh.service"),
        ("0::/system.slice/sparkgate-transfer-image.service", [], "sparkgate-transfer-image.service"),
        ("0::/", [], None),
        ("\x00rubbish", [], None),
        (None, [], None),
    ],
)
def test_parse_cgroup(text: str | None, containers: list[str], unit: str | None) -> None:
    assert _recon.parse_cgroup(text) == {"containers": containers, "unit": unit}


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("rsync  version 3.2.7  protocol version 31\nCopyright", "3.2.7"),
        ("OpenSSH_9.2p1 Debian-2+deb12u3, OpenSSL 3.0.15 3 Sep 2024", "9.2p1"),
        ("systemd 252 (252.36-1~deb12u1)\n+PAM", "252"),
        ("nftables v1.0.6 (Lester Gooch #5)", "1.0.6"),
        ("Python 3.13.0", "3.13.0"),
        ("no version here 7", None),
        ("", None),
        (None, None),
    ],
)
def test_parse_version(text: str | None, expected: str | None) -> None:
    assert _recon.parse_version(text) == expected


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (
            "MemTotal:       127601388 kB\nHugePages_Total:       0\nActive(anon): 4 kB\n",
            {"MemTotal": 130663821312, "HugePages_Total": 0, "Active(anon)": 4096},
        ),
        ("MemTotal: many kB\nMemFree", {}),
        (None, {}),
    ],
)
def test_parse_meminfo(text: str | None, expected: dict[str, int]) -> None:
    assert _recon.parse_meminfo(text) == expected


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (
            json.dumps(
                {
                    "ServerVersion": "28.5.1",
                    "Driver": "overlay2",
                    "DockerRootDir": "/d",
                    "Runtimes": {"runc": {}, "nvidia": {}},
                }
            ),
            {"version": "28.5.1", "storage_driver": "overlay2", "data_root": "/d", "nvidia_runtime": True},
        ),
        (
            json.dumps({"ServerVersion": "20.10.24+dfsg1"}),
            {"version": "20.10.24+dfsg1", "storage_driver": None, "data_root": None, "nvidia_runtime": None},
        ),
        # What the client prints where the daemon is down.
        (json.dumps({"ServerErrors": ["Cannot connect"], "ServerVersion": ""}), None),
        ("[]", None),
        ("{", None),
        (None, None),
    ],
)
def test_parse_docker_info(text: str | None, expected: dict[str, t.Any] | None) -> None:
    assert _recon.parse_docker_info(text) == expected


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (
            json.dumps(
                [
                    {
                        "Id": INNER,
                        "Name": "/engine",
                        "Config": {"Image": "i:1", "Labels": {"sparkgate.deployment": "qwen"}, "Env": ["KEY=secret"]},
                    },
                    {"Id": OUTER, "Name": "/other", "Config": {"Image": "i:2", "Labels": None}},
                    {"Id": ""},
                    7,
                ]
            ),
            [
                {"id": INNER, "name": "engine", "image": "i:1", "deployment": "qwen"},
                {"id": OUTER, "name": "other", "image": "i:2", "deployment": None},
            ],
        ),
        ("{}", None),
        ("[{]", None),
        (None, None),
    ],
)
def test_parse_docker_inspect(text: str | None, expected: list[dict[str, t.Any]] | None) -> None:
    assert _recon.parse_docker_inspect(text) == expected


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (
            json.dumps(
                [
                    {},
                    {"ifname": "lo", "addr_info": [{"family": "inet", "local": "127.0.0.1", "prefixlen": 8}]},
                    {
                        "ifname": "eth1",
                        "addr_info": [
                            {"family": "inet6", "local": "fe80::1", "prefixlen": 64},
                            {"family": "inet", "local": "10.0.0.1", "prefixlen": 24},
                        ],
                    },
                    {"ifname": "eth2", "addr_info": []},
                ]
            ),
            [{"interface": "lo", "address": "127.0.0.1/8"}, {"interface": "eth1", "address": "10.0.0.1/24"}],
        ),
        ("", None),
        ('Object "-j" is unknown', None),
    ],
)
def test_parse_addresses(text: str, expected: list[dict[str, t.Any]] | None) -> None:
    assert _recon.parse_addresses(text) == expected


def make_source(root: Path, answers: dict[str, tuple[int, str, str]] | None = None) -> Source:
    """A machine made of files, with the commands that are named."""
    known = answers or {}

    def run(argv: list[str]) -> tuple[int, str, str]:
        assert argv[:3] == ["timeout", "-k", "1"], "every command has a time limit"
        line = " ".join(argv[4:])
        return next((answer for start, answer in known.items() if line.startswith(start)), (127, "", "not found"))

    def which(name: str) -> str | None:
        return name if any(start.split()[0] == name for start in known) else None

    return Source(run, which, str(root))


@pytest.mark.parametrize(
    ("answers", "engine", "containers", "errors"),
    [
        ({}, False, [], 0),
        ({"docker info": (1, "", "Cannot connect to the Docker daemon")}, {"answers": False, "version": None}, None, 1),
        ({"docker info": (124, "", "")}, {"answers": None, "version": None}, None, 1),
        ({"docker info": (0, "WARNING: rubbish", "")}, {"answers": False, "version": None}, None, 1),
        (
            {"docker info": (0, '{"ServerVersion": "28.5.1"}', ""), "docker ps": (0, "", "")},
            {"answers": True, "version": "28.5.1"},
            [],
            0,
        ),
        ({"docker info": (0, '{"ServerVersion": "28.5.1"}', "")}, {"answers": True, "version": "28.5.1"}, None, 1),
        (
            {
                "docker info": (0, '{"ServerVersion": "28.5.1"}', ""),
                "docker ps": (0, INNER, ""),
                "docker inspect": (0, json.dumps([{"Id": INNER, "Name": "/e"}]), ""),
            },
            {"answers": True, "version": "28.5.1"},
            [{"id": INNER, "name": "e", "image": None, "deployment": None}],
            0,
        ),
    ],
)
def test_read_engine(tmp_path: Path, answers: dict[str, t.Any], engine: t.Any, containers: t.Any, errors: int) -> None:
    source = make_source(tmp_path, answers)
    found, running = _recon.read_engine(source)
    if isinstance(engine, dict):
        assert isinstance(found, dict)
        assert {key: found[key] for key in engine} == engine
    else:
        assert found is engine
    assert running == containers
    assert len(source.errors) == errors


def make_process(
    root: Path, pid: int, name: str, cgroup: str, anonymous: int = 0, shared: int = 0, inode: int | None = None
) -> None:
    directory = root / "proc" / str(pid)
    (directory / "fd").mkdir(parents=True)
    (directory / "comm").write_text(f"{name}\n")
    (directory / "cgroup").write_text(cgroup)
    (directory / "status").write_text(f"Name:\t{name}\nRssAnon:\t{anonymous} kB\nRssShmem:\t{shared} kB\n")
    if inode is not None:
        os.symlink(f"socket:[{inode}]", directory / "fd" / "3")


def test_owners_of_ports_and_memory(tmp_path: Path) -> None:
    (tmp_path / "proc" / "net").mkdir(parents=True)
    make_process(tmp_path, 10, "sglang", f"0::/system.slice/docker-{INNER}.scope", 1024, 2048, inode=1)
    make_process(tmp_path, 11, "ray", f"0::/system.slice/docker-{INNER}.scope", 1024, 2048)
    make_process(tmp_path, 12, "postgres", "0::/system.slice/postgres.service", 3 << 20, 0, inode=2)
    make_process(tmp_path, 13, "bash", "0::/user.slice", 100, 0)
    source = make_source(tmp_path)
    processes = _recon.read_processes(source, {1, 2, 3})
    containers = [{"id": INNER, "name": "engine", "image": "i", "deployment": "qwen"}]
    sockets = [{"address": "0.0.0.0", "port": port, "inode": inode} for inode, port in ((1, 8000), (2, 5432), (3, 99))]
    listeners = {item["port"]: item for item in _recon.describe_listeners(sockets, processes, containers)}
    assert listeners[8000] == {
        "address": "0.0.0.0",
        "port": 8000,
        "process": "sglang",
        "pid": 10,
        "container": "engine",
        "unit": None,
        "deployment": "qwen",
    }
    assert (listeners[5432]["process"], listeners[5432]["unit"], listeners[5432]["deployment"]) == (
        "postgres",
        "postgres.service",
        None,
    )
    assert (listeners[99]["process"], listeners[99]["pid"]) == (None, None)

    holders = {
        item["name"]: item
        for item in _recon.describe_holders(
            processes, containers, [{"pid": 11, "used_bytes": 5}, {"pid": 13, "used_bytes": None}]
        )
    }
    assert set(holders) == {"engine", "postgres", "bash"}
    # Shared memory of the two processes is the same memory.
    assert holders["engine"]["memory_bytes"] == 4 << 20
    assert (holders["engine"]["gpu"], holders["engine"]["gpu_memory_bytes"]) == (True, 5)
    assert (holders["bash"]["gpu"], holders["bash"]["gpu_memory_bytes"]) == (True, None)
    assert holders["postgres"]["memory_bytes"] == 3 << 30


def test_read_disk(tmp_path: Path) -> None:
    (tmp_path / "model").mkdir()
    (tmp_path / "model" / "a").write_bytes(b"x" * 5000)
    os.symlink("/etc/passwd", tmp_path / "model" / "link")
    found = _recon.read_disk(str(tmp_path / "model"))
    assert 5000 <= found["content_bytes"] < 6000
    missing = _recon.read_disk(str(tmp_path / "not" / "there"))
    assert missing["free_bytes"] > 0
    assert missing["content_bytes"] == 0
    assert missing["filesystem"] == found["filesystem"]
    assert _recon.count_content(str(tmp_path), maximum=2) is None


def test_read_system_of_an_empty_machine(tmp_path: Path) -> None:
    """Nothing there at all is no exception: values are None or absent, and what failed is listed."""
    source = make_source(tmp_path)
    system = _recon.read_system(source, os.uname(), [], None, [], None)
    assert system["memory"] == {"total_bytes": None, "available_bytes": None, "swap_total_bytes": None}
    assert system["os"] == {"name": None, "version": None, "dgx_release": False}
    assert system["container_engine"] is False
    assert system["tools"] == {"rsync": False, "ssh": False, "systemd": False, "nft": False}
    assert (system["listeners"], system["holders"], system["systemd"]) == ([], [], False)
    assert [item["name"] for item in system["errors"]] == ["MemAvailable is missing"]


def test_read_system_of_a_spark(tmp_path: Path) -> None:
    (tmp_path / "etc").mkdir()
    (tmp_path / "etc" / "os-release").write_text('NAME="Ubuntu"\nVERSION_ID="24.04"\n# comment=1\n')
    (tmp_path / "etc" / "dgx-release").write_text('DGX_NAME="DGX Spark"\nDGX_SWBUILD_VERSION="7.2.3"\n')
    (tmp_path / "run" / "systemd" / "system").mkdir(parents=True)
    answers = {"rsync": (0, "rsync  version 3.2.7", ""), "systemctl": (1, "", "no bus"), "ip": (0, "[]", "")}
    source = make_source(tmp_path, answers)
    system = _recon.read_system(source, os.uname(), [], [], [], [])
    assert system["os"] == {"name": "Ubuntu", "version": "24.04", "dgx_release": "7.2.3"}
    assert system["systemd"] is True
    assert system["tools"] == {"rsync": "3.2.7", "ssh": False, "systemd": None, "nft": False}
