# Copyright (c) 2026, The sparkgate.blackwell authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

# Note that this plugin util is **PRIVATE** to the collection. It can have breaking changes at any time.
# Do not use this from other collections or standalone plugins/modules!

"""What is said about a GPU, its driver and the image that is to run on it; the knowledge is in cuda.yml and known_bad.yml.

A key that is absent was not asked: no verdict. None was asked and is not known: unknown. False and [] say that there is none.
"""

from __future__ import annotations

import functools
import operator
import re
import typing as t
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path

import yaml
from ansible_collections.sparkgate.blackwell.plugins.module_utils._cuda_tables import NVML_BRANDS
from ansible_collections.sparkgate.blackwell.plugins.plugin_utils._container_verdicts import (
    check_engine,
    check_transformers,
)
from ansible_collections.sparkgate.blackwell.plugins.plugin_utils._verdicts import (
    MISSING,
    Verdict,
    Verdicts,
    human_bytes,
)

Document = Mapping[str, t.Any]
Numbers = tuple[int, ...]

# How Docker and the kernel call the same architecture.
_ARCHITECTURES = {"aarch64": "arm64", "x86_64": "amd64"}
_OPERATORS: dict[str, Callable[[Numbers, Numbers], bool]] = {
    ">=": operator.ge,
    "<=": operator.le,
    "==": operator.eq,
    "<": operator.lt,
    ">": operator.gt,
}


@functools.cache
def _load(name: str) -> t.Any:
    return yaml.safe_load((Path(__file__).parent / name).read_text(encoding="utf-8"))


def cuda() -> dict[str, t.Any]:
    return t.cast("dict[str, t.Any]", _load("cuda.yml"))


def known_bad() -> list[dict[str, t.Any]]:
    return t.cast("list[dict[str, t.Any]]", _load("known_bad.yml"))


# Versions, capabilities, targets


def numbers(version: t.Any) -> Numbers | None:
    """The leading numbers of a version: 7.0.0-1019-nvidia is (7, 0, 0, 1019). None where there is none."""
    match = None if isinstance(version, bool) else re.match(r"^\s*v?(\d+(?:[.-]\d+)*)", str(version))
    return tuple(int(part) for part in re.split(r"[.-]", match.group(1))) if match else None


def compare(left: Numbers, right: Numbers) -> int:
    """Negative, 0 or positive; a number that is not given counts as 0."""
    size = max(len(left), len(right))
    one, other = ((*side, *([0] * (size - len(side)))) for side in (left, right))
    return (one > other) - (one < other)


def holds(conditions: str, version: t.Any) -> bool | None:
    """Whether conditions such as C(>=590,<595) hold; None where the version is not known."""
    found = numbers(version)
    if found is None:
        return None
    for condition in conditions.split(","):
        match = re.match(r"^\s*(>=|<=|==|<|>)\s*(\S+)\s*$", condition)
        wanted = numbers(match.group(2)) if match else None
        if match is None or wanted is None:
            raise ValueError(f"{condition!r} is not a condition on a version")
        if not _OPERATORS[match.group(1)]((compare(found, wanted),), (0,)):
            return False
    return True


def capability(device: Document) -> tuple[int, int] | None:
    match = re.match(r"^(\d+)\.(\d+)$", str(device.get("compute_capability")))
    return (int(match.group(1)), int(match.group(2))) if match else None


def _text(pair: tuple[int, int]) -> str:
    return f"{pair[0]}.{pair[1]}"


def runs_on(target: str, device: tuple[int, int], torch_cuda: t.Any = None) -> bool:
    """Whether code for a target such as C(sm_120), C(sm_100f), C(sm_121a) or C(compute_120) runs on a capability."""
    match = re.match(r"^(sm|compute)_(\d+)(\d)([af]?)$", target)
    if match is None:
        return False
    kind, major, minor, suffix = match.group(1), int(match.group(2)), int(match.group(3)), match.group(4)
    if suffix == "a":
        return (major, minor) == device
    if kind == "compute" and not suffix:
        return device >= (major, minor)  # the driver compiles it
    if device[0] != major or device[1] < minor:
        return False
    for entry in cuda()["binary_exceptions"]["entries"]:
        if (entry["target"], entry["capability"]) == (f"{major}.{minor}", _text(device)):
            until = entry.get("until_cuda")
            return bool(until and holds(f">={until}", torch_cuda))
    return True


def features_of(device: tuple[int, int]) -> set[str]:
    """What a capability can do, by the names in cuda.yml."""
    found = set()
    for name, rule in cuda()["features"]["entries"].items():
        first = numbers(rule.get("from"))
        if _text(device) in rule.get("only", []) or (first is not None and device >= first):
            found.add(name)
    return found


def driver_for(toolkit: t.Any) -> str | None:
    """The driver that comes with a toolkit, by its major and minor version."""
    found = numbers(toolkit)
    return cuda()["toolkit_driver"]["versions"].get(f"{found[0]}.{found[1]}") if found and len(found) > 1 else None


def cuda_of_branch(driver: t.Any) -> str | None:
    """The highest CUDA of a driver's branch, for where the libcuda itself was not asked."""
    found = numbers(driver)
    return cuda()["branch_cuda"]["branches"].get(str(found[0])) if found else None


def floor_of(toolkit: Numbers) -> str | None:
    return t.cast("str | None", cuda()["major_floor"]["versions"].get(str(toolkit[0])))


def explain_code(code: t.Any) -> tuple[str, str]:
    """What a CUDA error means here, and what helps."""
    entry = cuda()["errors"]["codes"].get(code) if isinstance(code, int) else None
    if entry is None:
        return "", "Run `nvidia-smi` on that node and look for NVRM in `dmesg`."
    return f", {entry['meaning']}", str(entry["remedy"])


