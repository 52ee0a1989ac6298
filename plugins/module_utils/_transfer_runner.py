# Copyright (c) 2026, The sparkgate.blackwell authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

# This file is private to the sparkgate.blackwell collection.
# Do not use it outside of it: it may change in any release.
# It is also a program of its own: the modules write its source to the node, where a transient systemd unit runs it.
# So it imports nothing but the standard library, and nothing of the collection.

"""Copy weights or an image from the head to this node, export, pull or build an image, or download a model."""

from __future__ import annotations

import asyncio
import dataclasses
import fcntl
import hashlib
import json
import os
import platform
import posixpath
import pty
import re
import shlex
import shutil
import struct
import sys
import termios
import time
import traceback
import typing as t

STAGING = ".sparkgate-incoming"
PARTIAL = ".sparkgate-partial"
READY = "ready.json"
# Left free beside what is copied, so that a node does not end with a disk that is full to the last byte.
DISK_RESERVE_BYTES = 256 * 1024**2
# What a lost link, a restarted sshd or a timeout look like to rsync: worth another try. Everything else is not.
TRANSIENT_CODES = (10, 12, 30, 35, 255)
RETRIES = 4
RETRY_DELAY_S = 5.0
POLL_S = 2.0
# A run that is killed forgets at most the hashes of this time.
SAVE_S = 10.0
# First AES-GCM: every CPU that this collection knows has instructions for it.
CIPHERS = "aes128-gcm@openssh.com,aes256-gcm@openssh.com,chacha20-poly1305@openssh.com,aes128-ctr"
# What `docker pull` draws on a terminal: a layer, what happens to it, and how much of it has come.
LAYER_RE = re.compile(
    r"\b(?P<layer>[0-9a-f]{12}): (?P<what>[A-Z][a-z]+(?: [a-z]+)*)(?:\s+\[[=> ]*\]\s+(?P<done>[\d.]+[kMGT]?B)/(?P<all>[\d.]+[kMGT]?B))?"
)
CONTROL_RE = re.compile(r"\x1b\[[0-9;?]*[A-Za-z]")
# rsync writes to .NAME.XXXXXX beside the file until it is complete.
TEMPORARY_RE = re.compile(r"^\.(?P<name>.+)\.[A-Za-z0-9]{6}$")

JSON = dict[str, t.Any]


class TransferError(Exception):
    """Something that a person can act on."""


# ---------------------------------------------------------------- pure parts


@dataclasses.dataclass
class Plan:
    """What a node has of a manifest, and what it lacks."""

    good: dict[str, JSON]  # path to record: verified before and unchanged since
    unverified: list[JSON]  # right size, but nobody has hashed it here
    missing: list[JSON]

    @property
    def nothing_to_do(self) -> bool:
        return not self.unverified and not self.missing

    @property
    def missing_bytes(self) -> int:
        return sum(entry["size"] for entry in self.missing)


def check_manifest(manifest: JSON) -> list[JSON]:
    """Return the files of a manifest, or refuse it: the paths in it are written to as root."""
    files = manifest.get("files")
    if manifest.get("schema") != 1 or not isinstance(files, list) or not files:
        raise TransferError(
            "The manifest is not one of schema 1 with at least one file. Build it on the head with model_info."
        )
    result = []
    for entry in files:
        path, size, sha256 = entry.get("path"), entry.get("size"), entry.get("sha256")
        relative = (
            isinstance(path, str) and path != "" and not path.startswith("/") and posixpath.normpath(path) == path
        )
        if not relative or path.split("/")[0] in ("..", ".", STAGING) or "\0" in path or "\n" in path:
            raise TransferError(f"The manifest names the file {path!r}, which is not a plain relative path.")
        if not isinstance(size, int) or size < 0 or not re.match(r"^[0-9a-f]{64}$", str(sha256)):
            raise TransferError(
                f"The manifest has no size and sha256 for {path}. Build it again with model_info and depth full."
            )
        result.append({"path": str(path), "size": size, "sha256": str(sha256)})
    return result


def plan_files(files: list[JSON], seen: t.Mapping[str, JSON | None], records: t.Mapping[str, JSON]) -> Plan:
    """Compare a manifest with what lies on the disk; trust a recorded hash while size, mtime and inode are the same."""
    plan = Plan(good={}, unverified=[], missing=[])
    for entry in files:
        stat = seen.get(entry["path"])
        if stat is None or stat["size"] != entry["size"]:
            plan.missing.append(entry)
            continue
        record = records.get(entry["path"]) or {}
        if all(record.get(key) == stat[key] for key in ("size", "mtime_ns", "inode")) and record.get("sha256"):
            if record["sha256"] == entry["sha256"]:
                plan.good[entry["path"]] = dict(record)
            else:
                plan.missing.append(entry)
        else:
            plan.unverified.append(entry)
    return plan


