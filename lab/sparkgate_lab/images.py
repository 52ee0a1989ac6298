# Copyright (c) 2026, The sparkgate.blackwell authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Images, each one a script run on top of its parent and committed under a digest of all that went into it."""

from __future__ import annotations

import io
import os
import platform
import re
import shutil
import subprocess
import sys
import tarfile
import typing as t
from dataclasses import dataclass, field
from pathlib import Path

import docker
from docker.errors import ImageNotFound
from docker.models.containers import Container

from . import settings as s
from .progress import Progress

ROOTFS_PACKAGES = ("ca-certificates", "iproute2", "python3", "python3-venv")
CA_BUNDLE = "/etc/ssl/certs/ca-certificates.crt"


def archive(files: dict[str, tuple[int, bytes]]) -> bytes:
    """A tar of files, each a path with its mode and contents."""
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w") as tar:
        for path, (mode, data) in sorted(files.items()):
            info = tarfile.TarInfo(path.lstrip("/"))
            info.size, info.mode = len(data), mode
            if path.startswith(f"/home/{s.USER}/"):
                info.uid = info.gid = 1000
            tar.addfile(info, io.BytesIO(data))
    return buffer.getvalue()


def folder(path: Path, into: str) -> dict[str, tuple[int, bytes]]:
    """The files below a folder of the checkout, as archive() takes them."""
    return {
        f"{into}/{item.relative_to(path)}": (item.stat().st_mode & 0o777, item.read_bytes())
        for item in sorted(path.rglob("*"))
        if item.is_file() and "__pycache__" not in item.parts
    }


@dataclass(frozen=True)
class Layer:
    """One image on top of another."""

    name: str
    script: str
    files: dict[str, tuple[int, bytes]] = field(default_factory=dict)
    environment: dict[str, str] = field(default_factory=dict)  # while it is built; no part of the digest
    changes: tuple[str, ...] = ("CMD []",)

    def tag(self, parent: str) -> str:
        return f"{s.PREFIX}/{self.name}:{s.digest(parent, self.script, archive(self.files), *self.changes)}"


def find(client: docker.DockerClient, tag: str) -> str | None:
    try:
        return str(client.images.get(tag).id)
    except ImageNotFound:
        return None


def run(
    client: docker.DockerClient,
    image: str,
    script: str,
    log: Path,
    *,
    files: dict[str, tuple[int, bytes]] | None = None,
    binds: tuple[str, ...] = (),
    environment: dict[str, str] | None = None,
    then: t.Callable[[Container], None] = lambda container: None,
) -> None:
    """Run a bash script in a container, hand that over, and throw it away."""
    container = client.containers.create(
        image,
        entrypoint=["/bin/bash", "-euo", "pipefail", "-c"],
        command=[script],
        environment=environment or {},
        labels=s.LABELS,
        volumes=list(binds),
    )
    try:
        if files:
            container.put_archive("/", archive(files))
        container.start()
        with log.open("wb", buffering=0) as out:
            for chunk in container.logs(stream=True, follow=True):
                out.write(chunk)
        code = container.wait()["StatusCode"]
        if code != 0:
            tail = "\n".join(log.read_text(errors="replace").splitlines()[-15:])
            raise s.LabError(f"A build step ended with code {code}. The end of {log}:\n{tail}")
        then(container)
    finally:
        container.remove(force=True, v=True)


def last_line(log: Path, pattern: str = "") -> str:
    """The last line of a log, or the last that begins as told, for a person to see what goes on."""
    text = log.read_text(errors="replace") if log.exists() else ""
    lines = [line.strip() for line in re.split(r"[\r\n]+", text) if line.strip() and re.match(pattern, line)]
    return f"({lines[-1][:70]})" if lines else ""


def build(client: docker.DockerClient, parent: str, layer: Layer, progress: Progress) -> str:
    """The id of the layer's image, which is made if it is not there yet."""
    tag = layer.tag(parent)
    found = find(client, tag)
    if found:
        return found
    log = s.STATE / "logs" / f"{layer.name}.log"
    repository, _unused, version = tag.partition(":")
    made: list[str] = []

    def commit(container: Container) -> None:
        made.append(str(container.commit(repository=repository, tag=version, changes=list(layer.changes)).id))

    with progress.long(f"build image {tag}", lambda: last_line(log)):
        run(client, parent, layer.script, log, files=layer.files, environment=layer.environment, then=commit)
    return made[0]