class Subject:
    """The documents about one node, and what several rules ask of them."""

    def __init__(self, host: Document, container: Document | None, requirement: Document, system: Document) -> None:
        self.host = host
        self.container = container if container is not None else {}
        self.requirement = requirement
        self.system = system

    def get(self, key: str) -> t.Any:
        """From the container, where it was asked there, else from the host."""
        return self.container.get(key, self.host.get(key, MISSING))

    @property
    def driver(self) -> t.Any:
        """The kernel driver's version, which is the host's wherever one looks."""
        found = self.host.get("driver_version", MISSING)
        return self.container.get("driver_version", found) if found is None or found is MISSING else found

    @functools.cached_property
    def devices(self) -> list[Document] | None:
        """What the container sees, with what the host alone knows of it; both where they are not the same. None: not known."""
        own, seen = (
            [device or {} for device in document.get("devices") or []] for document in (self.host, self.container)
        )
        if own and seen:
            pairs = [(device, _twin(device, own)) for device in seen]
            if all(twin is not None for _device, twin in pairs):
                return [
                    {**(twin or {}), **{key: value for key, value in device.items() if value is not None}}
                    for device, twin in pairs
                ]
            return [*own, *(device for device, twin in pairs if twin is None)]
        if own or seen:
            return own or seen
        asked = [document["devices"] for document in (self.host, self.container) if "devices" in document]
        return None if not asked or None in asked else []

    @property
    def in_container_only(self) -> bool:
        """Whether this is about a node alone, on which only containers will compute: its own toolkit is nobody's need."""
        return not self.container and self.requirement.get("runs_in") == "container"

    @property
    def devices_asked(self) -> bool:
        return "devices" in self.host or "devices" in self.container

    @property
    def loaded(self) -> t.Any:
        """CUDA of the libcuda that is loaded; None where it is not known."""
        found = self.get("cuda_driver_version")
        return None if found is MISSING else found

    @property
    def machine(self) -> t.Any:
        return self.host.get("machine", self.container.get("machine", MISSING))

    def dimension(self, key: str) -> t.Any:
        """A dimension of the model: the profile's, else the one that was read from the model's configuration."""
        seen = self.container.get("transformers")
        return self.requirement.get(key, seen.get(key, MISSING) if isinstance(seen, Mapping) else MISSING)

    def groups(self) -> list[tuple[str | None, Document]]:
        """One device of each kind, with the indices of all of that kind where there are several kinds."""
        kinds: dict[tuple[str, str], list[Document]] = {}
        for device in self.devices or []:
            kinds.setdefault((str(device.get("name")), str(device.get("compute_capability"))), []).append(device)
        if len(kinds) == 1:
            return [(None, next(iter(kinds.values()))[0])]
        return [(",".join(str(item.get("index")) for item in group), group[0]) for group in kinds.values()]


def _twin(device: Document, others: Sequence[Document]) -> Document | None:
    """The same device in the other document. A part of a GPU has an identity of its own, and the name of the whole."""
    for key in ("uuid", "name"):
        for other in others:
            if device.get(key) is not None and device.get(key) == other.get(key):
                return other
    return None


def _name(device: Document) -> str:
    return str(device.get("name") or "the GPU")


# The rules, one function a question


def check_driver(found: Verdicts, about: Subject) -> bool:
    """Whether there is a driver, and with it something to say about anything else on the host."""
    present = about.host.get("driver_present", MISSING)
    if present is MISSING:
        return True
    if present is None:
        found.add(
            "driver.present",
            "unknown",
            "whether there is an NVIDIA driver could not be read",
            "Run the probe as root and look at /proc/driver/nvidia/version.",
        )
    elif not present:
        found.add(
            "driver.present",
            "fail",
            "no NVIDIA driver is loaded",
            "Load the driver (`modprobe nvidia`); else install it with the open kernel module and reboot.",
            evidence=about.host.get("errors"),
        )
    else:
        found.add("driver.present", "ok", f"driver {about.driver or 'of unknown version'} is loaded")
    return bool(present)


def check_open_module(found: Verdicts, about: Subject) -> None:
    opened = about.host.get("open_kernel_module", MISSING)
    if opened is MISSING:
        return
    rule = cuda()["open_module"]
    first = t.cast("tuple[int, int]", numbers(rule["from_capability"]))
    seen = [capability(device) for device in about.devices or []]
    needs = any(pair is not None and pair >= first for pair in seen)
    unknown = about.devices is None or None in seen
    remedy = "Install the driver's open kernel module (nvidia-open, nvidia-driver-NNN-open), and reboot."
    if opened:
        found.add("driver.open_module", "ok", "the driver's open kernel module is loaded")
    elif opened is False and about.devices == []:
        found.add(
            "driver.open_module",
            "fail",
            "the proprietary kernel module is loaded and no GPU answers, as it is with Blackwell, which needs the open one",
            remedy,
            source=rule["source"],
        )
    elif not needs and not unknown:
        if seen:
            found.add("driver.open_module", "ok", "these GPUs need no open kernel module")
    elif opened is None or not needs:
        found.add(
            "driver.open_module",
            "unknown",
            "whether this GPU has the open kernel module that it may need is not known",
            "See whether /proc/driver/nvidia/version says Open Kernel Module.",
            source=rule["source"],
        )
    else:
        found.add(
            "driver.open_module",
            "fail",
            "the proprietary kernel module is loaded, and Blackwell works with the open one alone",
            remedy,
            source=rule["source"],
        )


def check_device_floor(found: Verdicts, about: Subject) -> None:
    if about.driver is MISSING:
        return
    table = cuda()["device_floor"]
    for subject, device in about.groups():
        rule = next((entry for entry in table["devices"] if entry["name"] in str(device.get("name"))), None)
        if rule is None:
            continue
        major = (numbers(about.driver) or (0,))[0]
        # A later branch can have learnt of a device after its first release.
        first = rule.get("branches", {}).get(str(major), rule["driver"])
        fresh = holds(f">={first}", about.driver)
        remedy = f"Install driver {first} or newer."
        source = rule.get("source", table["source"])
        if fresh is None:
            summary = f"the driver's version is not known, and {_name(device)} needs {first} or newer"
            found.add("driver.device_floor", "unknown", summary, remedy, subject=subject, source=source)
        elif not fresh:
            summary = f"driver {about.driver} is older than {first}, the first one that knows {_name(device)}"
            found.add("driver.device_floor", "fail", summary, remedy, subject=subject, source=source)
        else:
            summary = f"driver {about.driver} knows {_name(device)}"
            found.add("driver.device_floor", "ok", summary, subject=subject, source=source)


