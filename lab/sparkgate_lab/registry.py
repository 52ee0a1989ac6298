# Copyright (c) 2026, The sparkgate.blackwell authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A real image registry that holds the base image."""

from __future__ import annotations

import datetime
import hashlib
import json
import time
import typing as t

import docker
import requests
from docker.errors import NotFound
from docker.models.containers import Container

from . import images, keys, networks
from . import settings as s
from .progress import Progress

NAME = f"{s.PREFIX}-registry"
ADDRESS = 2
MANIFEST = "application/vnd.docker.distribution.manifest.v2+json"


class Registry:
    """The few calls of the registry protocol that a push needs."""

    def __init__(self, address: str) -> None:
        self.base = f"https://{address}:{s.REGISTRY_PORT}"
        self.http = requests.Session()
        self.http.trust_env = False
        self.http.verify = str(keys.CA)

    def ready(self) -> bool:
        try:
            return self.http.get(f"{self.base}/v2/", timeout=5).status_code == 200
        except requests.RequestException:
            return False

    def digest(self, repository: str, tag: str) -> str | None:
        answer = self.http.head(
            f"{self.base}/v2/{repository}/manifests/{tag}", headers={"Accept": MANIFEST}, timeout=30
        )
        return answer.headers.get("Docker-Content-Digest") if answer.status_code == 200 else None

    def blob(self, repository: str, data: t.Iterable[bytes]) -> dict[str, t.Any]:
        """Send chunks of bytes as one blob, whose digest is known only at its end."""
        total, size = hashlib.sha256(), 0

        def chunks() -> t.Iterator[bytes]:
            nonlocal size
            for chunk in data:
                total.update(chunk)
                size += len(chunk)
                yield chunk

        start = self.http.post(f"{self.base}/v2/{repository}/blobs/uploads/", timeout=30)
        start.raise_for_status()
        kind = {"Content-Type": "application/octet-stream"}
        sent = self.http.patch(start.headers["Location"], data=chunks(), headers=kind, timeout=900)
        sent.raise_for_status()
        digest = f"sha256:{total.hexdigest()}"
        self.http.put(sent.headers["Location"], params={"digest": digest}, timeout=300).raise_for_status()
        return {"size": size, "digest": digest}

    def push(
        self, container: Container, repository: str, tag: str, config: dict[str, t.Any], architecture: str
    ) -> None:
        """Stream a container's files into the registry as an image of one layer."""
        layer = self.blob(repository, container.export(chunk_size=2 << 20))
        now = datetime.datetime.now(datetime.UTC).isoformat().replace("+00:00", "Z")
        document = {
            "created": now,
            "architecture": architecture,
            "os": "linux",
            "config": config,
            "rootfs": {"type": "layers", "diff_ids": [layer["digest"]]},
            "history": [{"created": now, "created_by": "lab/up"}],
        }
        described = self.blob(repository, [json.dumps(document).encode()])
        manifest = {
            "schemaVersion": 2,
            "mediaType": MANIFEST,
            "config": {"mediaType": "application/vnd.docker.container.image.v1+json", **described},
            # not packed: that would take minutes to save space that nobody misses
            "layers": [{"mediaType": "application/vnd.docker.image.rootfs.diff.tar", **layer}],
        }
        answer = self.http.put(
            f"{self.base}/v2/{repository}/manifests/{tag}",
            data=json.dumps(manifest).encode(),
            headers={"Content-Type": MANIFEST},
            timeout=60,
        )
        if answer.status_code != 201:
            raise s.LabError(f"The lab's registry refused the base image: {answer.text}")


def find(client: docker.DockerClient) -> Container | None:
    try:
        return client.containers.get(NAME)
    except NotFound:
        return None


def ensure(client: docker.DockerClient, image: str, segment: networks.Segment, progress: Progress) -> Registry:
    address = segment.address(ADDRESS)
    tls = keys.registry_certificate(address)
    spec = s.digest(image, address, tls["crt"])
    container = find(client)
    if container is not None and container.labels.get(f"{s.LABEL}.spec") != spec:
        container.remove(force=True)
        container = None
    if container is None:
        created = client.api.create_container(
            image,
            name=NAME,
            hostname="registry",
            labels={**s.LABELS, f"{s.LABEL}.spec": spec},
            volumes=["/var/lib/registry"],
            host_config=client.api.create_host_config(
                binds=[f"{volume(client)}:/var/lib/registry"],
                network_mode=segment.network.name,
            ),
            networking_config=client.api.create_networking_config(
                {str(segment.network.name): client.api.create_endpoint_config(ipv4_address=address)}
            ),
        )
        container = client.containers.get(created["Id"])
        container.put_archive(
            "/", images.archive({"/tls/registry.crt": (0o644, tls["crt"]), "/tls/registry.key": (0o600, tls["key"])})
        )
        progress.changed(f"registry {s.REGISTRY_NAME}:{s.REGISTRY_PORT} ({address})")
    container.reload()
    if container.status != "running":
        container.start()
    registry = Registry(address)
    for _unused in range(60):
        if registry.ready():
            return registry
        time.sleep(0.5)
    raise s.LabError(f"The lab's registry does not answer at {registry.base}. `docker logs {NAME}` says why.")


def volume(client: docker.DockerClient) -> str:
    try:
        client.volumes.get(NAME)
    except NotFound:
        client.volumes.create(NAME, labels=s.LABELS)
    return NAME
