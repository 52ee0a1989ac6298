# Copyright (c) 2026, The sparkgate.blackwell authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Keys that the lab makes for itself: ssh, and a certificate authority for the registry."""

from __future__ import annotations

import datetime
import ipaddress
import os
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec, ed25519
from cryptography.x509.oid import NameOID

from . import settings as s

KEYS = s.STATE / "keys"
SSH_KEY = KEYS / "id_ed25519"
KNOWN_HOSTS = KEYS / "known_hosts"
CA = KEYS / "ca.crt"


def write(path: Path, data: bytes, mode: int = 0o600) -> None:
    path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, mode)
    with os.fdopen(descriptor, "wb") as out:
        out.write(data)
    os.chown(path, *s.invoking_user())


def ssh_pair(path: Path) -> tuple[bytes, bytes]:
    """Private and public key, made when they are not there yet."""
    public = path.with_suffix(".pub")
    if not path.exists():
        key = ed25519.Ed25519PrivateKey.generate()
        write(
            public,
            key.public_key().public_bytes(serialization.Encoding.OpenSSH, serialization.PublicFormat.OpenSSH) + b"\n",
            0o644,
        )
        write(
            path,
            key.private_bytes(
                serialization.Encoding.PEM, serialization.PrivateFormat.OpenSSH, serialization.NoEncryption()
            ),
        )
    return path.read_bytes(), public.read_bytes()


def registry_certificate(address: str) -> dict[str, bytes]:
    """The CA, and a certificate for the registry's name and address."""
    paths = {name: KEYS / f"registry-{address}.{name}" for name in ("crt", "key")}
    if not (CA.exists() and all(path.exists() for path in paths.values())):
        now = datetime.datetime.now(datetime.UTC)

        def certificate(
            subject: str,
            issuer: str,
            public: ec.EllipticCurvePublicKey,
            signer: ec.EllipticCurvePrivateKey,
            authority: bool,
        ) -> bytes:
            builder = (
                x509.CertificateBuilder()
                .subject_name(x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, subject)]))
                .issuer_name(x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, issuer)]))
                .public_key(public)
                .serial_number(x509.random_serial_number())
                .not_valid_before(now - datetime.timedelta(days=1))
                .not_valid_after(now + datetime.timedelta(days=3650))
                .add_extension(x509.BasicConstraints(ca=authority, path_length=None), critical=True)
                .add_extension(x509.SubjectKeyIdentifier.from_public_key(public), critical=False)
                .add_extension(x509.AuthorityKeyIdentifier.from_issuer_public_key(signer.public_key()), critical=False)
            )
            if authority:
                uses = dict.fromkeys(
                    (
                        "digital_signature content_commitment key_encipherment data_encipherment key_agreement "
                        "encipher_only decipher_only"
                    ).split(),
                    False,
                )
                builder = builder.add_extension(x509.KeyUsage(key_cert_sign=True, crl_sign=True, **uses), critical=True)
            else:
                names = [x509.DNSName(s.REGISTRY_NAME), x509.IPAddress(ipaddress.ip_address(address))]
                builder = builder.add_extension(x509.SubjectAlternativeName(names), critical=False)
            return builder.sign(signer, hashes.SHA256()).public_bytes(serialization.Encoding.PEM)

        authority, key = ec.generate_private_key(ec.SECP256R1()), ec.generate_private_key(ec.SECP256R1())
        title = "sparkgate lab CA"
        write(CA, certificate(title, title, authority.public_key(), authority, True), 0o644)
        write(paths["crt"], certificate(s.REGISTRY_NAME, title, key.public_key(), authority, False), 0o644)
        write(
            paths["key"],
            key.private_bytes(
                serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
            ),
        )  # the authority's own key is dropped: it signs nothing else
    return {name: path.read_bytes() for name, path in paths.items()} | {"ca": CA.read_bytes()}