# The machine's own configuration: nothing of it is written into the checkout.


def ca_bundle() -> bytes:
    for name in ("PIP_CERT", "SSL_CERT_FILE", "REQUESTS_CA_BUNDLE", "CURL_CA_BUNDLE"):
        path = Path(os.environ.get(name, "/nonexistent"))
        if path.is_file():
            return path.read_bytes()
    return Path(CA_BUNDLE).read_bytes()


def pip_settings() -> dict[str, str]:
    """What pip on this machine is set to, by option; the environment wins, as pip has it."""
    found: dict[str, str] = {}
    listing = subprocess.run(
        [sys.executable, "-m", "pip", "config", "list"],
        capture_output=True,
        text=True,
        check=False,
    ).stdout
    for line in listing.splitlines():
        match = re.match(r"(global|install|download|:env:)\.([a-z-]+)='(.*)'$", line.strip())
        if match and (match[1] == ":env:" or match[2] not in found):
            found[match[2]] = match[3].replace("\\n", " ")
    for name, value in os.environ.items():
        if name.startswith("PIP_"):
            found[name[4:].lower().replace("_", "-")] = value
    return found


def is_local(place: str) -> bool:
    return place.startswith(("/", "file:"))


def local_folder(place: str) -> str:
    return re.sub(r"^file:(//)?", "", place)


def pip_config(settings: dict[str, str]) -> bytes:
    """A pip.conf for inside an image: the same indexes as far as they are on the network."""
    lines = ["[global]", f"cert = {CA_BUNDLE}", "disable-pip-version-check = true", "root-user-action = ignore"]
    for key in ("index-url", "extra-index-url", "find-links", "trusted-host", "proxy", "default-timeout"):
        remote = [part for part in settings.get(key, "").split() if not is_local(part)]
        if remote:
            lines.append(f"{key.replace('default-', '')} = {' '.join(remote)}")
    return ("\n".join(lines) + "\n").encode()


def uv_arguments(settings: dict[str, str]) -> list[str]:
    """The same indexes for uv, which reads no pip.conf."""
    arguments = ["--index-strategy=unsafe-best-match"]
    for key in ("index-url", "extra-index-url", "find-links"):
        arguments += [f"--{key}={part}" for part in settings.get(key, "").split() if not is_local(part)]
    return arguments + [f"--allow-insecure-host={host}" for host in settings.get("trusted-host", "").split()]


def pip_folders(settings: dict[str, str]) -> list[str]:
    """Folders of this machine that pip takes wheels from."""
    return [
        local_folder(place)
        for place in settings.get("find-links", "").split()
        if is_local(place) and Path(local_folder(place)).is_dir()
    ]


def proxies() -> dict[str, str]:
    names = ("http_proxy", "https_proxy", "no_proxy", "HTTP_PROXY", "HTTPS_PROXY", "NO_PROXY")
    return {name: os.environ[name] for name in names if name in os.environ}


def debian_mirror() -> list[str]:
    """The mirror that this machine's apt uses, if it is a Debian of the suite; else debootstrap's own default."""
    listing = subprocess.run(
        ["apt-get", "indextargets", "--format", "$(REPO_URI) $(CODENAME) $(COMPONENT)", "Created-By: Packages"],
        capture_output=True,
        text=True,
        check=False,
    ).stdout
    for line in listing.splitlines():
        uri, codename, component = (line.split() + ["", "", ""])[:3]
        if (codename, component) == (s.SUITE, "main"):
            return [uri.rstrip("/")]
    return []