def check_memory(found: Verdicts, about: Subject) -> None:
    if about.devices_asked and about.devices is None:
        summary = "which GPUs there are could not be read, so their memory is not known"
        found.add(
            "memory.reading", "unknown", summary, "Run `nvidia-smi` on that node, and see the errors of the probe."
        )
    for device in about.host.get("devices") or about.container.get("devices") or []:
        if not device or "memory_total_bytes" not in device:
            continue
        subject, total = str(device.get("index")), device["memory_total_bytes"]
        where = {"meminfo": "the machine's own memory, which this GPU shares", "nvml": "NVML", "cuda": "CUDA"}
        if not total:
            remedy = (
                "This GPU shares the machine's memory, of which NVML says nothing: take MemTotal of /proc/meminfo."
                if device.get("integrated")
                else "Run `nvidia-smi` on that node, and see the errors of the probe."
            )
            summary = f"the memory of {_name(device)} could not be read"
            found.add("memory.reading", "unknown", summary, remedy, subject=subject)
        else:
            origin = where.get(str(device.get("memory_source")), "an unnamed source")
            summary = f"{_name(device)} has {human_bytes(total)}, by {origin}"
            found.add("memory.reading", "ok", summary, subject=subject)


def _toolkit(about: Subject) -> t.Any:
    """The toolkit whose code is to run: the image's, torch's in an image that names none, else the host's own."""
    image, torch = about.container.get("image"), about.container.get("torch")
    for value in (
        image.get("cuda_version", MISSING) if isinstance(image, Mapping) else MISSING,
        about.container.get("toolkit_version", MISSING),
        torch.get("cuda", MISSING) if isinstance(torch, Mapping) else MISSING,
    ):
        if value is not MISSING and value is not False:
            return value
    return about.host.get("toolkit_version", MISSING) if not about.container else MISSING


def check_compatibility(found: Verdicts, about: Subject) -> None:
    toolkit, loaded = _toolkit(about), about.get("cuda_driver_version")
    own = cuda_of_branch(about.driver if about.driver is not MISSING else None)
    if loaded is MISSING and own is not None:
        loaded = own
    if toolkit in (MISSING, False) or loaded is MISSING:
        return
    what = "image" if about.container else "toolkit"
    wanted, have = numbers(toolkit), numbers(loaded)
    if wanted is None or have is None:
        found.add(
            "cuda.compatibility",
            "unknown",
            f"CUDA of the {what} is {toolkit or 'not known'}, CUDA of the libcuda that is loaded {loaded or 'not known'}"
            + (f"; that of driver {about.driver} itself is {own}" if own and not loaded else ""),
            "Look at what `nvidia-smi` prints as CUDA Version there.",
        )
        return
    source = cuda()["major_floor"]["source"]
    floor, full = floor_of(wanted), driver_for(toolkit)
    if compare(have, wanted[:2]) >= 0:
        summary = f"the libcuda that is loaded is of CUDA {loaded}, which runs this CUDA {toolkit} {what}"
        found.add("cuda.compatibility", "ok", summary, source=source)
    elif have[0] == wanted[0]:
        summary = (
            f"CUDA {loaded} of the driver runs this CUDA {toolkit} {what} by minor-version compatibility: what is "
            "compiled for the GPU runs, PTX of the newer version does not (error 222)"
        )
        remedy = f"Use the compatibility libraries of the image through its entrypoint, an image of CUDA {loaded}, or driver {full or 'of that CUDA'} or newer."
        found.add("cuda.compatibility", "warn", summary, remedy, source=source)
    elif about.in_container_only:
        summary = (
            f"CUDA {loaded} of the driver does not run programs of the CUDA {toolkit} that is installed on the node"
        )
        remedy = "Nothing to do for a model in a container; for programs on the node itself, use an older toolkit or a newer driver."
        found.add("cuda.compatibility", "warn", summary, remedy, source=source)
    else:
        below = f"driver {about.driver} (CUDA {loaded})" if about.driver not in (None, MISSING) else f"CUDA {loaded}"
        summary = f"{below} is below the floor of CUDA {wanted[0]}, so that it does not run this CUDA {toolkit} {what}"
        remedy = (
            f"Use an image of CUDA {have[0]}; where the GPU allows forward compatibility, use the compatibility libraries through the image's "
            f"entrypoint; else install driver {floor or 'of that CUDA'} or newer{f', {full} for all of CUDA {toolkit}' if full else ''}."
        )
        found.add("cuda.compatibility", "fail", summary, remedy, source=source)


def _brand_number(device: Document) -> int | None:
    brand = str(device.get("brand") or "").strip().lower()
    return next((number for number, name in NVML_BRANDS.items() if name.lower() == brand), None)


