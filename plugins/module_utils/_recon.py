# Copyright (c) 2026, The sparkgate.blackwell authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

# Note that this module util is **PRIVATE** to the collection. It can have breaking changes at any time.
# Do not use this from other collections or standalone plugins/modules!

from __future__ import annotations

import ipaddress
import json
import os
import re
import typing as t

# A process outside of any container is named as a holder of memory from this size on; below it, a desktop session would
# be listed.
HOLDER_MINIMUM_BYTES = 1 << 30

# Counting what a directory holds stops here; a larger tree is not a model and its size is given as unknown.
CONTENT_MAXIMUM_ENTRIES = 20000

DEPLOYMENT_LABEL = "sparkgate.deployment"

_CONTAINER_ID = re.compile(r"(?<![0-9a-f])[0-9a-f]{64}(?![0-9a-f])")
_VERSION = re.compile(r"(?<![A-Za-z0-9.])v?(\d+(?:\.\d+)*(?:[A-Za-z][\w.]*)?)")


def error(source: str, name: str, code: int | None = None) -> dict[str, t.Any]:
    """An entry of the C(errors) lists: a reading that failed, in the form that the gpu document uses."""
    return {"source": source, "code": code, "name": name}


class Source:
    """What a probe may look at: files below a root, and commands with a time limit.

    What fails is collected, never raised.
    """

    def __init__(
        self,
        run: t.Callable[[list[str]], tuple[int, str, str]],
        which: t.Callable[[str], str | None],
        root: str = "/",
    ) -> None:
        self._run = run
        self._which = which
        self._root = root
        self.errors: list[dict[str, t.Any]] = []

    def path(self, path: str) -> str:
        return os.path.join(self._root, path.lstrip("/"))

    def fail(self, source: str, name: str, code: int | None = None) -> None:
        self.errors.append(error(source, name, code))

    def read(self, path: str, quiet: bool = False) -> str | None:
        """The text of a file, or None. A file that is not there is an answer and no error."""
        try:
            with open(self.path(path), "rb") as stream:
                return stream.read().decode("utf-8", "replace")
        except FileNotFoundError:
            return None
        except OSError as exc:
            if not quiet:
                self.fail(path, exc.strerror or str(exc), exc.errno)
            return None

    def line(self, path: str) -> str | None:
        """One value of sysfs. Many attributes cannot be read while a device is down, so that is not an error."""
        text = self.read(path, quiet=True)
        return text.strip() or None if text is not None else None

    def listdir(self, path: str) -> list[str]:
        try:
            return sorted(os.listdir(self.path(path)))
        except OSError:
            return []

    def exists(self, path: str) -> bool:
        return os.path.exists(self.path(path))

    def readlink(self, path: str) -> str | None:
        try:
            return os.readlink(self.path(path))
        except OSError:
            return None

    def which(self, name: str) -> str | None:
        return self._which(name)

    def command(self, argv: list[str], limit: int = 5, merge: bool = False) -> str | None:
        """The output of a command, or None when it failed or took too long."""
        # run_command has no time limit of its own.
        rc, out, err = self._run(["timeout", "-k", "1", str(limit), *argv])
        if rc != 0:
            first = (err.strip() or out.strip() or "no output").splitlines()[0]
            text = f"no answer within {limit} s" if rc in (124, 137) else first
            self.fail(" ".join(argv[:2]), text, rc)
            return None
        return out + err if merge else out


# Parsers: text in, value out. Text that is not understood gives None or is left out.


def parse_key_values(text: str | None, separator: str = "=") -> dict[str, str]:
    """Lines of C(KEY=value) as in os-release, quotes removed."""
    result = {}
    for line in (text or "").splitlines():
        key, found, value = line.partition(separator)
        if found and key.strip() and not key.lstrip().startswith("#"):
            result[key.strip()] = value.strip().strip("\"'")
    return result


def parse_meminfo(text: str | None) -> dict[str, int]:
    """Bytes by name from /proc/meminfo."""
    result = {}
    for line in (text or "").splitlines():
        match = re.match(r"^(\w+(?:\(\w+\))?):\s+(\d+)\s*(kB)?\s*$", line)
        if match:
            result[match.group(1)] = int(match.group(2)) * (1024 if match.group(3) else 1)
    return result


