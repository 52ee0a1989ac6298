# Copyright (c) 2026, The sparkgate.blackwell authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

# This file is private to the sparkgate.blackwell collection.
# Do not use it outside of it: it may change in any release.

"""The transient systemd unit in which a transfer runs, and what can be said about it."""

from __future__ import annotations

import glob
import json
import os
import platform
import re
import shlex
import sys
import typing as t

from ansible_collections.sparkgate.blackwell.plugins.module_utils import _transfer_runner as runner

if t.TYPE_CHECKING:
    from ansible.module_utils.basic import AnsibleModule

RUN_DIR = "/run/sparkgate/transfer"
PROGRAM = "sparkgate_transfer.py"
NAME_RE = re.compile(r"^[A-Za-z0-9_][A-Za-z0-9_.-]*$")
ACTIVE_STATES = ("active", "activating", "reloading", "deactivating")


def program_source() -> str:
    """Return the source of the program that the unit runs."""
    spec = runner.__spec__
    source = (
        spec.loader.get_source(runner.__name__) if spec and spec.loader and hasattr(spec.loader, "get_source") else None
    )
    if not source:
        raise runner.TransferError("The source of the transfer program is not at hand. Install the collection again.")
    return t.cast(str, source)


def parse_show(text: str) -> dict[str, str]:
    """Parse the output of `systemctl show`."""
    return dict(line.split("=", 1) for line in text.splitlines() if "=" in line)


def systemd_run_argv(unit: str, description: str, python: str, program: str, job: str) -> list[str]:
    """Return the command that starts the unit."""
    return [
        "systemd-run",
        f"--unit={unit}",
        f"--description={description}",
        "--service-type=exec",
        "--property=TimeoutStopSec=15",
        "--property=UMask=0022",
        "--setenv=LC_ALL=C.UTF-8",
        "--quiet",
        "--",
        python,
        "-I",
        program,
        job,
    ]


def unit_pids(unit: str, cgroups: t.Mapping[int, str]) -> list[int]:
    """Return the processes whose control group is the unit's; works for both versions of control groups."""
    return sorted(pid for pid, text in cgroups.items() if any(unit in line.split("/") for line in text.splitlines()))


def read_cgroups() -> dict[int, str]:
    """Return the control groups of all processes."""
    result = {}
    for path in glob.glob("/proc/[0-9]*/cgroup"):
        try:
            with open(path, encoding="utf-8") as stream:
                result[int(path.split("/")[2])] = stream.read()
        except OSError:
            continue  # ended meanwhile
    return result


def describe(
    name: str, unit_state: str, progress: runner.JSON | None, processes: list[int], journal: list[str]
) -> runner.JSON:
    """Return what is known about a transfer.

    The unit's state must have been read before the progress: then a unit that is not active has written its last word.
    """
    progress = progress or {}
    done, total = progress.get("bytes_done", 0), progress.get("bytes_total", 0)
    rate = progress.get("rate_bytes_s", 0)
    finished, error = bool(progress.get("finished")), progress.get("error")
    if unit_state in ACTIVE_STATES:
        state = "running"
    elif finished:
        state = "finished"
    elif progress or unit_state == "failed":
        state = "failed"
        error = error or "It was stopped or killed before it was complete."
    else:
        state = "absent"
    return {
        "name": name,
        "unit": f"sparkgate-transfer-{name}.service",
        "state": state,
        "unit_state": unit_state,
        "phase": progress.get("phase"),
        "bytes_done": done,
        "bytes_total": total,
        "rate_bytes_s": rate if state == "running" else 0,
        "detail": progress.get("detail") if state == "running" else None,
        "seconds_left": int((total - done) / rate) if state == "running" and rate and total else None,
        "started": progress.get("started"),
        "updated": progress.get("updated"),
        "error": error,
        "finished": finished,
        "processes": processes,
        "journal": journal,
    }