def check_forward_compat(found: Verdicts, about: Subject) -> None:
    document = about.container or about.host
    library = document.get("libcuda", MISSING)
    if library is None and isinstance(document.get("compat"), Mapping):
        library = {"forward_compat": None}
    if not isinstance(library, Mapping) or library.get("forward_compat", False) is False:
        return
    rule = cuda()["forward_compatibility"]
    source = rule["source"]
    identifier = "cuda.forward_compat"
    if library.get("forward_compat") is None:
        found.add(
            identifier,
            "unknown",
            "whether the libcuda that is loaded is the driver's own is not known",
            "Look at the file's version and at /proc/driver/nvidia/version.",
            source=source,
        )
        return
    compat = document.get("compat") if isinstance(document.get("compat"), Mapping) else {}
    note = library.get("note") or (compat or {}).get("note") or {}
    version, driver = library.get("version"), about.driver
    release = note.get("cuda") or note.get("CUDA version") or document.get("cuda_driver_version")
    kernel, mine = numbers(driver if driver is not MISSING else None), numbers(version)
    code = (document.get("kernel_launch") or {}).get("code")
    image = f"this CUDA {release or '(unknown version)'} image"
    full = driver_for(release)
    remedy = f"Use an image of the driver's own CUDA version, or install driver {full or 'of a newer branch'} or newer."
    evidence = {"libcuda": dict(library), "driver": None if driver is MISSING else driver}

    def say(status: str, summary: str, advice: str | None = remedy, subject: str | None = None) -> None:
        found.add(identifier, status, summary, advice, subject=subject, source=source, evidence=evidence)

    if code in (803, 804):
        meaning, advice = explain_code(code)
        say("fail", f"libcuda {version} does not run on driver {driver}: error {code}{meaning}", advice)
        return
    if kernel is None or mine is None:
        say("unknown", f"libcuda {version} stands in for the driver's own, and one of the two versions is not known")
        return
    if compare(mine, kernel) == 0:
        say(
            "ok", f"libcuda {version} is of the driver's own version, so that forward compatibility is not needed", None
        )
        return
    if compare(mine, kernel) < 0:
        advice = "Take the compatibility libraries out of LD_LIBRARY_PATH: the driver's own libcuda is as new."
        say("fail", f"the compatibility libcuda {version} is older than driver {driver} (error 803)", advice)
        return
    allowed = note.get("driver")
    short = numbers(release)
    if allowed is None and short is not None and len(short) > 1:
        allowed = rule["branches"].get(f"{short[0]}.{short[1]}")
    if allowed is not None and kernel[0] not in allowed:
        branches = ", ".join(map(str, allowed))
        say("fail", f"libcuda {version} is for drivers of the branches {branches}, and this is {driver} (error 803)")
        return
    if allowed is None and kernel[0] >= mine[0]:
        say(
            "fail",
            f"libcuda {version} is of the same branch as driver {driver}, where forward compatibility does not apply",
        )
        return
    brands = note.get("device") or rule["brands"]
    groups = about.groups()
    if not groups:
        say("unknown", f"driver {driver} runs {image} through forward compatibility, if the GPU allows it")
    for subject, device in groups:
        # The container's own reading lacks the brand where NVML is not in it.
        number = _brand_number(device)
        if number is None:
            say(
                "unknown",
                f"whether {_name(device)} allows forward compatibility is not known (brand {device.get('brand')})",
                subject=subject,
            )
        elif number not in brands:
            say(
                "fail",
                f"{_name(device)} is of the brand {device.get('brand')}, which has no forward compatibility (error 804)",
                subject=subject,
            )
        else:
            own = about.host.get("cuda_driver_version")
            summary = (
                f"driver {driver}{f' (CUDA {own})' if own else ''} runs {image} through forward compatibility, "
                f"which {_name(device)} supports"
            )
            say("ok", summary, None, subject)


def check_ptx(found: Verdicts, about: Subject) -> None:
    seen = about.get("ptx_jit")
    if seen is MISSING or seen is False:
        return
    if seen is None and about.host.get("driver_present") is False:
        return
    code = seen.get("code") if isinstance(seen, Mapping) else None
    version = seen.get("ptx_version") if isinstance(seen, Mapping) else None
    source = cuda()["errors"]["source"]
    if code is None:
        found.add(
            "cuda.ptx_jit",
            "unknown",
            "whether the driver takes PTX of the toolkit's version could not be tried",
            "See the errors of the probe; what stands in the way of a kernel stands in the way of this too.",
            source=source,
        )
    elif code == 0:
        found.add("cuda.ptx_jit", "ok", f"the libcuda that is loaded takes PTX {version}", source=source)
    else:
        meaning, remedy = explain_code(code)
        if code == 222:
            full = driver_for(_toolkit(about) if _toolkit(about) is not MISSING else None)
            newer = (
                f"use an image of the driver's own CUDA version, or install driver {full or 'of the toolkit'} or newer"
            )
            compat = about.container.get("compat")
            if about.container.get("entrypoint") == "bypassed":
                remedy = f"Start the container through the image's entrypoint, which puts the compatibility libraries first; else {newer}."
            elif isinstance(compat, Mapping):
                remedy = f"Put {compat.get('path')} first on LD_LIBRARY_PATH, as the image's entrypoint does where the GPU allows it; else {newer}."
            else:
                remedy = f"{newer[0].upper()}{newer[1:]}."
        if about.in_container_only:
            remedy = f"Nothing to do for a model in a container. For programs on the node itself: {remedy}"
        found.add(
            "cuda.ptx_jit",
            "warn" if about.in_container_only else "fail",
            f"PTX {version} was refused: error {code}{meaning}",
            remedy,
            source=source,
            evidence=seen,
        )


def check_launch(found: Verdicts, about: Subject) -> None:
    for subject, document in (("host", about.host), ("container", about.container)):
        seen = document.get("kernel_launch", MISSING)
        if seen is MISSING or (seen is None and document.get("driver_present") is False):
            continue
        if seen is None and document is about.host and (about.container.get("kernel_launch") or {}).get("ok"):
            continue  # what ran in the container need not be tried beside it
        if seen is None:
            found.add(
                "gpu.kernel_launch",
                "unknown",
                "no kernel could be tried",
                "See the errors of the probe: a call that hangs or crashes is named there.",
                subject=subject,
                evidence=document.get("errors"),
            )
        elif seen.get("ok"):
            found.add("gpu.kernel_launch", "ok", "a kernel ran, and its result was read back", subject=subject)
        elif seen.get("code") is None:
            found.add(
                "gpu.kernel_launch",
                "unknown" if seen.get("ok") is None else "fail",
                f"no kernel ran: {seen.get('error') or 'the reason is not known'}",
                "See the errors of the probe: a call that hangs or crashes is named there.",
                subject=subject,
                evidence=seen,
            )
        elif seen["code"] == 0:
            found.add(
                "gpu.kernel_launch",
                "fail",
                f"a kernel ran and its result is wrong: {seen.get('error')}",
                "Do not trust any number of this GPU. Reboot the node; if it stays, test the GPU (`nvidia-smi -q`, dcgmi diag).",
                subject=subject,
                evidence=seen,
            )
        else:
            meaning, remedy = explain_code(seen["code"])
            summary = f"no kernel runs: error {seen['code']} ({seen.get('error')}){meaning}"
            found.add(
                "gpu.kernel_launch",
                "fail",
                summary,
                remedy,
                subject=subject,
                source=cuda()["errors"]["source"],
                evidence=seen,
            )


