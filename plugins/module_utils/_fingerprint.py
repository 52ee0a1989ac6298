# Copyright (c) 2026, The sparkgate.blackwell authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""What identifies a node's part of a deployment. Private to the collection."""

# Note that this module util is private to the collection. It can break compatibility with itself at any time.

from __future__ import annotations

import hashlib
import json
import os
import re
import typing as t

CONTENT_ROOTS = (
    "/var/lib/containerd/io.containerd.content.v1.content/blobs/sha256",
    "/var/lib/docker/containerd/daemon/io.containerd.content.v1.content/blobs/sha256",
)


def manifest_digest(files: t.Iterable[t.Mapping[str, t.Any]]) -> str:
    ordered = sorted(files, key=lambda entry: os.fsencode(entry["path"]))
    lines = "".join(f"{entry['sha256']}  {entry['size']}  {entry['path']}\n" for entry in ordered)
    return hashlib.sha256(os.fsencode(lines)).hexdigest()


def recorded_mtime(cache: t.Mapping[str, t.Any], root: str, path: str) -> int | None:
    """When a file was written, as noted when it was hashed; None where that was not noted.

    C(model_info) notes C([size, mtime, inode, sha256]) by the whole path, C(transfer) a mapping by the path in the model.
    """
    known = cache.get(path, cache.get(os.path.join(root, path)))
    if isinstance(known, dict):
        known = known.get("mtime_ns")
    elif isinstance(known, list):
        known = known[1] if len(known) > 1 else None
    return known if isinstance(known, int) else None


def changed_file(root: str, files: t.Iterable[t.Mapping[str, t.Any]], cache: t.Mapping[str, t.Any]) -> str | None:
    """The first file that is not as it was when it was hashed, with the difference; None where all are."""
    for entry in files:
        path = entry["path"]
        try:
            found = os.stat(os.path.join(root, path))
        except OSError:
            return f"{path} (missing)"
        if found.st_size != entry["size"]:
            return f"{path} ({found.st_size} bytes, not {entry['size']})"
        if recorded_mtime(cache, root, path) not in (None, found.st_mtime_ns):
            return f"{path} (written again since it was verified)"
    return None


def gpu_uuid(text: str) -> str | None:
    """The UUID in the text of /proc/driver/nvidia/gpus/*/information; None while the driver has not read it yet."""
    found = re.search(r"GPU UUID:\s*(GPU-[0-9a-fA-F-]{36})\s*$", text, re.MULTILINE)
    return found.group(1) if found else None


def config_digest(inspection: t.Mapping[str, t.Any], read_blob: t.Callable[[str], bytes | None]) -> str | None:
    """The digest of an image's configuration, which is the same in both of Docker's image stores.

    The classic store calls an image by it.
    The containerd store calls it by its manifest or index, and tells so by C(Descriptor).
    """
    descriptor = inspection.get("Descriptor")
    if not descriptor:
        return inspection.get("Id")
    digest = descriptor.get("digest")
    for _depth in range(3):
        blob = read_blob(digest) if digest else None
        if blob is None:
            return None
        try:
            document = json.loads(blob)
        except ValueError:
            return None
        if not isinstance(document, dict):
            return None
        if "config" in document:
            return t.cast("str | None", document["config"].get("digest"))
        wanted = (inspection.get("Os"), inspection.get("Architecture"))
        digest = next(
            (
                entry["digest"]
                for entry in document.get("manifests", [])
                if not entry.get("platform")
                or (entry["platform"].get("os"), entry["platform"].get("architecture")) == wanted
            ),
            None,
        )
    return None


def read_content(digest: str, roots: t.Iterable[str] = CONTENT_ROOTS) -> bytes | None:
    """A blob of containerd's content store, read as a file."""
    name = digest.partition(":")[2]
    if not re.fullmatch(r"[0-9a-f]{64}", name):
        return None
    for root in roots:
        try:
            with open(os.path.join(root, name), "rb") as handle:
                return handle.read(1 << 22)
        except OSError:
            continue
    return None