def ssh_argv(source: JSON) -> list[str]:
    """Return the ssh command that rsync uses: this key, this host key, no other configuration."""
    options = {
        "BatchMode": "yes",
        "IdentitiesOnly": "yes",
        "StrictHostKeyChecking": "yes",
        "UserKnownHostsFile": source["known_hosts_file"],
        "GlobalKnownHostsFile": "/dev/null",
        "ConnectTimeout": "10",
        "ServerAliveInterval": "15",
        "ServerAliveCountMax": "4",
        "Compression": "no",
        "ControlPath": "none",
        "Ciphers": CIPHERS,
    }
    argv = ["ssh", "-F", "/dev/null", "-T", "-p", str(source["port"]), "-i", source["identity_file"]]
    for key, value in options.items():
        argv += ["-o", f"{key}={value}"]
    return argv


def rsync_argv(source: JSON, destination: str, what: t.Sequence[str], bandwidth: int | None = None) -> list[str]:
    """Return the rsync command that pulls from the source's export into the destination."""
    host = f"[{source['address']}]" if ":" in source["address"] else source["address"]
    argv = ["rsync", *what, f"--partial-dir={PARTIAL}", "--timeout=120", "-e", shlex.join(ssh_argv(source))]
    if bandwidth:
        argv.append(f"--bwlimit={max(1, bandwidth // 1024)}")
    return [*argv, f"{source['user']}@{host}:.", f"{destination}/"]


def image_layers(manifest: list[JSON], config: JSON, sizes: t.Mapping[str, int]) -> list[JSON]:
    """Return the layers of an unpacked `docker save`, the lowest first."""
    paths = manifest[0]["Layers"]
    diff_ids = config["rootfs"]["diff_ids"]
    return [{"diff_id": d, "path": path, "bytes": sizes.get(path, 0)} for d, path in zip(diff_ids, paths)]


def known_layers(layers: t.Sequence[JSON], local: t.Iterable[t.Sequence[str]]) -> list[JSON]:
    """Return the layers that an engine has below the same lower layers, from the diff IDs of its images."""
    wanted = [layer["diff_id"] for layer in layers]
    most = 0
    for diff_ids in local:
        same = 0
        for mine, other in zip(wanted, diff_ids):
            if mine != other:
                break
            same += 1
        most = max(most, same)
    needed = {layer["path"] for layer in layers[most:]}
    return [layer for layer in layers[:most] if layer["path"] not in needed]


def rate(samples: t.Sequence[tuple[float, int]]) -> float:
    """Return bytes a second over the samples (time, bytes)."""
    if len(samples) < 2:
        return 0.0
    seconds = samples[-1][0] - samples[0][0]
    return max(0.0, (samples[-1][1] - samples[0][1]) / seconds) if seconds > 0 else 0.0


def staged_bytes(files: list[JSON], seen: t.Iterable[tuple[str, int]]) -> int:
    """Return how much of the files has arrived, from the names and sizes in the staging directory."""
    wanted = {entry["path"]: entry["size"] for entry in files}
    arrived: dict[str, int] = {}
    for path, size in seen:
        directory, name = posixpath.split(path)
        match = TEMPORARY_RE.match(name)
        if posixpath.basename(directory) == PARTIAL:
            path = posixpath.join(posixpath.dirname(directory), name)
        elif path not in wanted and match:
            path = posixpath.join(directory, match.group("name"))
        if path in wanted:
            arrived[path] = min(wanted[path], max(size, arrived.get(path, 0)))
    return sum(arrived.values())


def gib(count: float) -> str:
    """Return a number of bytes for people."""
    return f"{count / 1024**3:.1f} GiB" if count >= 1024**3 / 10 else f"{count / 1024**2:.1f} MiB"


def disk_problem(path: str, have: int, need: int, what: str) -> str | None:
    """Return what to tell the user where the disk is too small."""
    need += DISK_RESERVE_BYTES
    if have >= need:
        return None
    return (
        f"{platform.node()} has {gib(have)} free at {path} but {what} needs {gib(need)} there"
        f" ({gib(DISK_RESERVE_BYTES)} of it in reserve). Nothing was copied in this run."
        " Free some space or choose another directory, and run it again."
    )


def decimal_bytes(text: str) -> int:
    """Return the number behind C(12.3MB) and the like, whose units are powers of a thousand."""
    number, prefix = re.match(r"^([\d.]*)([kMGT]?)B$", text).groups()  # type: ignore[union-attr]
    return int(float(number) * 1000 ** " kMGT".index(prefix or " "))