def parse_version(text: str | None) -> str | None:
    """The first thing that looks like a version in the output of C(tool --version)."""
    for line in (text or "").splitlines():
        for match in _VERSION.finditer(line):
            # systemd counts in whole numbers, everything else has a dot.
            if "." in match.group(1) or line.startswith("systemd "):
                return match.group(1)
    return None


def _parse_proc_address(text: str) -> str:
    raw = bytes.fromhex(text)
    if len(raw) not in (4, 16):
        raise ValueError(text)
    # The kernel prints 32-bit words in the byte order of the machine; all machines that are served are little endian.
    words = b"".join(raw[start : start + 4][::-1] for start in range(0, len(raw), 4))
    address = ipaddress.ip_address(words)
    mapped = getattr(address, "ipv4_mapped", None)
    return str(mapped or address)


def parse_proc_net_tcp(text: str | None) -> list[dict[str, t.Any]]:
    """The listening sockets in /proc/net/tcp or tcp6."""
    result = []
    for line in (text or "").splitlines()[1:]:
        fields = line.split()
        if len(fields) < 10 or fields[3] != "0A":
            continue
        address, found, port = fields[1].partition(":")
        try:
            result.append({"address": _parse_proc_address(address), "port": int(port, 16), "inode": int(fields[9])})
        except ValueError:
            continue
    return result


def parse_cgroup(text: str | None) -> dict[str, t.Any]:
    """Candidates for a container's ID and the systemd unit from /proc/PID/cgroup (v1 and v2, nested engines too)."""
    containers: list[str] = []
    unit = None
    for line in (text or "").splitlines():
        path = line.split(":", 2)[-1]
        # The innermost comes last in a path, so the last one is tried first.
        for identifier in reversed(_CONTAINER_ID.findall(path)):
            if identifier not in containers:
                containers.append(identifier)
        units = re.findall(r"/([^/]+\.service)(?=/|$)", path)
        if units and unit is None:
            unit = units[-1]
    return {"containers": containers, "unit": unit}


def parse_status(text: str | None) -> dict[str, int]:
    """Memory of a process that cannot be reclaimed, from /proc/PID/status, in bytes."""
    values = parse_key_values(text, ":")
    result = {}
    for name in ("RssAnon", "RssShmem"):
        match = re.match(r"^(\d+) kB$", values.get(name, ""))
        result[name] = int(match.group(1)) * 1024 if match else 0
    return result


def parse_json(text: str | None, kind: type) -> t.Any:
    """JSON of the given type, or None."""
    try:
        value = json.loads(text or "")
    except (ValueError, RecursionError):
        return None
    return value if isinstance(value, kind) else None


def parse_docker_info(text: str | None) -> dict[str, t.Any] | None:
    """What matters in C(docker info --format '{{json .}}'); None when the daemon did not answer."""
    info = parse_json(text, dict)
    if not info or not info.get("ServerVersion"):
        return None
    runtimes = info.get("Runtimes")
    return {
        "version": str(info["ServerVersion"]),
        "storage_driver": info.get("Driver") or None,
        "data_root": info.get("DockerRootDir") or None,
        "nvidia_runtime": "nvidia" in runtimes if isinstance(runtimes, dict) else None,
    }


def parse_docker_inspect(text: str | None) -> list[dict[str, t.Any]] | None:
    """Running containers from C(docker inspect). Environment and command line may hold secrets: they are left out."""
    containers = parse_json(text, list)
    if containers is None:
        return None
    result = []
    for item in containers:
        if not isinstance(item, dict) or not item.get("Id"):
            continue
        config: t.Any = item.get("Config")
        config = config if isinstance(config, dict) else {}
        labels = config.get("Labels")
        labels = labels if isinstance(labels, dict) else {}
        result.append(
            {
                "id": str(item["Id"]),
                "name": str(item.get("Name") or item["Id"][:12]).lstrip("/"),
                "image": config.get("Image") or item.get("Image"),
                "deployment": labels.get(DEPLOYMENT_LABEL),
            }
        )
    return result


