# Copyright (c) 2026, The sparkgate.blackwell authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""How the probe's program is brought into a container, and how its document is found again."""

# Note that this module util is private to the collection. It can break compatibility with itself at any time.

from __future__ import annotations

import json
import typing as t

MARKER = "SPARKGATE-DOCUMENT"
PROGRESS = "SPARKGATE-PROGRESS"
# Only what repeats the program's output on purpose has its mark more than once.
DOCUMENT_ATTEMPTS = 8
# What the entrypoint of an image can change, and what is looked at once more without it.
ENTRYPOINT_SECTIONS = ("toolkit", "gpu")

REQUEST_KEYS = (
    "sections",
    "accelerator",
    "engine",
    "model_type",
    "model_path",
    "engine_argv",
    "engine_port",
    "health_path",
    "served_model_name",
    "prompt",
    "max_tokens",
    "dtype",
    "timeout",
)
NEEDED = {
    "engine": ("engine",),
    "generate": ("engine_argv", "engine_port", "served_model_name", "prompt"),
    "oracle": ("model_path", "prompt"),
}


class ProbeError(Exception):
    """The container could not be looked at."""

    def __init__(self, message: str, rc: int | None = None, tail: t.Sequence[str] = ()) -> None:
        super().__init__(message)
        self.rc = rc
        self.tail = list(tail)


def request_from(params: t.Mapping[str, t.Any], nonce: str) -> dict[str, t.Any]:
    """What the program is asked, from the module's options."""
    if not params.get("program"):
        raise ProbeError("There is no program to run. Call container_probe as a task: its action plugin brings it.")
    for section in params["sections"]:
        for option in NEEDED.get(section, ()):
            if not params.get(option):
                raise ProbeError(f"The section {section} needs the option {option}.")
    for key, value in params["environment"].items():
        if (
            not isinstance(value, (str, int, float))
            or isinstance(value, bool)
            or any(c in f"{key}{value}" for c in "\n\r\0")
            or "=" in key
        ):
            raise ProbeError(f"The environment variable {key} cannot be handed over: it must be one line of text.")
    return {**{key: params.get(key) for key in REQUEST_KEYS}, "nonce": nonce}


def program_text(program: str, request: t.Mapping[str, t.Any]) -> str:
    """The program with its request, as it is read by C(python3 -). Nothing of it is in a command line."""
    return f"{program}\n\nrun(json.loads({json.dumps(request)!r}))\n"


def container_command(params: t.Mapping[str, t.Any], name: str, env_file: str, id_file: str) -> list[str]:
    """The docker command. Our own options come last, where they win over the caller's."""
    argv = ["docker", "run", *params["container_argv"]]
    for key, value in sorted(params["labels"].items()):
        argv += ["--label", f"{key}={value}"]
    argv += ["--env-file", env_file, "--cidfile", id_file, "--name", name, "--rm", "--interactive", "--pull", "never"]
    if params["entrypoint"] == "bypassed":
        return [*argv, "--entrypoint", "python3", params["image"], "-"]
    return [*argv, params["image"], "python3", "-"]


def parse_document(out: str, nonce: str) -> dict[str, t.Any]:
    """The document in the output, whatever is printed before or after it, on its own line too."""
    start = f"{MARKER} {nonce} "
    position = out.rfind(start)
    for _attempt in range(DOCUMENT_ATTEMPTS):
        if position < 0:
            break
        try:
            found, _end = json.JSONDecoder().raw_decode(out, position + len(start))
        except (ValueError, RecursionError):
            found = None
        if isinstance(found, dict):
            return found
        position = out.rfind(start, 0, position)
    raise ProbeError("The program printed no document that can be read.")


def explain(rc: int, out: str, tail: list[str], params: t.Mapping[str, t.Any], nonce: str) -> str | None:
    """Why there is no document, for a person; None where there is one."""
    if f"{MARKER} {nonce} " in out:
        return None
    image = params["image"]
    seen = "; ".join(line for line in tail[-5:] if line.strip()) or "nothing"
    if rc == 124:
        return (
            f"The container of {image} did not end within {params['timeout']} s and was removed. Its last words: {seen}"
        )
    if rc == 125:
        return f"Docker could not start a container of {image} with these options: {seen}"
    if rc in (126, 127):
        return f"The image {image} has no python3 that can be run: {seen}"
    if rc == 137:
        return f"The container of {image} was killed, perhaps for want of memory. Its last words: {seen}"
    advice = ""
    if params["entrypoint"] == "used":
        advice = " If the image's entrypoint takes no command to run, use entrypoint bypassed."
    return f"The container of {image} ended with code {rc} and printed no document. Its last words: {seen}.{advice}"