def check_binary(found: Verdicts, about: Subject) -> None:
    torch = about.container.get("torch", MISSING)
    if torch is MISSING:
        return
    identifier, source = "gpu.binary", "https://docs.nvidia.com/cuda/cuda-c-programming-guide/ (binary compatibility)"
    if torch is None:
        found.add(
            identifier, "unknown", "torch could not be looked at", "See whether the image's torch can be imported."
        )
        return
    if torch is False:
        found.add(identifier, "fail", "the image has no torch", "Use an image that has a torch built for CUDA.")
        return
    version, archs, error = torch.get("version"), torch.get("arch_list"), str(torch.get("error") or "")
    wheels = cuda()["torch_wheels"]
    if torch.get("cuda") is False:
        first = wheels["first_with_cuda"].get(str(about.machine))
        on = f"; for {about.machine} PyPI has one from {first} on" if first else ""
        remedy = f"Use an image whose torch is built for CUDA{on}."
        summary = f"torch {version} is built for CPUs alone"
        found.add(identifier, "fail", summary, remedy, source=wheels["source"], evidence=dict(torch))
        return
    if archs == []:
        summary = f"torch {version} has code for no GPU at all"
        found.add(identifier, "fail", summary, "Use an image whose torch is built for this GPU.", evidence=dict(torch))
        return
    if not archs or None in archs:
        found.add(
            identifier,
            "unknown",
            f"torch {version} does not say for which GPUs it has code",
            "Run a kernel: gpu.kernel_launch.",
        )
        return
    if about.devices is None:
        found.add(
            identifier,
            "unknown",
            f"torch {version} has code for {', '.join(archs)}, and the GPU is not known",
            "Run recon.yml.",
        )
    for subject, device in about.groups():
        pair = capability(device)
        if pair is None:
            found.add(
                identifier,
                "unknown",
                f"the capability of {_name(device)} is not known",
                "Run recon.yml.",
                subject=subject,
            )
            continue
        fitting = [str(arch) for arch in archs if runs_on(str(arch), pair, torch.get("cuda"))]
        # What was compiled for the GPU runs as it is; PTX must be taken by the libcuda that is loaded.
        compiled = [arch for arch in fitting if arch.startswith("sm_")]
        newer = holds(f">{about.loaded}", torch.get("cuda")) if numbers(about.loaded) else None
        if fitting and "no kernel image" in error.lower():
            summary = f"torch {version} names {', '.join(fitting)} and has no kernel for {_name(device)} all the same"
            remedy = f"Use an image in which all libraries are built for sm_{pair[0]}{pair[1]}, not torch alone."
            found.add(identifier, "fail", summary, remedy, subject=subject, source=source, evidence=dict(torch))
        elif fitting and not compiled and newer:
            summary = (
                f"torch {version} has only PTX of CUDA {torch.get('cuda')} for {_name(device)}, "
                f"and the libcuda that is loaded takes none newer than CUDA {about.loaded}"
            )
            remedy = f"Use an image whose torch has code for sm_{pair[0]}{pair[1]}, or install a newer driver."
            found.add(identifier, "fail", summary, remedy, subject=subject, source=source, evidence=dict(torch))
        elif fitting and not compiled and newer is None:
            summary = f"torch {version} has only PTX for {_name(device)}, and whether the libcuda takes it is not known"
            remedy = f"Use an image whose torch has code for sm_{pair[0]}{pair[1]}, or run a kernel in it."
            found.add(identifier, "unknown", summary, remedy, subject=subject, source=source, evidence=dict(torch))
        elif fitting:
            summary = f"torch {version} has code for {_name(device)} ({_text(pair)}): {', '.join(fitting)}"
            found.add(identifier, "ok", summary, subject=subject, source=source)
        else:
            summary = f"torch {version} has code for {', '.join(archs)}, of which none runs on {_name(device)} ({_text(pair)})"
            remedy = f"Use an image whose torch is built for CUDA code of sm_{pair[0]}0 or sm_{pair[0]}{pair[1]}."
            found.add(identifier, "fail", summary, remedy, subject=subject, source=source, evidence=dict(torch))


def _bundled(version: t.Any, key: str) -> t.Any:
    """The assembler in Triton's own wheel, by the wheel of the same or the last older version."""
    for wheel in cuda()["assembler"]["wheels"]:
        if holds(f">={wheel['triton']}", version):
            return wheel[key]
    return MISSING


def check_triton(found: Verdicts, about: Subject) -> None:
    triton = about.container.get("triton", MISSING)
    if triton is MISSING or triton is False:
        return
    rule = cuda()["assembler"]
    if triton is None:
        found.add(
            "gpu.triton", "unknown", "Triton could not be looked at", "See whether the image's triton can be imported."
        )
        return
    version = triton.get("version")
    # Where its assemblers were not asked for, those of the wheel are there.
    first, second = (triton.get(key, _bundled(version, key)) for key in ("ptxas", "ptxas_blackwell"))
    if first is MISSING and second is MISSING:
        return
    if about.devices_asked and about.devices is None:
        found.add("gpu.triton", "unknown", "for which GPU Triton must compile is not known", "Run recon.yml.")
    for subject, device in about.groups():
        pair = capability(device)
        if pair is None:
            summary = f"the capability of {_name(device)} is not known"
            found.add("gpu.triton", "unknown", summary, "Run recon.yml.", subject=subject)
            continue
        needed = rule["first_toolkit"].get(_text(pair))
        if needed is None:
            continue
        threshold = next(
            (
                numbers(entry["from_capability"])
                for entry in rule["second"]["versions"]
                if holds(f">={entry['triton']}", version)
            ),
            None,
        )
        uses_second = bool(threshold and pair >= threshold[:2]) if numbers(version) else bool(second)
        used, variable = (second, "TRITON_PTXAS_BLACKWELL_PATH") if uses_second else (first, "TRITON_PTXAS_PATH")
        remedy = f"Set {variable} to a ptxas of CUDA {needed} or newer, such as the image's /usr/local/cuda/bin/ptxas, or use an image with a newer Triton."
        good = holds(f">={needed}", None if used is MISSING else used)
        if used is MISSING:
            continue
        if used is None or (good is None and used is not False):
            found.add(
                "gpu.triton",
                "unknown",
                f"the assembler of Triton {version} is not known",
                remedy,
                subject=subject,
                source=rule["source"],
            )
        elif not good:
            have = f"of CUDA {used}" if used else "missing"
            summary = f"Triton {version} calls an assembler that is {have}, and {_name(device)} ({_text(pair)}) needs one of {needed} or newer"
            found.add(
                "gpu.triton", "fail", summary, remedy, subject=subject, source=rule["source"], evidence=dict(triton)
            )
        elif (numbers(used) or (0,))[0] > (numbers(about.loaded) or numbers(used) or (0,))[0]:
            summary = (
                f"Triton {version} compiles with ptxas {used}, whose code a driver of CUDA {about.loaded} need not take"
            )
            remedy = (
                f"Set {variable} to a ptxas of CUDA {about.loaded} that knows {_text(pair)}, or install a newer driver."
            )
            found.add(
                "gpu.triton",
                "warn",
                summary,
                remedy,
                subject=subject,
                source=cuda()["major_floor"]["source"],
                evidence=dict(triton),
            )
        else:
            found.add(
                "gpu.triton",
                "ok",
                f"Triton {version} compiles for {_name(device)} with ptxas {used}",
                subject=subject,
                source=rule["source"],
            )


