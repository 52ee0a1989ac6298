# Copyright (c) 2026, The sparkgate.blackwell authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Names, paths and pins of the lab. All that it makes carries LABEL."""

from __future__ import annotations

import hashlib
import os
import shutil
from pathlib import Path

LAB = Path(__file__).resolve().parent.parent
# Another name makes a second lab beside the first one, to try a change of the lab itself.
PREFIX = os.environ.get("SPARKGATE_LAB_NAME", "sparkgate-lab")
LABEL = "sparkgate.lab"
LABELS = {LABEL: "1" if PREFIX == "sparkgate-lab" else PREFIX}
OURS = {"label": f"{LABEL}={LABELS[LABEL]}"}

STATE = Path("/var/lib") / PREFIX
RUN = Path("/run") / PREFIX
OWN_SOCKET = RUN / "docker.sock"
OWN_PIDFILE = RUN / "dockerd.pid"
OWN_DATA_ROOT = STATE / "engine"
INVENTORY = (LAB / "inventory" if PREFIX == "sparkgate-lab" else STATE) / "hosts.yml"

MODEL_NAME = "lab-tiny-qwen3.5-moe"
MODEL_ON_HEAD = f"/srv/lab/models/{MODEL_NAME}"
USER = "spark"

SUITE = "bookworm"
REGISTRY_NAME = "registry.lab.example"
REGISTRY_PORT = 5000
BASE_REPOSITORY = "ngc/engines-cpu"

# The base image's transformers is too old for the model, as on the machines that this collection was
# written for (lab/image/requirements.txt). The model itself is made with the newer one that the custom image will get.
NEW_TRANSFORMERS = ("transformers==5.19.0", "huggingface_hub==2.4.0", "tokenizers==0.23.3")

UV = "uv==0.9.26"
NODE_SHM = "4g"
# Where PyPI's torch with CUDA's libraries stands in for a CPU build: the registry's copy and each node's of 7 GB more.
CUDA_TORCH_GB = 30


def digest(*parts: bytes | str) -> str:
    """Twelve hex digits that change whenever one of the parts does."""
    total = hashlib.sha256()
    for part in parts:
        data = part.encode() if isinstance(part, str) else part
        total.update(len(data).to_bytes(8, "big") + data)
    return total.hexdigest()[:12]


def remove_tree(path: Path) -> None:
    """Remove a folder, but never through a mount: a build that was broken off may have left this machine's /proc in it."""
    mounts = [line.split()[4] for line in Path("/proc/self/mountinfo").read_text().splitlines()]
    inside = [place for place in mounts if Path(place).is_relative_to(path)]
    if inside:
        raise LabError(
            f"{path} is not removed, since something is mounted in it. `umount {' '.join(inside)}`, then try again."
        )
    shutil.rmtree(path, ignore_errors=not path.exists())


def invoking_user() -> tuple[int, int]:
    """Owner for what the person who called sudo must be able to read."""
    return int(os.environ.get("SUDO_UID", os.getuid())), int(os.environ.get("SUDO_GID", os.getgid()))


class LabError(Exception):
    """A message for the person who runs the lab: what is wrong and what to do."""
