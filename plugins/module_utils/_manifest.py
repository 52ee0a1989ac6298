# Copyright (c) 2026, The sparkgate.blackwell authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

# Note that this module util is **PRIVATE** to the collection. It can have breaking changes at any time.
# Do not use this from other collections or standalone plugins/modules!

from __future__ import annotations

import concurrent.futures
import hashlib
import json
import os
import stat
import typing as t

_BLOCK_BYTES = 1 << 22

# What a download leaves beside the model, and what is never a part of it.
_SKIPPED_DIRECTORIES = (".cache", ".git")

# Where a transfer keeps the parts of files that it was sending when it broke.
_PARTIAL_DIRECTORY = ".sparkgate-partial"


class Listed(t.NamedTuple):
    """What is in a directory, by relative path."""

    files: dict[str, int]
    # Links that lead nowhere.
    dangling: list[str]
    # Unfinished downloads.
    incomplete: list[str]
    # What cannot be followed or read as a file: links to directories, unreadable directories, pipes.
    others: list[str]


def list_files(directory: str) -> Listed:
    files: dict[str, int] = {}
    dangling: list[str] = []
    others: list[str] = []
    incomplete: list[str] = []

    def unreadable(exc: OSError) -> None:
        others.append(os.path.relpath(str(exc.filename), directory))

    for base, names, entries in os.walk(directory, onerror=unreadable):
        relative = os.path.relpath(base, directory)
        for name in list(names):
            if name == _PARTIAL_DIRECTORY or (name in _SKIPPED_DIRECTORIES and relative == "."):
                names.remove(name)
            elif os.path.islink(os.path.join(base, name)):
                others.append(os.path.normpath(os.path.join(relative, name)))
        for name in entries:
            path = os.path.normpath(os.path.join(relative, name))
            try:
                found = os.stat(os.path.join(base, name))
            except OSError:
                dangling.append(path)
                continue
            if name.endswith(".incomplete"):
                incomplete.append(path)
            elif stat.S_ISREG(found.st_mode):
                files[path] = found.st_size
            else:
                others.append(path)
    # hf download keeps the unfinished part of a file in its own directory.
    for base, _names, entries in os.walk(os.path.join(directory, ".cache")):
        for name in entries:
            if name.endswith(".incomplete"):
                incomplete.append(os.path.relpath(os.path.join(base, name), directory))
    return Listed(files, sorted(dangling), sorted(incomplete), sorted(others))


def order(paths: t.Iterable[str]) -> list[str]:
    """Bytewise, so that the order is the same under every locale."""
    return sorted(paths, key=os.fsencode)


def digest(files: t.Iterable[dict[str, t.Any]]) -> str:
    """The digest of a manifest: the sha256 of its lines C(sha256  size  path)."""
    total = hashlib.sha256()
    for item in files:
        total.update(f"{item['sha256']}  {item['size']}  ".encode() + os.fsencode(item["path"]) + b"\n")
    return total.hexdigest()


def _key(found: os.stat_result) -> list[int]:
    return [found.st_size, found.st_mtime_ns, found.st_ino]


def hash_file(path: str) -> tuple[str, list[int]]:
    """The sha256 of a file, and by which it is recognised as unchanged. Raises OSError where it changes meanwhile."""
    total = hashlib.sha256()
    with open(path, "rb", buffering=0) as stream:
        before = _key(os.fstat(stream.fileno()))
        buffer = memoryview(bytearray(_BLOCK_BYTES))
        # hashlib lets other threads run while it works on a block this large.
        for count in iter(lambda: stream.readinto(buffer), 0):
            total.update(buffer[:count])
        if _key(os.fstat(stream.fileno())) != before:
            raise OSError("the file changed while it was read")
    return total.hexdigest(), before


def parse_cache(text: str | None) -> dict[str, list[t.Any]]:
    """The cache of hashes; one that is damaged counts as empty."""
    try:
        cache = json.loads(text or "{}")
        files = cache["files"] if cache.get("schema") == 1 else {}
        return {
            path: entry
            for path, entry in files.items()
            if isinstance(entry, list) and len(entry) == 4 and isinstance(entry[3], str)
        }
    except (ValueError, AttributeError, KeyError, TypeError):
        return {}


def dump_cache(cache: dict[str, list[t.Any]]) -> str:
    return json.dumps({"schema": 1, "files": cache}, indent=1, sort_keys=True)


class Hashed(t.NamedTuple):
    entries: list[dict[str, t.Any]]
    # What went wrong, by path.
    errors: dict[str, str]
    # The cache as it shall be now.
    cache: dict[str, list[t.Any]]
    # How many files were read.
    read: int


def hash_files(directory: str, files: dict[str, int], cache: dict[str, list[t.Any]], threads: int) -> Hashed:
    """The entries of a manifest, in its order. A file that the cache knows is not read."""
    fresh = {path: entry for path, entry in cache.items() if os.path.exists(path)}
    entries: list[dict[str, t.Any]] = []
    errors: dict[str, str] = {}
    read = 0

    def one(path: str) -> tuple[str, list[t.Any], bool]:
        full = os.path.realpath(os.path.join(directory, path))
        known = cache.get(full)
        if known is not None and known[:3] == _key(os.stat(full)):
            return full, known, False
        value, key = hash_file(full)
        return full, [*key, value], True

    with concurrent.futures.ThreadPoolExecutor(max_workers=max(1, threads)) as pool:
        # The largest start first, or one of them would be alone at the end.
        jobs = {path: pool.submit(one, path) for path in sorted(files, key=lambda item: -files[item])}
    for path in order(files):
        try:
            full, entry, was_read = jobs[path].result()
        except OSError as exc:
            errors[path] = exc.strerror or str(exc)
            continue
        read += was_read
        fresh[full] = entry
        entries.append({"path": path, "size": entry[0], "sha256": entry[3]})
    return Hashed(entries, errors, fresh, read)


def compare(
    wanted: dict[str, t.Any], files: dict[str, int], hashed: dict[str, str] | None
) -> list[tuple[str, str, str]]:
    """(path, kind, detail) for all that differs from a manifest; without hashes only paths and sizes are compared."""
    result = []
    known = {str(item["path"]): item for item in wanted["files"]}
    for path, item in known.items():
        if path not in files:
            result.append((path, "missing", "the manifest lists the file, and it is not there"))
        elif files[path] != item["size"]:
            result.append((path, "size", f"the file has {files[path]} bytes; the manifest says {item['size']}"))
        elif hashed is not None and path in hashed and hashed[path] != item["sha256"]:
            result.append(
                (path, "sha256", f"the content has sha256 {hashed[path]}; the manifest says {item['sha256']}")
            )
    result += [(path, "unexpected", "the file is not in the manifest") for path in order(files) if path not in known]
    return result
