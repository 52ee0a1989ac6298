# Copyright (c) 2026, The sparkgate.blackwell authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

import hashlib
import json
import typing as t

import pytest
from ansible_collections.sparkgate.blackwell.plugins.module_utils._fingerprint import config_digest, manifest_digest


def test_manifest_digest_is_that_of_the_sorted_lines() -> None:
    files = [{"path": "b", "size": 2, "sha256": "b" * 64}, {"path": "a", "size": 1, "sha256": "a" * 64}]
    lines = f"{'a' * 64}  1  a\n{'b' * 64}  2  b\n"
    assert manifest_digest(files) == hashlib.sha256(lines.encode()).hexdigest()


CONTENT = {
    "sha256:index": {
        "manifests": [
            {"digest": "sha256:amd", "platform": {"os": "linux", "architecture": "amd64"}},
            {"digest": "sha256:arm", "platform": {"os": "linux", "architecture": "arm64"}},
        ]
    },
    "sha256:arm": {"config": {"digest": "sha256:config"}},
    "sha256:loop": {"manifests": [{"digest": "sha256:loop"}]},
    "sha256:text": "not a document",
}
PLATFORM = {"Os": "linux", "Architecture": "arm64"}


@pytest.mark.parametrize(
    ("inspection", "expected"),
    [
        ({"Id": "sha256:config"}, "sha256:config"),
        ({"Id": "sha256:index", "Descriptor": {"digest": "sha256:index"}, **PLATFORM}, "sha256:config"),
        ({"Id": "sha256:arm", "Descriptor": {"digest": "sha256:arm"}, **PLATFORM}, "sha256:config"),
        ({"Id": "sha256:gone", "Descriptor": {"digest": "sha256:gone"}, **PLATFORM}, None),
        ({"Id": "sha256:loop", "Descriptor": {"digest": "sha256:loop"}, **PLATFORM}, None),
        ({"Id": "sha256:text", "Descriptor": {"digest": "sha256:text"}, **PLATFORM}, None),
        ({}, None),
    ],
)
def test_config_digest(inspection: dict[str, t.Any], expected: str | None) -> None:
    def read(digest: str) -> bytes | None:
        return json.dumps(CONTENT[digest]).encode() if digest in CONTENT else None

    assert config_digest(inspection, read) == expected