class Layers:
    """How far a pull is, from what `docker pull` draws."""

    def __init__(self) -> None:
        self._layers: dict[str, JSON] = {}

    def see(self, line: str) -> None:
        for match in LAYER_RE.finditer(line):
            layer = self._layers.setdefault(match["layer"], {"bytes": None, "done": 0, "complete": False})
            if match["what"] == "Downloading" and match["all"]:
                layer["bytes"], layer["done"] = decimal_bytes(match["all"]), decimal_bytes(match["done"])
            elif match["what"] in ("Verifying Checksum", "Download complete", "Extracting", "Pull complete"):
                layer["done"] = layer["bytes"] or 0
            if match["what"] in ("Pull complete", "Already exists"):
                layer["complete"] = True

    def state(self) -> JSON:
        """Return the changes of the progress; the total is known once every layer has said its size."""
        layers = self._layers.values()
        complete = sum(layer["complete"] for layer in layers)
        sized = all(layer["complete"] or layer["bytes"] is not None for layer in layers)
        return {
            "bytes_done": sum(layer["done"] for layer in layers),
            "bytes_total": sum(layer["bytes"] or 0 for layer in layers) if sized else 0,
            "detail": f"{complete} of {len(layers)} layers unpacked" if layers else None,
        }


def worth_a_retry(code: int, stderr: str) -> bool:
    """Tell whether the same command may succeed a little later."""
    refused = "Permission denied (" in stderr or "Host key verification failed" in stderr
    return code in TRANSIENT_CODES and not refused


def rsync_problem(code: int, stderr: str, source: JSON) -> str:
    """Return what to tell the user about a failed rsync."""
    lines = [line for line in stderr.splitlines() if line.strip() and not line.startswith("rsync error:")]
    seen = "; ".join((lines or stderr.splitlines())[-3:]) or "no message"
    head = f"{source['address']} port {source['port']}"
    node = platform.node()
    if "No space left on device" in stderr:
        text = f"The disk of {node} is full. What is complete is kept. Free some space and run it again."
    elif "Host key verification failed" in stderr:
        text = f"The ssh host key of {head} is not the one that was pinned. If it was reinstalled, run ssh_mesh again."
    elif "Permission denied (" in stderr:
        text = f"The head ({head}) refused the transfer's key. Run it again: the role ssh_mesh installs the key."
    elif code == 255:
        text = f"{node} cannot reach the head's ssh server at {head} over the fabric. Check the address and the link."
    else:
        text = f"rsync from {head} to {node} ended with code {code}."
    return f"{text} Seen: {seen}"


# ---------------------------------------------------------------- the disk


def write_atomic(path: str, text: str, mode: int = 0o644) -> None:
    """Write a file so that a reader sees the old or the new one."""
    temporary = f"{path}.{os.getpid()}.tmp"
    descriptor = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, mode)
    with os.fdopen(descriptor, "w", encoding="utf-8") as stream:
        stream.write(text)
        stream.flush()
        os.fsync(stream.fileno())
    os.replace(temporary, path)


def read_json(path: str) -> t.Any:
    """Return the content of a JSON file, or None where there is none that can be read."""
    try:
        with open(path, encoding="utf-8") as stream:
            return json.load(stream)
    except (OSError, ValueError):
        return None


def file_stat(path: str) -> JSON | None:
    """Return what identifies the content of a regular file, or None where there is none."""
    try:
        stat = os.lstat(path)
    except OSError:
        return None
    if not os.path.isfile(path) or os.path.islink(path):
        return None
    return {"size": stat.st_size, "mtime_ns": stat.st_mtime_ns, "inode": stat.st_ino}


def hash_file(path: str) -> JSON:
    """Hash a file; return its record."""
    digest = hashlib.sha256()
    buffer = memoryview(bytearray(4 * 1024**2))
    before = file_stat(path)
    with open(path, "rb", buffering=0) as stream:
        while count := stream.readinto(buffer):
            digest.update(buffer[:count])
    after = file_stat(path)
    if before is None or before != after:
        raise TransferError(f"{path} on {platform.node()} changed while it was read. Run it again.")
    return {**before, "sha256": digest.hexdigest()}


def walk_sizes(root: str) -> t.Iterator[tuple[str, int]]:
    """Give relative names and sizes of the files below a directory, also while they come and go."""
    for directory, _directories, names in os.walk(root):
        for name in names:
            path = os.path.join(directory, name)
            try:
                size = os.lstat(path).st_size
            except OSError:
                continue
            yield os.path.relpath(path, root), size


def free_bytes(path: str) -> int:
    """Return the free bytes of the file system that will hold the path."""
    while not os.path.isdir(path):
        path = os.path.dirname(path)
    return shutil.disk_usage(path).free