# Collectors: a Source in, a part of the document out.


def read_disk(path: str, content: bool = True) -> dict[str, t.Any]:
    """Space for a path that need not exist yet: the nearest directory above it counts."""
    existing = os.path.abspath(path)
    while not os.path.exists(existing) and existing != "/":
        existing = os.path.dirname(existing)
    result: dict[str, t.Any] = {
        "path": path,
        "filesystem": None,
        "total_bytes": None,
        "free_bytes": None,
        "content_bytes": None,
    }
    try:
        space = os.statvfs(existing)
        result["filesystem"] = os.stat(existing).st_dev
    except OSError:
        return result
    result["total_bytes"] = space.f_blocks * space.f_frsize
    result["free_bytes"] = space.f_bavail * space.f_frsize
    if content:
        result["content_bytes"] = count_content(path)
    return result


def count_content(path: str, maximum: int = CONTENT_MAXIMUM_ENTRIES) -> int | None:
    """Bytes that are there already, so that a second run does not ask for their space again; None for a large tree."""
    total = seen = 0
    device = None
    for directory, _directories, files in os.walk(path):
        for name in files:
            seen += 1
            if seen > maximum:
                return None
            try:
                found = os.lstat(os.path.join(directory, name))
            except OSError:
                continue
            device = found.st_dev if device is None else device
            # Sparse files count as what they occupy.
            total += min(found.st_size, found.st_blocks * 512) if found.st_dev == device else 0
        seen += 1
        if seen > maximum:
            return None
    return total


def read_engine(source: Source) -> tuple[dict[str, t.Any] | bool, list[dict[str, t.Any]] | None]:
    """The container engine (false where there is none), and its running containers (None where they are not known)."""
    binary = source.which("docker")
    if binary is None:
        return False, []
    engine: dict[str, t.Any] = {
        "name": "docker",
        "answers": None,
        "version": None,
        "storage_driver": None,
        "data_root": None,
        "free_bytes": None,
        "nvidia_runtime": None,
    }
    text = source.command([binary, "info", "--format", "{{json .}}"], limit=10)
    info = parse_docker_info(text)
    if info is None:
        if text is not None:
            source.fail(f"{binary} info", "the docker daemon did not describe itself")
        # A time limit that ran out leaves it open; a refused connection does not.
        engine["answers"] = None if text is None and source.errors[-1]["code"] in (124, 137) else False
        return engine, None
    engine.update(info, answers=True)
    if engine["data_root"]:
        engine["free_bytes"] = read_disk(engine["data_root"], content=False)["free_bytes"]
    if engine["nvidia_runtime"] is False and source.which("nvidia-container-runtime-hook"):
        # `--gpus` needs only the hook; the named runtime is one way to have it.
        engine["nvidia_runtime"] = True
    listed = source.command([binary, "ps", "--quiet", "--no-trunc"], limit=10)
    if listed is None:
        return engine, None
    identifiers = listed.split()
    if not identifiers:
        return engine, []
    containers = parse_docker_inspect(
        source.command([binary, "inspect", "--type", "container", *identifiers], limit=10)
    )
    if containers is None and len(identifiers) > 1:
        # One that ended in between makes docker fail for all.
        containers = []
        for identifier in identifiers:
            containers += (
                parse_docker_inspect(source.command([binary, "inspect", "--type", "container", identifier], limit=10))
                or []
            )
    return engine, containers


def read_processes(source: Source, inodes: set[int]) -> list[dict[str, t.Any]]:
    """Every process: name, memory, candidates for its container, unit, and which of the given sockets it holds."""
    result = []
    for entry in source.listdir("/proc"):
        if not entry.isdigit():
            continue
        name = source.line(f"/proc/{entry}/comm")
        if name is None:
            continue
        memory = parse_status(source.read(f"/proc/{entry}/status", quiet=True))
        group = parse_cgroup(source.read(f"/proc/{entry}/cgroup", quiet=True))
        sockets = []
        for descriptor in source.listdir(f"/proc/{entry}/fd") if inodes else []:
            match = re.match(r"^socket:\[(\d+)\]$", source.readlink(f"/proc/{entry}/fd/{descriptor}") or "")
            if match and int(match.group(1)) in inodes:
                sockets.append(int(match.group(1)))
        result.append({"pid": int(entry), "name": name, "sockets": sockets, **memory, **group})
    return result