def check_architecture(found: Verdicts, about: Subject) -> None:
    image, machine = about.container.get("image", MISSING), about.machine
    if image is None:
        image = {"architecture": None}
    if not isinstance(image, Mapping) or "architecture" not in image or machine is MISSING:
        return
    wanted, have = _ARCHITECTURES.get(str(machine), machine), image["architecture"]
    if wanted is None or have is None:
        summary = f"the machine is {machine or 'not known'}, the image {have or 'not known'}"
        found.add("image.architecture", "unknown", summary, "Look at `uname -m` and `docker image inspect`.")
    elif _ARCHITECTURES.get(str(have), have) != wanted:
        summary = f"the image is for {have}, and the machine is {machine}"
        found.add("image.architecture", "fail", summary, f"Use the image for linux/{wanted}.")
    else:
        found.add("image.architecture", "ok", f"the image is for {have}, as the machine is")


def _values(about: Subject, device: Document) -> dict[str, t.Any]:
    """What the conditions of known_bad.yml are asked of; a value that was not asked is not there."""
    nccl, toolkit = about.container.get("nccl", MISSING), about.system.get("container_toolkit", MISSING)
    engine = about.container.get("engine", MISSING)
    name, version = (engine.get("name"), engine.get("version")) if isinstance(engine, Mapping) else (None, None)
    found = {
        "machine": about.machine,
        "capability": device.get("compute_capability", MISSING),
        "vllm": version if name == "vllm" else MISSING,
        "sglang": version if name == "sglang" else MISSING,
        "quantization": about.requirement.get("quantization", MISSING),
        "driver": about.driver,
        "device": device.get("name", MISSING),
        "kernel": about.system.get("kernel", MISSING),
        "kernel_cmdline": about.system.get("kernel_cmdline", about.system.get("cmdline", MISSING)),
        "nccl": nccl.get("version") if isinstance(nccl, Mapping) else nccl,
        "container_toolkit": toolkit.get("version") if isinstance(toolkit, Mapping) else toolkit,
        "nodes": about.requirement.get("nodes", MISSING),
        "num_experts": about.dimension("num_experts"),
    }
    return {key: value for key, value in found.items() if value is not MISSING}


def fires(when: Document, values: Document) -> bool | None:
    """Whether all conditions hold; None where one was asked and is not known, and no other one says no."""
    unknown = False
    for key, condition in when.items():
        name = "kernel_cmdline" if key == "kernel_lacks" else key
        if name not in values:
            return False
        value = values[name]
        if value is None:
            unknown = True
        elif key in ("device", "machine", "quantization"):
            if str(condition) not in str(value):
                return False
        elif key == "kernel_lacks":
            if condition in str(value).split():
                return False
        elif not (result := holds(condition, value)):
            if result is False:
                return False
            unknown = True
    return None if unknown else True


def check_known_bad(found: Verdicts, about: Subject) -> None:
    said: set[tuple[str, str | None]] = set()
    for subject, device in about.groups() or [(None, {})]:
        values = _values(about, device)
        for entry in known_bad():
            result = fires(entry["when"], values)
            if result is False or (entry["id"], subject) in said:
                continue
            said.add((entry["id"], subject))
            if result:
                evidence = {key: values[key] for key in values if key in entry["when"] or key == "kernel_cmdline"}
                found.add(
                    entry["id"],
                    entry["status"],
                    entry["summary"],
                    entry["remedy"],
                    subject=subject,
                    source=entry["source"],
                    evidence=evidence,
                )
            else:
                summary = f"whether this holds is not known: {entry['summary']}"
                found.add(entry["id"], "unknown", summary, entry["remedy"], subject=subject, source=entry["source"])
    fired = {identifier for identifier, _subject in said}
    if about.driver not in (None, MISSING) and "driver.known_bad" not in fired and about.groups():
        found.add("driver.known_bad", "ok", f"driver {about.driver} is not known to be bad for these GPUs")
    seen = about.container.get("nccl", MISSING)
    if seen is False and (_count(about.requirement, "nodes") or 1) > 1:
        summary = "torch brings no NCCL, so that GPUs of several nodes cannot work together"
        found.add("nccl.version", "fail", summary, "Use an image whose torch is built for CUDA, with NCCL.")
    elif seen is not MISSING and seen is not False and "nccl.version" not in fired:
        if seen is None or seen.get("version") is None:
            found.add(
                "nccl.version",
                "unknown",
                "the NCCL that is loaded could not be read",
                "See whether the image's torch loads libnccl.so.2.",
            )
        else:
            found.add("nccl.version", "ok", f"NCCL {seen['version']} is not known to be bad here")


def check_quantization(found: Verdicts, about: Subject) -> None:
    wanted = about.requirement.get("quantization", MISSING)
    if wanted is MISSING:
        return
    table = cuda()["quantization"]
    kind = (
        "bf16"
        if wanted is False
        else next((k for k, names in table["aliases"].items() if str(wanted).lower() in names), None)
    )
    if wanted is None or kind is None:
        found.add(
            "model.quantization",
            "unknown",
            f"nothing is known about the quantization {wanted or 'of this model'}",
            "See the engine's documentation for what runs it.",
        )
        return
    rule = table["types"][kind]
    if about.devices_asked and about.devices is None:
        summary = f"which GPU shall compute {wanted or 'BF16'} is not known"
        found.add("model.quantization", "unknown", summary, "Run recon.yml.")
    for subject, device in about.groups():
        pair = capability(device)
        if pair is None:
            found.add(
                "model.quantization",
                "unknown",
                f"the capability of {_name(device)} is not known",
                "Run recon.yml.",
                subject=subject,
            )
        elif pair >= t.cast("Numbers", numbers(rule["native"])):
            found.add(
                "model.quantization",
                "ok",
                f"{_name(device)} ({_text(pair)}) computes {wanted or 'BF16'} natively",
                subject=subject,
                source=table["source"],
            )
        elif rule["fallback"] and pair >= t.cast("Numbers", numbers(rule["fallback"])):
            summary = f"{_name(device)} ({_text(pair)}) does not compute {wanted} itself: the engine unpacks the weights first, which is slower"
            remedy = f"Choose a quantization that is native to it, or a GPU of capability {rule['native']} or higher."
            found.add("model.quantization", "warn", summary, remedy, subject=subject, source=table["source"])
        else:
            summary = f"{_name(device)} ({_text(pair)}) cannot run {wanted or 'BF16'}"
            remedy = (
                f"Choose another quantization, or a GPU of capability {rule['fallback'] or rule['native']} or higher."
            )
            found.add("model.quantization", "fail", summary, remedy, subject=subject, source=table["source"])