def adopt_leftovers(staging: str) -> None:
    """After a kill -9 or a reboot rsync's temporary files are still there: make them the start of the next try."""
    for relative, size in list(walk_sizes(staging)):
        directory, name = os.path.split(os.path.join(staging, relative))
        match = TEMPORARY_RE.match(name)
        if not match or os.path.basename(directory) == PARTIAL:
            continue
        partial = os.path.join(directory, PARTIAL, match.group("name"))
        known = file_stat(partial)
        if known is None or known["size"] < size:
            os.makedirs(os.path.dirname(partial), mode=0o700, exist_ok=True)
            os.replace(os.path.join(directory, name), partial)
        else:
            os.unlink(os.path.join(directory, name))


def read_hashes(job: JSON, files: list[JSON]) -> dict[str, JSON]:
    """Return the known hashes of the job's files. The module model_info keeps them in the same file and form."""
    cache = read_json(job["hash_cache"])
    known = cache.get("files") if isinstance(cache, dict) and cache.get("schema") == 1 else None
    records: dict[str, JSON] = {}
    if not isinstance(known, dict):
        return records
    for entry in files:
        value = known.get(os.path.realpath(os.path.join(job["destination"], entry["path"])))
        if isinstance(value, list) and len(value) == 4:
            records[entry["path"]] = dict(zip(("size", "mtime_ns", "inode", "sha256"), value))
    return records


def survey(job: JSON) -> Plan:
    """Compare the job's manifest with its destination."""
    files = check_manifest(job["manifest"])
    seen = {entry["path"]: file_stat(os.path.join(job["destination"], entry["path"])) for entry in files}
    return plan_files(files, seen, read_hashes(job, files))


# ---------------------------------------------------------------- the program


class Progress:
    """The progress file."""

    def __init__(self, path: str, kind: str) -> None:
        self._path = path
        self._samples: list[tuple[float, int]] = []
        now = time.time()
        self.state: JSON = {
            "kind": kind,
            "phase": "starting",
            "bytes_done": 0,
            "bytes_total": 0,
            "rate_bytes_s": 0,
            "detail": None,
            "started": now,
            "updated": now,
            "error": None,
            "finished": False,
        }

    def update(self, **changes: t.Any) -> None:
        now = time.time()
        if changes.get("phase", self.state["phase"]) != self.state["phase"]:
            self._samples = []
        self.state.update(changes, updated=now)
        self._samples = [sample for sample in self._samples if now - sample[0] <= 10]
        self._samples.append((now, self.state["bytes_done"]))
        self.state["rate_bytes_s"] = int(rate(self._samples))
        os.makedirs(os.path.dirname(self._path), exist_ok=True)
        write_atomic(self._path, json.dumps(self.state))


def say(text: str) -> None:
    """Write a line for the journal."""
    sys.stderr.write(text + "\n")
    sys.stderr.flush()


async def run(argv: t.Sequence[str], stdin: bytes = b"") -> tuple[int, str, str]:
    """Run a command; return code, output and messages."""
    process = await asyncio.create_subprocess_exec(
        *argv, stdin=asyncio.subprocess.PIPE, stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.PIPE
    )
    out, err = await process.communicate(stdin)
    return process.returncode or 0, out.decode(errors="replace"), err.decode(errors="replace")


async def drawn(
    argv: t.Sequence[str], see: t.Callable[[str], None], environment: t.Mapping[str, str] | None = None
) -> tuple[int, list[str]]:
    """Run a command on a terminal of its own, since some draw progress nowhere else; return code and the last lines."""
    leader, follower = pty.openpty()
    fcntl.ioctl(follower, termios.TIOCSWINSZ, struct.pack("HHHH", 200, 160, 0, 0))
    last: list[str] = []
    try:
        process = await asyncio.create_subprocess_exec(
            *argv,
            stdin=asyncio.subprocess.DEVNULL,
            stdout=follower,
            stderr=follower,
            env={**os.environ, **(environment or {}), "TERM": "xterm"},
        )
    finally:
        os.close(follower)

    def read() -> None:
        rest = ""
        while True:
            try:
                data = os.read(leader, 65536)
            except OSError:  # the terminal's other side is closed
                data = b""
            *lines, rest = re.split(r"[\r\n]+", rest + CONTROL_RE.sub("", data.decode(errors="replace")))
            for line in [*lines, rest] if not data else lines:
                if line.strip():
                    see(line)
                    last[:] = [*last[-99:], line.rstrip()]
            if not data:
                return

    try:
        await asyncio.get_running_loop().run_in_executor(None, read)
        return await process.wait(), last
    finally:
        os.close(leader)


