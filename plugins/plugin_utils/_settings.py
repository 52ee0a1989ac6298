# Copyright (c) 2026, The sparkgate.blackwell authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

# Note that this module util is **PRIVATE** to the collection. It can have breaking changes at any time.
# Do not use this from other collections or standalone plugins/modules!

"""What a user may set for a deployment. Each problem is a sentence with its remedy, or None."""

from __future__ import annotations

import re
import typing as t
from collections.abc import Iterable, Mapping

_PATH = re.compile(r"(/[A-Za-z0-9._-]+)+")
_IMAGE = re.compile(r"[a-z0-9]([a-z0-9._/-]|:(?=[0-9]+/))*(:[A-Za-z0-9_][A-Za-z0-9_.-]{0,127})?(@sha256:[0-9a-f]{64})?")
# With one of these a container is as good as privileged.
_CAPABILITIES = {"ALL", "SYS_ADMIN", "SYS_MODULE", "SYS_PTRACE", "SYS_RAWIO"}
_SOURCES = {"/", "/etc", "/proc", "/root", "/sys", "/var", "/var/run/docker.sock", "/run/docker.sock"}


def path_problem(name: str, path: t.Any, levels: int) -> str | None:
    """The path goes into units, volumes and commands of root, so that it must be a plain one."""
    parts = str(path).split("/")[1:]
    if isinstance(path, str) and _PATH.fullmatch(path) and len(parts) >= levels and not {".", ".."} & set(parts):
        return None
    least = f", at least {levels} levels deep" if levels > 1 else ""
    return f"{name} is {path!r}. Give an absolute path of letters, digits, '.', '_', '-' and '/'{least}."


def image_problem(name: str, image: t.Any) -> str | None:
    if isinstance(image, str) and _IMAGE.fullmatch(image):
        return None
    return f"{name} is {image!r}. Give repository:tag, or repository@sha256: and 64 hexadecimal digits."


def port_problem(name: str, port: t.Any, taken: Iterable[str]) -> str | None:
    """`taken` holds ranges such as 6379-6386."""
    if isinstance(port, bool) or not re.fullmatch(r"[0-9]{1,5}", str(port)) or not 1 <= int(port) <= 65535:
        return f"{name} is {port!r}. Give a port from 1 to 65535."
    for ports in taken:
        first, _dash, last = ports.partition("-")
        if int(first) <= int(port) <= int(last or first):
            return (
                f"{name} is {port}, which Ray or the engine need for themselves. Choose one outside {', '.join(taken)}."
            )
    return None


def options_problem(name: str, options: Mapping[str, t.Any]) -> str | None:
    """What would undo that a container is not privileged."""
    for capability in options.get("cap_add") or []:
        if str(capability).upper().removeprefix("CAP_") in _CAPABILITIES:
            return f"{name}: cap_add has {capability}, which is as good as a privileged container. Remove it."
    for volume in options.get("volumes") or []:
        source = str(volume).partition(":")[0]
        if (source.rstrip("/") or "/") in _SOURCES:
            return f"{name}: volumes has {volume}, which gives the container the node. Mount a directory of its own."
    return None
