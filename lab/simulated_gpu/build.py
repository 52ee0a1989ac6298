# Copyright (c) 2026, The sparkgate.blackwell authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Build the driver's libraries of a GPU that is not there: python3 lab/simulated_gpu/build.py --scenario gb10 --into DIR"""

from __future__ import annotations

import argparse
import json
import shutil
import subprocess
import sys
from pathlib import Path

HERE = Path(__file__).resolve().parent
# The name by which the libraries and nvidia-smi look for it, beside themselves.
SCENARIO_FILE = "simulated_gpu.scenario"
# What the kernel module would write to /proc/driver/nvidia/version.
DRIVER_FILE = "driver_version"


def scenarios() -> list[str]:
    return sorted(path.stem for path in (HERE / "scenarios").glob("*.scenario"))


def settings(text: str) -> dict[str, str]:
    """Keys and values as the libraries read them; of several lines with one key the first counts."""
    found: dict[str, str] = {}
    for line in text.splitlines():
        key, space, value = line.partition(" ")
        if space and not line.startswith("#"):
            found.setdefault(key, value)
    return found


def driver_text(values: dict[str, str]) -> str:
    machine, version = values["machine"], values["driver_version"]
    kind = {"open": f"Open Kernel Module for {machine}", "proprietary": f"{machine} Kernel Module"}
    return f"NVRM version: NVIDIA UNIX {kind[values['kernel_module']]}  {version}  Release Build  (simulated)\n"


def compat_text(text: str) -> str:
    """The scenario as the compatibility libraries see it: what is said of them goes first, and so it counts."""
    own = [line.removeprefix("compat.") for line in text.splitlines() if line.startswith("compat.")]
    return "\n".join([*own, text])


def compile_library(source: str, name: str, version: str, into: Path, note: str | None = None) -> None:
    """A library under the name that a driver's would have, whose version the file name tells, and a link to it."""
    file = into / f"{name.removesuffix('.1')}.{version}"
    argv = ["gcc", "-std=gnu11", "-Wall", "-Wextra", "-Werror", "-shared", "-fPIC", "-Wl,-Bsymbolic"]
    if note is not None:
        argv.append(f"-DCOMPAT_NOTE={json.dumps(note)}")
    subprocess.run([*argv, f"-Wl,-soname,{name}", str(HERE / source), "-o", str(file), "-ldl"], check=True)
    (into / name).symlink_to(file.name)


def build(text: str, into: Path) -> None:
    """Put the libraries, nvidia-smi and the text of the kernel module into a directory, in the place of earlier ones."""
    values = settings(text)
    if into.exists() and any(into.iterdir()):
        if not (into / SCENARIO_FILE).is_file():
            raise FileExistsError(f"{into} holds something else than a simulated GPU")
        shutil.rmtree(into)
    into.mkdir(parents=True, exist_ok=True)
    (into / SCENARIO_FILE).write_text(text)
    (into / DRIVER_FILE).write_text(driver_text(values))
    shutil.copy(HERE / "nvidia-smi", into)
    version = values["driver_version"]
    compile_library("libcuda.c", "libcuda.so.1", version, into)
    compile_library("libnvidia_ml.c", "libnvidia-ml.so.1", version, into)
    if "compat.libcuda_version" in values:
        compat = into / "compat"
        compat.mkdir()
        (compat / SCENARIO_FILE).write_text(compat_text(text))
        compile_library("libcuda.c", "libcuda.so.1", values["compat.libcuda_version"], compat, values["compat.note"])


def main(arguments: list[str]) -> int:
    parser = argparse.ArgumentParser(description="Build the libraries of a simulated GPU. They are for tests only.")
    parser.add_argument("--scenario", required=True, choices=scenarios())
    parser.add_argument("--into", required=True, type=Path, help="new directory, or one with an earlier build")
    chosen = parser.parse_args(arguments)
    if shutil.which("gcc") is None:
        parser.error("there is no gcc")
    try:
        build((HERE / "scenarios" / f"{chosen.scenario}.scenario").read_text(), chosen.into)
    except FileExistsError as error:
        parser.error(str(error))
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
