# Copyright (c) 2026, The sparkgate.blackwell authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The container engine that holds the nodes: one that is there, or the lab's own."""

from __future__ import annotations

import contextlib
import json
import os
import shlex
import signal
import subprocess
import time
import typing as t
from pathlib import Path

import docker
import requests
from docker.errors import DockerException

from . import settings as s

RECORD = s.STATE / "engine.json"


def candidates() -> t.Iterator[str]:
    """The engine that already holds the lab first: two labs in two engines would be one too many."""
    if RECORD.exists():
        yield str(json.loads(RECORD.read_text())["url"])
    if os.environ.get("DOCKER_HOST"):
        yield os.environ["DOCKER_HOST"]
    yield f"unix://{s.OWN_SOCKET}"
    yield "unix:///var/run/docker.sock"


def connect() -> tuple[docker.DockerClient, str]:
    for url in candidates():
        if not url.startswith("unix://"):
            continue  # nodes bind-mount files of this machine: the engine has to be on it
        try:
            client = docker.DockerClient(base_url=url, timeout=900)
            client.ping()
        except (DockerException, requests.RequestException, OSError):
            continue
        return client, url
    raise s.LabError(
        "No container engine answers on this machine. Run `scripts/setup --with-engine`, which starts one for the lab, "
        "or start your own and set DOCKER_HOST to its unix:// socket."
    )


def remember(url: str) -> None:
    RECORD.write_text(json.dumps({"url": url}))


def is_own() -> bool:
    return s.OWN_PIDFILE.exists()


def stop_own() -> None:
    """End the engine that scripts/setup started, by the id that it wrote, and undo what it did to the machine."""
    pid = int(s.OWN_PIDFILE.read_text())
    with contextlib.suppress(ProcessLookupError):
        program = Path(f"/proc/{pid}/cmdline")
        if program.exists() and b"dockerd" in program.read_bytes():
            os.kill(pid, signal.SIGTERM)
            for _unused in range(600):
                os.kill(pid, 0)
                time.sleep(0.1)
            raise s.LabError(
                f"The lab's engine (process {pid}) does not end. Stop it, then run lab/down --purge again."
            )
    for line in reversed(Path("/proc/self/mountinfo").read_text().splitlines()):
        place = line.split()[4]
        if Path(place).is_relative_to(s.RUN) or Path(place).is_relative_to(s.OWN_DATA_ROOT):
            command("umount", place)
    if not Path("/var/run/docker.sock").exists():  # another engine needs what both of them share
        undo_network()
    s.remove_tree(s.OWN_DATA_ROOT)
    s.remove_tree(s.RUN)


def command(*argv: str) -> str:
    done = subprocess.run(argv, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        raise s.LabError(
            f"`{' '.join(argv)}` failed: {done.stderr.strip()}. Put that right, then run lab/down --purge again."
        )
    return done.stdout


def undo_network() -> None:
    """Take back an engine's rules, its bridge and IP forwarding, as scripts/setup wrote them down beforehand."""
    before = (
        dict(line.split("=", 1) for line in (s.STATE / "before").read_text().splitlines())
        if (s.STATE / "before").exists()
        else {}
    )
    for table in ("filter", "nat"):
        rules = [shlex.split(rule) for rule in command("iptables", "-t", table, "-S").splitlines()]
        for rule in rules:
            if rule[0] == "-A" and any(word.startswith(("DOCKER", "docker0")) for word in rule[1:]):
                command("iptables", "-t", table, "-D", *rule[1:])
        chains = [rule[1] for rule in rules if rule[0] == "-N" and rule[1].startswith("DOCKER")]
        for verb in ("-F", "-X"):
            for chain in chains:
                command("iptables", "-t", table, verb, chain)
    if before.get("docker0") == "new" and Path("/sys/class/net/docker0").exists():
        command("ip", "link", "delete", "docker0")
    if before.get("forward_policy"):
        command("iptables", "-P", "FORWARD", before["forward_policy"])
    if before.get("ip_forward"):
        Path("/proc/sys/net/ipv4/ip_forward").write_text(before["ip_forward"])