def rootfs(client: docker.DockerClient, progress: Progress) -> str:
    """Debian's packages as an image: needs neither an image registry nor an account."""
    tag = f"{s.PREFIX}/rootfs:{s.digest(s.SUITE, platform.machine(), *ROOTFS_PACKAGES, ca_bundle())}"
    found = find(client, tag)
    if found:
        return found
    if os.geteuid() != 0 or not shutil.which("debootstrap"):
        raise s.LabError(
            "The first lab/up needs root and debootstrap: run `scripts/setup --with-engine`, then lab/up as root."
        )
    target, log = s.STATE / "rootfs", s.STATE / "logs" / "rootfs.log"
    s.remove_tree(target)
    command = [
        "debootstrap",
        "--variant=minbase",
        f"--include={','.join(ROOTFS_PACKAGES)}",
        s.SUITE,
        str(target),
        *debian_mirror(),
    ]
    keyring = Path("/usr/share/keyrings/debian-archive-keyring.gpg")
    if keyring.exists():
        command.insert(1, f"--keyring={keyring}")

    with progress.long("unpack Debian into an image", lambda: last_line(log)), log.open("wb") as out:
        # in a mount namespace of its own: what debootstrap mounts goes when it ends, however it ends
        unshare = ["unshare", "--mount", "--propagation", "private"]
        done = subprocess.run([*unshare, *command], stdout=out, stderr=subprocess.STDOUT, check=False)
        if done.returncode != 0:
            raise s.LabError(f"debootstrap ended with code {done.returncode}: {last_line(log)} (all of it in {log})")
        (target / CA_BUNDLE.lstrip("/")).write_bytes(ca_bundle())
        for cache in (
            "var/cache/apt/archives",
            "var/lib/apt/lists",
            "usr/share/doc",
            "usr/share/man",
            "usr/share/locale",
        ):
            shutil.rmtree(target / cache)
            (target / cache).mkdir()
        (target / "var/cache/apt/archives/partial").mkdir()
        # no service may start while packages are installed in a build container
        (target / "usr/sbin/policy-rc.d").write_text("#!/bin/sh\nexit 101\n")
        (target / "usr/sbin/policy-rc.d").chmod(0o755)
        (target / "etc/dpkg/dpkg.cfg.d/lab").write_text(
            "path-exclude=/usr/share/doc/*\npath-exclude=/usr/share/man/*\npath-exclude=/usr/share/locale/*\n"
        )
        repository, _unused, version = tag.partition(":")
        tar = subprocess.Popen(["tar", "--numeric-owner", "-C", str(target), "-c", "."], stdout=subprocess.PIPE)
        assert tar.stdout is not None
        client.api.import_image_from_stream(
            tar.stdout, repository=repository, tag=version, changes=[f"LABEL {s.LABEL}={s.LABELS[s.LABEL]}"]
        )
        if tar.wait() != 0:
            raise s.LabError(f"tar of {target} failed: is the disk full?")
        s.remove_tree(target)
    image = find(client, tag)
    if image is None:
        raise s.LabError("The engine did not take the imported image. Its log says why.")
    return image


APT = "export DEBIAN_FRONTEND=noninteractive; apt-get -qq update; apt-get -qq install -y --no-install-recommends"
APT_END = "apt-get clean; rm -rf /var/lib/apt/lists/*"


def node_layer(nameservers: list[str]) -> Layer:
    dns = ", ".join(f'"{address}"' for address in nameservers)
    daemon = (
        f'{{"dns": [{dns}], "storage-driver": "overlay2"}}\n' if nameservers else '{"storage-driver": "overlay2"}\n'
    )
    script = f"""
{APT} systemd-sysv dbus openssh-server sudo procps rsync nftables iptables docker.io python3-requests kmod
{APT_END}
rm -f /usr/sbin/policy-rc.d /etc/ssh/ssh_host_* /etc/machine-id
: > /etc/machine-id
useradd --create-home --shell /bin/bash {s.USER}
echo '{s.USER} ALL=(ALL) NOPASSWD: ALL' > /etc/sudoers.d/{s.USER}
chmod 0440 /etc/sudoers.d/{s.USER}
systemctl enable ssh docker
systemctl mask getty.target console-getty.service systemd-udevd.service systemd-logind.service systemd-timesyncd.service \
  apt-daily.timer apt-daily-upgrade.timer dpkg-db-backup.timer e2scrub_all.timer fstrim.timer
"""
    return Layer(
        "node",
        script,
        files={
            "/etc/docker/daemon.json": (0o644, daemon.encode()),
            "/usr/local/sbin/lab-init": (0o755, (s.LAB / "image" / "lab-init").read_bytes()),
        },
        environment=proxies(),
        changes=('ENTRYPOINT ["/usr/local/sbin/lab-init"]', "CMD []"),
    )


def registry_layer() -> Layer:
    return Layer(
        "registry",
        f"{APT} docker-registry; {APT_END}",
        files={"/etc/docker/registry/lab.yml": (0o644, (s.LAB / "image" / "registry.yml").read_bytes())},
        environment=proxies(),
        changes=('ENTRYPOINT ["docker-registry", "serve", "/etc/docker/registry/lab.yml"]', "CMD []"),
    )