async def pipe(first: t.Sequence[str], second: t.Sequence[str]) -> None:
    """Run `first | second`; raise where one of them fails."""
    read_end, write_end = os.pipe()
    try:
        producer = await asyncio.create_subprocess_exec(
            *first, stdin=asyncio.subprocess.DEVNULL, stdout=write_end, stderr=asyncio.subprocess.PIPE
        )
        consumer = await asyncio.create_subprocess_exec(
            *second, stdin=read_end, stdout=asyncio.subprocess.DEVNULL, stderr=asyncio.subprocess.PIPE
        )
    finally:
        os.close(read_end)
        os.close(write_end)
    results = await asyncio.gather(producer.communicate(), consumer.communicate())
    # The consumer's failure breaks the pipe of the producer, so it is the one to name first.
    for argv, process, (_out, err) in ((second, consumer, results[1]), (first, producer, results[0])):
        if process.returncode:
            seen = "; ".join(err.decode(errors="replace").strip().splitlines()[-3:]) or "no message"
            raise TransferError(
                f"{shlex.join(argv[:3])} on {platform.node()} ended with code {process.returncode}. Seen: {seen}"
            )


async def watched(work: t.Awaitable[t.Any], report: t.Callable[[], None], every: float = 1.0) -> t.Any:
    """Wait for the work and report meanwhile."""
    task = asyncio.ensure_future(work)
    while not task.done():
        await asyncio.wait({task}, timeout=every)
        report()
    return task.result()


async def local_layers() -> list[list[str]]:
    """Return the diff IDs of every image of this node's engine."""
    _code, out, _err = await run(["docker", "image", "ls", "--quiet", "--no-trunc"])
    names = sorted(set(out.split()))
    if not names:
        return []
    _code, out, _err = await run(["docker", "image", "inspect", "--format", "{{json .RootFS.Layers}}", *names])
    return [json.loads(line) or [] for line in out.splitlines() if line.strip()]


async def image_id(name: str) -> str | None:
    """Return the id of a local image."""
    code, out, _err = await run(["docker", "image", "inspect", "--format", "{{.Id}}", name])
    return out.strip() if code == 0 else None