def check_kv_dtype(found: Verdicts, about: Subject) -> None:
    wanted = about.requirement.get("dtype_kv", MISSING)
    if wanted is MISSING:
        return
    rule = cuda()["kv_cache"]
    scales = about.requirement.get("kv_scales", MISSING)
    source = rule["source"]
    if wanted is None:
        found.add(
            "model.kv_dtype", "unknown", "the type of the KV cache is not known", "Set it to auto.", source=source
        )
    elif not str(wanted).lower().startswith("fp8"):
        found.add("model.kv_dtype", "ok", f"the KV cache is {wanted}", source=source)
    elif scales is False:
        summary = f"the KV cache is {wanted} and the checkpoint has no scales for it: a scale of 1 loses accuracy"
        found.add(
            "model.kv_dtype",
            "warn",
            summary,
            "Set the type of the KV cache to auto (BF16), or use a checkpoint with scales.",
            source=source,
        )
    elif slow := [
        device
        for _subject, device in about.groups()
        if (pair := capability(device)) and not holds(f">={rule['native_fp8']}", _text(pair))
    ]:
        pair = t.cast("tuple[int, int]", capability(slow[0]))
        summary = f"{_name(slow[0])} ({_text(pair)}) does not convert {wanted} itself"
        found.add("model.kv_dtype", "warn", summary, "Set the type of the KV cache to auto.", source=source)
    elif not scales or scales is MISSING:
        summary = f"whether the checkpoint has scales for a KV cache of {wanted} is not known"
        remedy = "Set the type of the KV cache to auto, or say kv_scales in the profile."
        found.add("model.kv_dtype", "unknown", summary, remedy, source=source)
    else:
        found.add("model.kv_dtype", "ok", f"the KV cache is {wanted}, with the checkpoint's scales", source=source)


def _count(requirement: Document, key: str) -> int | None:
    value = requirement.get(key)
    return value if isinstance(value, int) and not isinstance(value, bool) and value > 0 else None


# Each dimension that tensor parallel cuts, by its parts: heads are cut whole, and with them their product with the size of one.
_HEADS = ("num_attention_heads", "linear_num_key_heads", "linear_num_value_heads")
_HEAD_SIZES = ("head_dim", "linear_key_head_dim", "linear_value_head_dim")
_SIZES = ("intermediate_size", "moe_intermediate_size", "shared_expert_intermediate_size")
DIMENSIONS = (*_HEADS, "num_key_value_heads", *_SIZES)