class Unit:
    """A transient systemd unit, its job file and its progress file."""

    def __init__(self, module: AnsibleModule, unit: str) -> None:
        self._module = module
        self.unit = f"{unit}.service"
        short = unit.removeprefix("sparkgate-").removeprefix("transfer-")
        self.job_path = f"{RUN_DIR}/{short}.job.json"
        self.progress_path = f"{RUN_DIR}/{short}.json"

    def state(self) -> str:
        """Return systemd's ActiveState."""
        code, out, err = self._module.run_command(["systemctl", "show", "--property=ActiveState", self.unit])
        if code:
            raise runner.TransferError(
                f"systemd on {platform.node()} cannot be asked about {self.unit}."
                f" Transfers need a node that was booted with systemd. Seen: {(err or out).strip()}"
            )
        return parse_show(out).get("ActiveState", "inactive")

    def runs(self, job: runner.JSON) -> bool:
        """Tell whether the unit is at work on exactly this job."""
        return self.state() in ACTIVE_STATES and runner.read_json(self.job_path) == job

    def progress(self) -> runner.JSON | None:
        return t.cast("runner.JSON | None", runner.read_json(self.progress_path))

    def processes(self) -> list[int]:
        return unit_pids(self.unit, read_cgroups())

    def journal(self, lines: int, since: float) -> list[str]:
        """Return the last lines that the unit and systemd wrote about it since a time."""
        argv = ["timeout", "-k", "1", "10", "journalctl", f"--unit={self.unit}", f"--since=@{int(since)}"]
        code, out, _err = self._module.run_command([*argv, f"--lines={lines}", "--output=cat", "--no-pager", "--quiet"])
        return out.splitlines()[-lines:] if code == 0 else []

    def start(self, description: str, job: runner.JSON, state_dir: str) -> None:
        """Start the job, in place of another one of this name."""
        self.stop()
        program = os.path.join(state_dir, "programs", PROGRAM)
        os.makedirs(os.path.dirname(program), mode=0o755, exist_ok=True)
        os.makedirs(RUN_DIR, mode=0o755, exist_ok=True)
        runner.write_atomic(program, program_source())
        runner.write_atomic(self.job_path, json.dumps(job), mode=0o600)
        argv = systemd_run_argv(self.unit, description, sys.executable, program, self.job_path)
        code, out, err = self._module.run_command(argv)
        if code:
            raise runner.TransferError(
                f"{self.unit} could not be started on {platform.node()}: {shlex.join(argv)}."
                f" Seen: {(err or out).strip()}"
            )

    def stop(self) -> None:
        """Stop the unit with all of its processes, and forget its last result."""
        if self.state() in ACTIVE_STATES:
            code, out, err = self._module.run_command(["systemctl", "stop", self.unit])
            if code:
                raise runner.TransferError(
                    f"{self.unit} could not be stopped on {platform.node()}. Seen: {(err or out).strip()}"
                )
        self.forget()

    def forget(self) -> None:
        """Remove what is left of a unit that is not active."""
        # Fails where nothing is left, and that is the aim.
        self._module.run_command(["systemctl", "reset-failed", self.unit])
        for path in (self.job_path, self.progress_path):
            if os.path.exists(path):
                os.unlink(path)


def local_image(module: AnsibleModule, name: str) -> runner.JSON | None:
    """Return id and size of an image of this node's engine, or None."""
    docker = module.get_bin_path("docker")
    if docker is None:
        if module.check_mode:
            return None
        raise runner.TransferError(
            f"There is no docker command on {platform.node()}. Install the container engine first."
        )
    code, out, err = module.run_command([docker, "image", "inspect", "--format", "{{.Id}} {{.Size}}", name])
    if code == 0:
        identity, size = out.split()
        return {"id": identity, "size": int(size)}
    if "no such image" in err.lower():
        return None
    raise runner.TransferError(
        f"The container engine of {platform.node()} does not answer about {name}. Seen: {err.strip()}"
    )