def describe_holders(
    processes: list[dict[str, t.Any]],
    containers: list[dict[str, t.Any]],
    gpu_processes: list[dict[str, t.Any]],
) -> list[dict[str, t.Any]]:
    """Who holds memory or a GPU: every running container, and processes outside of containers that hold much of it."""
    by_id = {container["id"]: container for container in containers}
    gpu_bytes = {item["pid"]: item["used_bytes"] for item in gpu_processes}
    members: dict[str, list[dict[str, t.Any]]] = {identifier: [] for identifier in by_id}
    result: list[dict[str, t.Any]] = []
    for process in processes:
        owner = next((identifier for identifier in process["containers"] if identifier in by_id), None)
        if owner is not None:
            members[owner].append(process)
            continue
        memory = process["RssAnon"] + process["RssShmem"]
        if process["pid"] in gpu_bytes or memory >= HOLDER_MINIMUM_BYTES:
            result.append(
                {
                    "kind": "process",
                    "name": process["name"],
                    "id": str(process["pid"]),
                    "image": None,
                    "deployment": None,
                    "unit": process["unit"],
                    "memory_bytes": memory,
                    "gpu": process["pid"] in gpu_bytes,
                    "gpu_memory_bytes": gpu_bytes.get(process["pid"], 0),
                }
            )
    for identifier, container in by_id.items():
        inside = members[identifier]
        on_gpu = [process["pid"] for process in inside if process["pid"] in gpu_bytes]
        values = [gpu_bytes[pid] for pid in on_gpu]
        result.append(
            {
                "kind": "container",
                "name": container["name"],
                "id": identifier[:12],
                "image": container["image"],
                "deployment": container["deployment"],
                "unit": None,
                # Shared memory is mapped by all processes of an engine, so it counts once.
                "memory_bytes": sum(process["RssAnon"] for process in inside)
                + max([process["RssShmem"] for process in inside], default=0),
                "gpu": bool(on_gpu),
                "gpu_memory_bytes": None if None in values else sum(values),
            }
        )
    return result


def describe_listeners(
    sockets: list[dict[str, t.Any]],
    processes: list[dict[str, t.Any]],
    containers: list[dict[str, t.Any]],
) -> list[dict[str, t.Any]]:
    """Listening sockets with their owner; process and pid are None where the owner cannot be seen."""
    by_id = {container["id"]: container for container in containers}
    owners: dict[int, dict[str, t.Any]] = {}
    for process in processes:
        for inode in process["sockets"]:
            owners.setdefault(inode, process)
    result = []
    for socket in sockets:
        owner = owners.get(socket["inode"])
        identifier = next((item for item in owner["containers"] if item in by_id), None) if owner else None
        container = by_id[identifier] if identifier else None
        result.append(
            {
                "address": socket["address"],
                "port": socket["port"],
                "process": owner["name"] if owner else None,
                "pid": owner["pid"] if owner else None,
                "container": container["name"] if container else None,
                "unit": owner["unit"] if owner and not container else None,
                "deployment": container["deployment"] if container else None,
            }
        )
    return sorted(result, key=lambda item: (item["port"], item["address"]))


_TOOLS: dict[str, list[str]] = {
    "rsync": ["rsync", "--version"],
    "ssh": ["ssh", "-V"],
    "systemd": ["systemctl", "--version"],
    "nft": ["nft", "--version"],
}


def read_tools(source: Source) -> dict[str, t.Any]:
    """Versions of the tools that later stages call; false where one is missing."""
    tools: dict[str, t.Any] = {}
    for name, (binary, option) in _TOOLS.items():
        path = source.which(binary)
        tools[name] = False if path is None else parse_version(source.command([path, option], merge=True))
    return tools


