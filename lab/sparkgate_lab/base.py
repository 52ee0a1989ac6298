# Copyright (c) 2026, The sparkgate.blackwell authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The base image with both engines, and the tiny model, which takes the same environment to make."""

from __future__ import annotations

import os
import shlex
import shutil

import docker
from docker.models.containers import Container

from . import images
from . import settings as s
from .progress import Progress
from .registry import Registry

IMAGE = s.LAB / "image"
MODELS = s.STATE / "models"
MODEL = MODELS / s.MODEL_NAME
MADE_FROM = MODELS / f"{s.MODEL_NAME}.made-from"
CONFIG = {
    "Env": ["PATH=/opt/engines/bin:/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"],
    "Entrypoint": ["/opt/lab/entrypoint"],
    "WorkingDir": "/workspace",
    "Labels": {"sparkgate.base": "the lab's engines for the CPU: vLLM, SGLang and Ray"},
}


def ensure(client: docker.DockerClient, rootfs: str, registry: Registry, progress: Progress) -> str:
    """The base image's reference by digest. Image and model are made when one of them is not what it should be."""
    settings = images.pip_settings()
    build, maker = (IMAGE / "build.sh").read_text(), (s.LAB / "model" / "make_model.py").read_bytes()
    files = {
        "/etc/pip.conf": (0o644, images.pip_config(settings)),
        "/opt/lab/requirements.txt": (0o644, (IMAGE / "requirements.txt").read_bytes()),
        "/opt/lab/entrypoint": (0o755, (IMAGE / "entrypoint").read_bytes()),
        **images.folder(IMAGE / "shims", "/opt/lab/shims"),
    }
    tag = s.digest(rootfs, build, images.archive(files), repr(CONFIG), s.UV, *s.NEW_TRANSFORMERS)
    model = s.digest(maker, *s.NEW_TRANSFORMERS)
    stale = not (MADE_FROM.exists() and MADE_FROM.read_text() == model)
    absent = registry.digest(s.BASE_REPOSITORY, tag) is None
    if absent or stale:
        make(client, rootfs, registry if absent else None, tag, build, files, maker, settings, progress)
    if stale:
        MADE_FROM.write_text(model)
    return f"{s.REGISTRY_NAME}:{s.REGISTRY_PORT}/{s.BASE_REPOSITORY}@{registry.digest(s.BASE_REPOSITORY, tag)}"


def make(
    client: docker.DockerClient,
    rootfs: str,
    registry: Registry | None,
    tag: str,
    build: str,
    files: dict[str, tuple[int, bytes]],
    maker: bytes,
    settings: dict[str, str],
    progress: Progress,
) -> None:
    draft, newer = MODELS / "draft", s.STATE / "newer"
    for scratch in (draft, newer):
        s.remove_tree(scratch)
        scratch.mkdir(parents=True)
    folders = images.pip_folders(settings)
    inside = [f"/mnt/wheels{number}" for number in range(len(folders))]
    arguments = images.uv_arguments(settings) + [f"--find-links={place}" for place in inside]
    if index := os.environ.get("SPARKGATE_LAB_TORCH_INDEX"):
        arguments.append(f"--extra-index-url={index}")
    log = s.STATE / "logs" / "base.log"

    def push(container: Container) -> None:
        if registry is not None:
            with progress.long("put the base image into the registry"):
                registry.push(container, s.BASE_REPOSITORY, tag, CONFIG, str(client.version()["Arch"]))

    with progress.long("build the base image and the model", lambda: images.last_line(log, "[a-z]+ing( |$)")):
        images.run(
            client,
            rootfs,
            f"{build}\nmake_model",
            log,
            files={**files, "/mnt/make_model.py": (0o644, maker)},
            binds=(
                f"{newer}:/opt/newer",
                f"{draft}:/opt/model",
                *(f"{outside}:{place}:ro" for outside, place in zip(folders, inside, strict=True)),
            ),
            environment={
                **images.proxies(),
                "UV": s.UV,
                "UV_ARGUMENTS": shlex.join(arguments),
                "NEWER": " ".join(s.NEW_TRANSFORMERS),
                "CUDA_TORCH_GB": str(s.CUDA_TORCH_GB),
            },
            then=push,
        )
    for line in log.read_text(errors="replace").splitlines():
        if line.startswith("model:"):
            progress.say(f"  {line}")
    # in place where the folder exists: the head has it mounted
    MODEL.mkdir(exist_ok=True)
    for old in MODEL.iterdir():
        old.unlink()
    for new in draft.iterdir():
        shutil.move(str(new), MODEL / new.name)
    for scratch in (draft, newer):
        s.remove_tree(scratch)