class Weights:
    """Copy the files of a manifest; a file gets its final name when it is complete and verified."""

    def __init__(self, job: JSON, progress: Progress) -> None:
        self.job = job
        self.progress = progress
        self.destination: str = job["destination"]
        self.staging = os.path.join(self.destination, STAGING)
        self.files = check_manifest(job["manifest"])
        self.plan = survey(job)
        self.good = dict(self.plan.good)
        self.bad: set[str] = set()
        self.total = 0
        self.done = 0
        self.saved = time.monotonic()

    async def run(self) -> None:
        os.makedirs(self.staging, mode=0o755, exist_ok=True)
        os.makedirs(os.path.dirname(self.job["record"]), mode=0o755, exist_ok=True)
        # The manifest that lies here says what this node has. From now on that is not true any more.
        if read_json(self.job["record"]) not in (None, self.job["manifest"]):
            os.unlink(self.job["record"])
        adopt_leftovers(self.staging)
        self.total = self.plan.missing_bytes + sum(entry["size"] for entry in self.plan.unverified)
        self.progress.update(phase="verifying", bytes_total=self.total)
        for entry in self.plan.unverified:
            await self.verify(entry, os.path.join(self.destination, entry["path"]))
        # What an earlier run has brought here completely, but not verified.
        for entry in self.plan.missing:
            if (file_stat(self.staged(entry)) or {}).get("size") == entry["size"]:
                await self.verify(entry, self.staged(entry))
        self.bad.clear()
        self.save()
        wanted = self.lacking()
        need = sum(entry["size"] for entry in wanted) - staged_bytes(wanted, walk_sizes(self.staging))
        problem = disk_problem(self.destination, free_bytes(self.destination), need, "the copy of the weights")
        if wanted and problem:
            raise TransferError(problem)
        for _attempt in (1, 2):
            if self.lacking():
                await self.fetch(self.lacking())
        if self.lacking():
            self.explain()
        self.save()
        write_atomic(self.job["record"], json.dumps(self.job["manifest"], indent=4) + "\n")
        shutil.rmtree(self.staging)

    def staged(self, entry: JSON) -> str:
        return os.path.join(self.staging, entry["path"])

    def lacking(self) -> list[JSON]:
        return [entry for entry in self.files if entry["path"] not in self.good]

    def explain(self) -> None:
        names = [entry["path"] for entry in self.lacking()]
        shown = ", ".join(names[:5]) + (f" and {len(names) - 5} more" if len(names) > 5 else "")
        if self.bad & set(names):
            raise TransferError(
                f"The sha256 of {shown} differs from the manifest, also when fetched a second time."
                " The files on the head have changed since the manifest was made, or a disk or a link is at fault."
                " Verify the model on the head, and run it again."
            )
        raise TransferError(
            f"The head did not send {shown}: missing there, or not a regular file."
            " Verify the model on the head, and run it again."
        )

    async def verify(self, entry: JSON, path: str) -> None:
        """Hash a file and give it its final name, or drop it."""
        record = await asyncio.get_running_loop().run_in_executor(None, hash_file, path)
        final = os.path.join(self.destination, entry["path"])
        if record["sha256"] == entry["sha256"]:
            if path != final:
                os.makedirs(os.path.dirname(final), mode=0o755, exist_ok=True)
                os.replace(path, final)
            self.good[entry["path"]] = record
            self.done += entry["size"]
        else:
            say(f"{entry['path']} has the sha256 {record['sha256']}, not the manifest's {entry['sha256']}")
            self.bad.add(entry["path"])
            if path != final:
                os.unlink(path)
        if time.monotonic() - self.saved > SAVE_S:
            self.save()
        self.report()

    def report(self) -> None:
        here = staged_bytes(self.lacking(), walk_sizes(self.staging))
        self.progress.update(bytes_done=min(self.total, self.done + here))

    async def fetch(self, wanted: list[JSON]) -> None:
        """Fetch the wanted files, hashing each as soon as it is complete."""
        self.progress.update(phase="copying")
        tries = 0
        while wanted:
            before = len(self.good), staged_bytes(wanted, walk_sizes(self.staging))
            argv = rsync_argv(
                self.job["source"],
                self.staging,
                ["--times", "--perms", "--chmod=D0755,F0644", "--from0", "--files-from=-"],
                self.job.get("bandwidth"),
            )
            names = b"".join(os.fsencode(entry["path"]) + b"\0" for entry in wanted)
            code, err = await self.fetch_once(argv, names, wanted)
            if not worth_a_retry(code, err):
                break
            wanted = [entry for entry in wanted if entry["path"] not in self.good]
            tries = 0 if (len(self.good), staged_bytes(wanted, walk_sizes(self.staging))) != before else tries + 1
            if tries >= RETRIES:
                break
            say(rsync_problem(code, err, self.job["source"]))
            await asyncio.sleep(RETRY_DELAY_S)
            adopt_leftovers(self.staging)
        # 23: some files could not be read on the head. explain() names them.
        if wanted and code not in (0, 23):
            raise TransferError(rsync_problem(code, err, self.job["source"]))
        if code == 23:
            say(err)

    async def fetch_once(self, argv: list[str], names: bytes, wanted: list[JSON]) -> tuple[int, str]:
        copying = asyncio.ensure_future(run(argv, names))
        hashing: dict[str, asyncio.Future[None]] = {}
        while True:
            finished = copying.done()
            for entry in wanted:
                if entry["path"] not in hashing and file_stat(self.staged(entry)) is not None:
                    hashing[entry["path"]] = asyncio.ensure_future(self.verify(entry, self.staged(entry)))
            everything: list[asyncio.Future[t.Any]] = [copying, *hashing.values()]
            waiting = [future for future in everything if not future.done()]
            if finished and not waiting:
                break
            # Not longer, because files that become complete are found by looking.
            await asyncio.wait(waiting or everything, timeout=0.5)
            self.report()
        for future in hashing.values():
            future.result()
        self.save()
        code, _out, err = copying.result()
        return code, err

    def save(self) -> None:
        """Keep the hashes, so that nobody reads the files a second time."""
        path = self.job["hash_cache"]
        cache = read_json(path)
        known = cache.get("files") if isinstance(cache, dict) and cache.get("schema") == 1 else None
        merged = {name: value for name, value in (known or {}).items() if os.path.exists(name)}
        for name, record in self.good.items():
            final = os.path.realpath(os.path.join(self.destination, name))
            merged[final] = [record[key] for key in ("size", "mtime_ns", "inode", "sha256")]
        os.makedirs(os.path.dirname(path), mode=0o755, exist_ok=True)
        write_atomic(path, json.dumps({"schema": 1, "files": merged}, indent=1, sort_keys=True))
        self.saved = time.monotonic()