def divisibility(requirement: Document, ways: int) -> list[str]:
    """What a number of ways does not divide, in words."""
    wrong = []
    block = requirement.get("fp8_block")
    size = max(block) if isinstance(block, Sequence) and block and all(isinstance(n, int) for n in block) else 1
    for key, part in zip(_HEADS, _HEAD_SIZES, strict=True):
        count, each = _count(requirement, key), _count(requirement, part)
        if not count:
            continue
        if count % ways:
            wrong.append(f"{key} is {count}")
        elif each and (count * each // ways) % size:
            wrong.append(f"{key} is {count}, and {count // ways} of {each} are no multiple of the FP8 block of {size}")
    shared = _count(requirement, "num_key_value_heads")
    if shared and shared % ways and ways % shared:
        wrong.append(f"num_key_value_heads is {shared}")
    if requirement.get("expert_parallel") and (count := _count(requirement, "num_experts")) and count % ways:
        wrong.append(f"num_experts is {count}")
    for key in _SIZES:
        if not (count := _count(requirement, key)):
            continue
        if count % ways:
            wrong.append(f"{key} is {count}")
        elif (count // ways) % size:
            wrong.append(f"{key} is {count}, and a part of {count // ways} is no multiple of the FP8 block of {size}")
    return wrong


def check_tensor_parallel(found: Verdicts, about: Subject) -> None:
    ways = about.requirement.get("tensor_parallel", MISSING)
    asked = {key: value for key in (*DIMENSIONS, "num_experts") if (value := about.dimension(key)) is not MISSING}
    model = {**about.requirement, **asked}
    if ways is MISSING or not any(key in asked for key in DIMENSIONS):
        return
    identifier, source = "model.tensor_parallel", cuda()["tensor_parallel"]["source"]
    if not _count(model, "tensor_parallel"):
        found.add(identifier, "unknown", f"the number of ways is {ways}", "Give a whole number from 1 on.")
        return
    wrong = divisibility(model, ways)
    unknown = [key for key in DIMENSIONS if key in asked and asked[key] is None]
    if wrong:
        good = [str(number) for number in range(ways - 1, 1, -1) if not divisibility(model, number)]
        good += [str(number) for number in (ways * 2, ways * 4) if not good and not divisibility(model, number)]
        one = " Another quantization has no such blocks." if all("FP8 block" in text for text in wrong) else ""
        remedy = (
            f"Use tensor parallel {' or '.join(good)}, and pipeline parallel over further nodes.{one}"
            if good
            else f"Use pipeline parallel.{one}"
        )
        summary = f"tensor parallel {ways} does not divide the model: {'; '.join(wrong)}"
        found.add(identifier, "fail", summary, remedy, source=source)
    elif unknown and ways > 1:
        summary = (
            f"whether tensor parallel {ways} divides the model is not known: {', '.join(unknown)} could not be read"
        )
        found.add(identifier, "unknown", summary, "Give the dimensions in the profile.", source=source)
    else:
        found.add(identifier, "ok", f"tensor parallel {ways} divides the model", source=source)


def check_backends(found: Verdicts, about: Subject) -> None:
    """Kernels that are written for some capabilities only, where the engine is told to use them."""
    table = cuda()["backends"]
    for backend in about.requirement.get("backends") or []:
        needs = table["needs"].get(str(backend))
        for subject, device in about.groups():
            pair = capability(device)
            if needs is None or pair is None:
                continue
            if needs in features_of(pair):
                found.add(
                    "engine.backend", "ok", f"{backend} is made for {_name(device)} ({_text(pair)})", subject=subject
                )
                continue
            summary = f"{backend} needs {needs}, which {_name(device)} ({_text(pair)}) does not have"
            remedy = "Let the engine choose (auto), or take triton."
            found.add("engine.backend", "fail", summary, remedy, subject=subject, source=table["source"])


def check_simulated(found: Verdicts, about: Subject) -> None:
    scenario = about.host.get("simulated") or about.container.get("simulated")
    if scenario:
        summary = f"the GPU is simulated (scenario {scenario}); nothing here is a measurement"
        found.add("gpu.simulated", "warn", summary, "Take the simulated libraries away on a machine that shall serve.")


def _mapping(value: t.Any, name: str) -> Document:
    if value is None or value == {}:
        return {}
    if not isinstance(value, Mapping):
        raise ValueError(f"{name} must be a document, and is {type(value).__name__}")
    return value


_DOCUMENTS = (
    "libcuda",
    "kernel_launch",
    "ptx_jit",
    "image",
    "compat",
    "torch",
    "transformers",
    "engine",
    "nccl",
    "triton",
)
_LISTS = ("devices", "errors")


def _refuse_wrong_types(about: Subject) -> None:
    """Says which key is not what the probe would give; a rule would only stumble over it."""
    for name, document in (("the GPU's document", about.host), ("container", about.container)):
        for key in _DOCUMENTS:
            value = document.get(key)
            if value is not None and value is not False and not isinstance(value, Mapping):
                raise ValueError(f"{key} in {name} must be a document, and is {value!r}")
        for key in _LISTS:
            value = document.get(key) or []
            if not isinstance(value, list) or not all(item is None or isinstance(item, Mapping) for item in value):
                raise ValueError(f"{key} in {name} must be a list of documents, and is {value!r}")
        archs = (document.get("torch") or {}).get("arch_list") or []
        if not isinstance(archs, list):
            raise ValueError(f"torch.arch_list in {name} must be a list, and is {archs!r}")
    if not isinstance(about.requirement.get("backends") or [], list):
        raise ValueError(f"backends in requirement must be a list, and is {about.requirement['backends']!r}")


def gpu_verdicts(
    host: t.Any,
    container: t.Any = None,
    requirement: t.Any = None,
    name: str | None = None,
    system: t.Any = None,
) -> list[Verdict]:
    """All verdicts about a node's GPUs and the image that is to run on them."""
    if host is None:
        raise ValueError("the GPU's document must be a document, and is null")
    about = Subject(
        _mapping(host, "the GPU's document"),
        _mapping(container, "container"),
        _mapping(requirement, "requirement"),
        _mapping(system, "system"),
    )
    found = Verdicts(name)
    if about.requirement.get("accelerator") == "cpu":
        return []
    _refuse_wrong_types(about)
    check_simulated(found, about)
    if check_driver(found, about):
        check_open_module(found, about)
        check_device_floor(found, about)
        check_memory(found, about)
        check_compatibility(found, about)
        check_forward_compat(found, about)
        check_ptx(found, about)
        check_launch(found, about)
    check_architecture(found, about)
    check_binary(found, about)
    check_triton(found, about)
    check_known_bad(found, about)
    if about.requirement:
        check_transformers(found, about.container, about.requirement)
        check_engine(found, about.container, about.requirement)
    check_backends(found, about)
    check_quantization(found, about)
    check_kv_dtype(found, about)
    check_tensor_parallel(found, about)
    return found.all


def _reach(document: t.Any, path: Sequence[str]) -> t.Any:
    """The value at a path; of a list, that of each item."""
    for position, key in enumerate(path):
        if isinstance(document, list):
            return [_reach(item, path[position:]) for item in document]
        if not isinstance(document, Mapping):
            return None if document is None else MISSING
        if key not in document:
            return MISSING
        document = document[key]
    return document


def cluster_verdicts(documents: t.Any) -> list[Verdict]:
    """What differs between nodes. A document is a node's GPU document, or that of recon with C(gpu) and C(system)."""
    found = Verdicts(None)
    by_host = {host: _mapping(document, str(host)) for host, document in _mapping(documents, "the documents").items()}
    if len(by_host) < 2:
        return []
    flat = {host: _flat(document) for host, document in by_host.items()}
    for rule in cuda()["cluster"]:
        values = {host: _reach(document, rule["path"]) for host, document in flat.items()}
        values = {host: value for host, value in values.items() if value is not MISSING}
        if len(values) < 2 or all(value in (False, []) for value in values.values()):
            continue
        shown = {host: _shown(value) for host, value in values.items()}
        listed = ", ".join(f"{host}: {text}" for host, text in shown.items())
        if any(value is None for value in values.values()):
            found.add(
                rule["id"],
                "unknown",
                f"{rule['what']} is not known everywhere ({listed})",
                "Run recon.yml again.",
                evidence=values,
            )
        elif len(set(shown.values())) > 1:
            found.add(
                rule["id"],
                rule["differs"],
                f"{rule['what']} differs between the nodes ({listed})",
                rule["remedy"],
                evidence=values,
            )
        else:
            text = next(iter(shown.values()))
            found.add(rule["id"], "ok", f"{rule['what']} is the same on all nodes ({text})", evidence=values)
    return found.all


def _flat(document: Document) -> Document:
    """A node's GPU document with what else is known of the node beside it; without a driver its versions are none."""
    flat = {**_mapping(document.get("gpu"), "gpu"), **document}
    if flat.get("driver_present") is False:
        flat.update({key: False for key in ("driver_version", "cuda_driver_version") if flat.get(key) is None})
    return flat


def _shown(value: t.Any) -> str:
    if isinstance(value, Iterable) and not isinstance(value, str):
        return ", ".join(str(item) for item in value) or "none"
    return "none" if value is False else "not known" if value is None else str(value)