def read_addresses(source: Source) -> list[dict[str, t.Any]] | None:
    """IPv4 addresses of all interfaces, with their prefix length."""
    binary = source.which("ip")
    if binary is None:
        source.fail("ip", "the command ip (package iproute2) is missing")
        return None
    text = source.command([binary, "-j", "-4", "addr", "show"])
    if text is None:
        return None
    addresses = parse_addresses(text)
    if addresses is None:
        source.fail("ip -j addr", "the output is not a JSON list")
    return addresses


def parse_addresses(text: str | None) -> list[dict[str, t.Any]] | None:
    links = parse_json(text, list)
    if links is None:
        return None
    result = []
    for link in links:
        # iproute2 prints empty objects for links that have no address of the asked family.
        if not isinstance(link, dict) or not isinstance(link.get("addr_info"), list):
            continue
        for entry in link["addr_info"]:
            if isinstance(entry, dict) and entry.get("family") == "inet" and entry.get("local"):
                result.append(
                    {"interface": link.get("ifname"), "address": f"{entry['local']}/{entry.get('prefixlen', 32)}"}
                )
    return result


def read_system(
    source: Source,
    uname: t.Any,
    paths: list[str],
    ports: list[int] | None,
    gpu_processes: list[dict[str, t.Any]],
    addresses: list[dict[str, t.Any]] | None,
) -> dict[str, t.Any]:
    release = parse_key_values(source.read("/etc/os-release"))
    dgx = parse_key_values(source.read("/etc/dgx-release"))
    memory = parse_meminfo(source.read("/proc/meminfo"))
    if "MemAvailable" not in memory:
        source.fail("/proc/meminfo", "MemAvailable is missing")
    engine, containers = read_engine(source)
    sockets = parse_proc_net_tcp(source.read("/proc/net/tcp")) + parse_proc_net_tcp(source.read("/proc/net/tcp6"))
    if ports is not None:
        sockets = [socket for socket in sockets if socket["port"] in ports]
    processes = read_processes(source, {socket["inode"] for socket in sockets})
    disks = [read_disk(path) for path in paths]
    if isinstance(engine, dict) and engine["data_root"] and engine["data_root"] not in paths:
        # Its content is not counted: images there are no reason to need less.
        disks.append(read_disk(engine["data_root"], content=False))
    shm = read_disk("/dev/shm", content=False)
    return {
        "hostname": uname.nodename,
        "os": {
            "name": release.get("NAME"),
            "version": release.get("VERSION_ID"),
            "dgx_release": dgx.get("DGX_OTA_VERSION") or dgx.get("DGX_SWBUILD_VERSION") or (False if not dgx else None),
        },
        "kernel": uname.release,
        "cmdline": (source.read("/proc/cmdline") or "").strip() or None,
        "machine": uname.machine,
        "cpu_count": os.cpu_count(),
        "memory": {
            "total_bytes": memory.get("MemTotal"),
            "available_bytes": memory.get("MemAvailable"),
            "swap_total_bytes": memory.get("SwapTotal"),
        },
        "shm": {"total_bytes": shm["total_bytes"], "free_bytes": shm["free_bytes"]},
        "disks": disks,
        "container_engine": engine,
        "systemd": source.exists("/run/systemd/system"),
        "tools": read_tools(source),
        "addresses": addresses,
        "listeners": describe_listeners(sockets, processes, containers or []),
        "holders": None if containers is None else describe_holders(processes, containers, gpu_processes),
        "errors": source.errors,
    }


def read_python(source: Source) -> list[dict[str, t.Any]]:
    """The system's interpreters, each once."""
    # Version managers put stand-ins on the path, so versions are looked up by directory.
    result: dict[str, dict[str, t.Any]] = {}
    known = [f"{directory}/python3.{minor}" for directory in ("/usr/bin", "/usr/local/bin") for minor in range(9, 16)]
    for path in [source.which("python3"), *(path for path in known if source.exists(path))]:
        if path is None or os.path.realpath(path) in result:
            continue
        version = parse_version(source.command([path, "--version"], merge=True))
        result[os.path.realpath(path)] = {"path": path, "version": version}
    return list(result.values())