class Image:
    """Copy the head's unpacked export and load it into this node's engine."""

    def __init__(self, job: JSON, progress: Progress) -> None:
        self.job = job
        self.progress = progress
        self.id: str = job["image"]["id"]
        self.name: str = job["image"]["name"]
        self.spool: str = job["spool"]

    async def run(self) -> None:
        if await image_id(self.id) == self.id:
            await self.tag()
            return
        ready = await self.wait_for_export()
        known = known_layers(ready.get("layers", []), await local_layers())
        await self.copy(ready, known)
        try:
            await self.load()
        except TransferError as exc:
            if not known:
                raise
            # An image store that wants every layer in the archive, whether it has it or not.
            say(f"{exc}; all layers are fetched")
            await self.copy(ready, [])
            await self.load()
        if await image_id(self.id) != self.id:
            found = await image_id(self.name)
            raise TransferError(
                f"After loading, {self.name} is {found or 'absent'} on {platform.node()} and {self.id} on the head."
                " Run it again."
            )
        await self.tag()
        shutil.rmtree(self.spool)

    async def load(self) -> None:
        self.progress.update(phase="loading")
        exclude = [f"--exclude=./{name}" for name in (READY, PARTIAL)]
        await pipe(["tar", "-c", "-C", self.spool, *exclude, "."], ["docker", "load", "--quiet"])

    async def tag(self) -> None:
        if await image_id(self.name) != self.id:
            code, _out, err = await run(["docker", "image", "tag", self.id, self.name])
            if code:
                raise TransferError(f"Cannot tag {self.id} as {self.name} on {platform.node()}. Seen: {err.strip()}")

    async def wait_for_export(self) -> JSON:
        """Wait until the head says that its export is complete."""
        self.progress.update(phase="waiting")
        os.makedirs(self.spool, mode=0o755, exist_ok=True)
        path = os.path.join(self.spool, READY)
        deadline = time.monotonic() + self.job["export_timeout"]
        refused = 0
        seen = "nothing"
        while time.monotonic() < deadline:
            argv = rsync_argv(
                self.job["source"], self.spool, ["--times", f"--include=/{READY}", "--exclude=*", "--recursive"]
            )
            code, _out, err = await run(argv)
            ready = read_json(path) if code == 0 else None
            if code == 0:
                refused = 0
                seen = f"an export of {ready['id']}" if ready else "no complete export"
            else:
                seen = rsync_problem(code, err, self.job["source"])
                # That the export's directory is not there yet is no error; that the head refuses the key is one.
                refused += code == 255
                if refused > RETRIES or (code == 255 and not worth_a_retry(code, err)):
                    raise TransferError(seen)
            if ready and ready.get("id") == self.id:
                if ready.get("error"):
                    raise TransferError(f"The head could not export the image: {ready['error']}")
                return t.cast(JSON, ready)
            self.progress.update()
            await asyncio.sleep(POLL_S)
        raise TransferError(
            f"The head has not exported {self.name} ({self.id}) within {self.job['export_timeout']} s."
            f" Last seen: {seen}. Look at the unit sparkgate-export-image on the head, and run it again."
        )

    async def copy(self, ready: JSON, known: list[JSON]) -> None:
        """Copy the export but for the layers that this node's engine has."""
        total = ready["bytes"] - sum(layer["bytes"] for layer in known)
        need = total - sum(size for _path, size in walk_sizes(self.spool))
        problem = disk_problem(self.spool, free_bytes(self.spool), need, f"the copy of {self.name}")
        if problem:
            raise TransferError(problem)
        self.progress.update(phase="copying", bytes_total=total)

        def report() -> None:
            here = sum(size for _path, size in walk_sizes(self.spool))
            self.progress.update(bytes_done=min(total, here))

        tries = 0
        while True:
            adopt_leftovers(self.spool)
            argv = rsync_argv(
                self.job["source"],
                self.spool,
                [
                    *["--recursive", "--links", "--times", "--perms", "--chmod=D0755,F0644", "--delete"],
                    *[f"--exclude=/{layer['path']}" for layer in known],
                ],
                self.job.get("bandwidth"),
            )
            code, _out, err = await watched(run(argv), report)
            if code == 0:
                break
            tries += 1
            if not worth_a_retry(code, err) or tries > RETRIES:
                raise TransferError(rsync_problem(code, err, self.job["source"]))
            say(rsync_problem(code, err, self.job["source"]))
            await asyncio.sleep(RETRY_DELAY_S)
        self.progress.update(bytes_done=total)


class Export:
    """Unpack `docker save` on the head, where the workers fetch it.

    `ready.json` says that it is complete, or why it never will be.
    """

    def __init__(self, job: JSON, progress: Progress) -> None:
        self.job = job
        self.progress = progress
        self.spool: str = job["spool"]

    async def run(self) -> None:
        try:
            await self.export()
        except (TransferError, OSError) as exc:
            shutil.rmtree(self.spool, ignore_errors=True)
            os.makedirs(self.spool, mode=0o755, exist_ok=True)
            write_atomic(
                os.path.join(self.spool, READY), json.dumps({"id": self.job["image"]["id"], "error": str(exc)})
            )
            raise

    async def export(self) -> None:
        image = self.job["image"]
        unpacked = f"{self.spool}.tmp"
        for path in (self.spool, unpacked):
            if os.path.lexists(path):
                shutil.rmtree(path)
        os.makedirs(unpacked, mode=0o755)
        problem = disk_problem(unpacked, free_bytes(unpacked), image["size"], f"the export of {image['name']}")
        if problem:
            raise TransferError(problem)
        self.progress.update(phase="exporting", bytes_total=image["size"])

        def report() -> None:
            self.progress.update(bytes_done=min(image["size"], sum(size for _path, size in walk_sizes(unpacked))))

        unpack = ["tar", "-x", "-C", unpacked, "--no-same-owner", "--no-same-permissions"]
        await watched(pipe(["docker", "save", image["name"]], unpack), report)
        sizes = dict(walk_sizes(unpacked))
        manifest = read_json(os.path.join(unpacked, "manifest.json"))
        config = read_json(os.path.join(unpacked, manifest[0]["Config"])) if manifest else None
        ready = {
            "id": image["id"],
            "bytes": sum(sizes.values()),
            "files": len(sizes),
            "layers": image_layers(manifest, config, sizes) if config else [],
        }
        write_atomic(os.path.join(unpacked, READY), json.dumps(ready))
        os.rename(unpacked, self.spool)
        self.progress.update(bytes_done=ready["bytes"], bytes_total=ready["bytes"])


class Hub:
    """Download one revision from a hub, with the hub's own client in a container; it takes up what an earlier run left."""

    def __init__(self, job: JSON, progress: Progress) -> None:
        self.job = job
        self.progress = progress

    async def run(self) -> None:
        os.makedirs(self.job["destination"], mode=0o755, exist_ok=True)
        # A run that was killed leaves its container, whose name is wanted.
        await run(["docker", "rm", "--force", self.job["container"]])
        self.progress.update(phase="downloading", bytes_total=self.job["bytes"])

        def report() -> None:
            here = sum(size for _path, size in walk_sizes(self.job["destination"]))
            self.progress.update(bytes_done=min(self.job["bytes"], here))

        code, out, err = await watched(run(self.job["argv"]), report)
        if code:
            seen = "; ".join((err or out).strip().splitlines()[-3:]) or "no message"
            raise TransferError(
                f"The download on {platform.node()} ended with code {code}. Run it again; it goes on from there. Seen: {seen}"
            )


class Pull:
    """Pull an image from its registry."""

    def __init__(self, job: JSON, progress: Progress) -> None:
        self.job = job
        self.progress = progress

    async def run(self) -> None:
        layers = Layers()
        self.progress.update(phase="pulling")
        work = drawn(["docker", "pull", self.job["image"]], layers.see)
        code, last = await watched(work, lambda: self.progress.update(**layers.state()))
        if code:
            seen = "; ".join(line for line in last if not LAYER_RE.search(line))[-1000:]
            raise TransferError(
                f"{self.job['image']} cannot be pulled on {platform.node()}. Check the name, that the registry can be reached"
                f" from there, and, where it asks for a login, `docker login` there as root. Seen: {seen or 'no message'}"
            )


class Build:
    """Build an image from its recipe."""

    def __init__(self, job: JSON, progress: Progress) -> None:
        self.job = job
        self.progress = progress

    async def run(self) -> None:
        # By name alone: what an argument is stands in the environment, which only root reads.
        arguments = [part for name in self.job["arguments"] for part in ("--build-arg", name)]
        where = ["--network", self.job["network"], "--tag", self.job["image"], self.job["path"]]
        detail = ""

        def see(line: str) -> None:
            nonlocal detail
            detail = line.strip()[:120]
            say(line)

        self.progress.update(phase="building")
        work = drawn(
            ["docker", "build", *arguments, *where], see, {**self.job["arguments"], "BUILDKIT_PROGRESS": "plain"}
        )
        code, last = await watched(work, lambda: self.progress.update(detail=detail))
        if code:
            end = "\n".join(last)[-1500:]
            raise TransferError(
                f"{self.job['image']} cannot be built on {platform.node()}. The recipe is {self.job['path']}/Dockerfile there."
                f" Where pip needs a proxy or another index, set engine_image_build_args. The end of the log:\n{end}"
            )


KINDS: dict[str, t.Callable[[JSON, Progress], t.Any]] = {
    "weights": Weights,
    "image": Image,
    "export": Export,
    "hub": Hub,
    "pull": Pull,
    "build": Build,
}


async def work(job: JSON) -> int:
    """Do the job; return the exit status."""
    progress = Progress(job["progress"], job["kind"])
    try:
        progress.update()
        await KINDS[job["kind"]](job, progress).run()
        progress.update(phase="done", bytes_done=progress.state["bytes_total"], finished=True)
        return 0
    except TransferError as exc:
        error = str(exc)
    except OSError as exc:
        error = f"{platform.node()}: {exc}"
    except Exception as exc:  # the file must tell of every end
        say(traceback.format_exc())
        error = f"{type(exc).__name__}: {exc}"
    say(error)
    progress.update(error=error)
    return 1


def main(argv: t.Sequence[str]) -> int:
    """Run the job in the file that is named on the command line."""
    os.umask(0o022)
    with open(argv[1], encoding="utf-8") as stream:
        job = json.load(stream)
    return asyncio.run(work(job))


if __name__ == "__main__":
    raise SystemExit(main(sys.argv))
