# Copyright (c) 2026, The sparkgate.blackwell authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

import json
import os
import pathlib
import typing as t

import pytest
from ansible.module_utils.basic import AnsibleModule
from ansible_collections.sparkgate.blackwell.plugins.module_utils import _transfer, _transfer_runner
from ansible_collections.sparkgate.blackwell.plugins.modules import image_export, transfer, transfer_info

RunModule = t.Callable[..., dict[str, t.Any]]
IMAGE = "sparkgate/m:1"


class Node:
    """What run_command meets on a node: systemd and a container engine."""

    def __init__(self, root: pathlib.Path) -> None:
        self.root = root
        self.state = "inactive"
        self.images: dict[str, str] = {}
        self.commands: list[list[str]] = []

    def run_command(self, argv: list[str], **_kwargs: t.Any) -> tuple[int, str, str]:
        if argv[:2] == ["systemctl", "show"]:
            return 0, f"ActiveState={self.state}\n", ""
        if argv[:3] == ["/usr/bin/docker", "image", "inspect"]:
            found = self.images.get(argv[-1])
            return (0, f"{found} 4000\n", "") if found else (1, "[]", f"Error: No such image: {argv[-1]}")
        self.commands.append(argv)
        if argv[0] == "systemd-run":
            self.state = "active"
        elif argv[:2] == ["systemctl", "stop"]:
            self.state = "inactive"
        elif "journalctl" in argv:
            return 0, "one\ntwo\nthree\n", ""
        return 0, "", ""

    def ran(self, *start: str) -> bool:
        return any(command[: len(start)] == list(start) for command in self.commands)


@pytest.fixture
def node(tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch) -> Node:
    node = Node(tmp_path)
    monkeypatch.setattr(AnsibleModule, "run_command", lambda _self, argv, **kwargs: node.run_command(argv, **kwargs))
    monkeypatch.setattr(AnsibleModule, "get_bin_path", lambda _self, name, *_args, **_kwargs: f"/usr/bin/{name}")
    monkeypatch.setattr(_transfer, "RUN_DIR", str(tmp_path / "run"))
    return node


@pytest.fixture
def weights(node: Node) -> dict[str, t.Any]:
    return {
        "name": "weights",
        "kind": "weights",
        "source": {"address": "192.0.2.10"},
        "manifest": {
            "schema": 1,
            "model": "m",
            "revision": None,
            # The sha256 of "{}".
            "files": [
                {
                    "path": "config.json",
                    "size": 2,
                    "sha256": "44136fa355b3678a1146ad16f7e8649e94fb4fc21fe77e8310c060f61caaff8a",
                }
            ],
        },
        "destination": str(node.root / "models" / "m"),
        "state_dir": str(node.root / "state"),
    }


def put(node: Node, weights: dict[str, t.Any]) -> None:
    """Leave what a complete transfer leaves."""
    destination = pathlib.Path(weights["destination"])
    destination.mkdir(parents=True)
    (destination / "config.json").write_text("{}")
    manifests = node.root / "state" / "manifests"
    manifests.mkdir(parents=True)
    (manifests / "m.json").write_text(json.dumps(weights["manifest"]))
    path = str(destination / "config.json")
    record = _transfer_runner.hash_file(path)
    cache = {"schema": 1, "files": {os.path.realpath(path): list(record.values())}}
    (manifests / "m.hashes.json").write_text(json.dumps(cache))


def test_weights_check_then_start_then_again(run_module: RunModule, node: Node, weights: dict[str, t.Any]) -> None:
    would = run_module(transfer.main, weights, check_mode=True)
    assert would["changed"] and not would["running"]
    assert would["needed_files"] == [{"path": "config.json", "size": 2}]
    assert would["diff"]["before"]["missing"] == would["needed_files"]
    assert node.commands == []
    assert list(node.root.iterdir()) == []

    did = run_module(transfer.main, weights)
    assert did["running"] and node.ran("systemd-run", "--unit=sparkgate-transfer-weights.service")
    assert {key: value for key, value in did.items() if key not in ("running", "invocation")} == {
        key: value for key, value in would.items() if key not in ("running", "invocation")
    }
    assert did["actions"] == ["Start sparkgate-transfer-weights.service: fetch 1 file, 0.0 MiB"]
    job = json.loads((node.root / "run" / "weights.job.json").read_text())
    secrets = str(node.root / "state" / "secrets")
    assert job["source"] == {
        "address": "192.0.2.10",
        "port": 22,
        "user": "root",
        "identity_file": f"{secrets}/transfer_weights",
        "known_hosts_file": f"{secrets}/transfer_weights.known_hosts",
    }
    assert (node.root / "state" / "programs" / _transfer.PROGRAM).read_text() == _transfer.program_source()

    node.commands.clear()
    again = run_module(transfer.main, weights)
    assert not again["changed"] and again["running"] and node.commands == []
    assert not run_module(transfer.main, weights, check_mode=True)["changed"]


def test_another_manifest_takes_the_place_of_the_running_copy(
    run_module: RunModule, node: Node, weights: dict[str, t.Any]
) -> None:
    run_module(transfer.main, weights)
    weights["manifest"]["revision"] = "2"
    assert run_module(transfer.main, weights)["changed"]
    assert node.ran("systemctl", "stop", "sparkgate-transfer-weights.service")


def test_nothing_missing_forgets_an_old_failure(run_module: RunModule, node: Node, weights: dict[str, t.Any]) -> None:
    put(node, weights)
    old = node.root / "run" / "weights.json"
    old.parent.mkdir()
    old.write_text(json.dumps({"error": "The link was lost.", "finished": False}))
    result = run_module(transfer.main, weights)
    assert (result["changed"], result["running"], result["actions"]) == (False, False, [])
    assert not old.exists() and not node.ran("systemd-run")


def test_unhashed_weights_are_verified(run_module: RunModule, node: Node, weights: dict[str, t.Any]) -> None:
    put(node, weights)
    (node.root / "state" / "manifests" / "m.hashes.json").unlink()
    result = run_module(transfer.main, weights, check_mode=True)
    assert result["unverified_files"] == ["config.json"] and result["needed_files"] == []
    assert result["actions"][0].endswith("verify 1 file that are there")


def test_image_is_missing_until_the_id_is_equal(run_module: RunModule, node: Node) -> None:
    arguments = {
        "name": "image",
        "kind": "image",
        "source": {"address": "192.0.2.10"},
        "image": {"id": "sha256:aa", "name": IMAGE, "size": 3 * 1024**2},
        "state_dir": str(node.root / "state"),
    }
    node.images[IMAGE] = "sha256:old"
    result = run_module(transfer.main, arguments)
    assert result["changed"] and result["needed_bytes"] == 3 * 1024**2
    assert result["actions"] == [f"Start sparkgate-transfer-image.service: fetch {IMAGE}, 3.0 MiB"]
    node.state, node.images[IMAGE] = "inactive", "sha256:aa"
    assert not run_module(transfer.main, arguments)["changed"]


def test_a_small_disk_is_an_error_before_the_first_byte(
    run_module: RunModule, node: Node, weights: dict[str, t.Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(_transfer_runner, "free_bytes", lambda path: 1024)
    for check_mode in (True, False):
        result = run_module(transfer.main, weights, check_mode=check_mode)
        assert result["failed"] and "but the copy of the weights needs" in result["msg"]
    assert not node.ran("systemd-run")


FAILURES = [
    ({"name": "a/b"}, "The name 'a/b' cannot be a part of a unit's name"),
    ({"manifest": {"schema": 1, "files": [{"path": "../x"}]}}, "'../x', which is not a plain relative path"),
    ({"manifest": None}, "kind is weights but manifest is missing"),
    ({"kind": "image"}, "kind is image but image is missing"),
]


@pytest.mark.parametrize(("change", "message"), FAILURES)
def test_transfer_refuses(
    run_module: RunModule, node: Node, weights: dict[str, t.Any], change: dict[str, t.Any], message: str
) -> None:
    result = run_module(transfer.main, {**weights, **change})
    assert result["failed"] and message in result["msg"]


def test_cancel(run_module: RunModule, node: Node, weights: dict[str, t.Any]) -> None:
    run_module(transfer.main, weights)
    cancel = {"name": "weights", "kind": "weights", "state": "absent"}
    assert run_module(transfer.main, cancel, check_mode=True)["changed"]
    assert node.state == "active"
    assert run_module(transfer.main, cancel)["changed"]
    assert node.ran("systemctl", "stop", "sparkgate-transfer-weights.service")
    assert not (node.root / "run" / "weights.job.json").exists()
    assert not run_module(transfer.main, cancel)["changed"]
    assert not run_module(transfer.main, cancel, check_mode=True)["changed"]


def test_transfer_info_adds_the_journal_of_a_failed_unit(run_module: RunModule, node: Node) -> None:
    path = node.root / "run" / "weights.json"
    path.parent.mkdir()
    path.write_text(json.dumps({"phase": "copying", "error": "The disk is full.", "finished": False}))
    node.state = "failed"
    found = run_module(transfer_info.main, {"names": ["weights", "image"], "journal_lines": 2})["transfers"]
    assert [entry["state"] for entry in found] == ["failed", "failed"]
    assert found[0]["journal"] == ["two", "three"]
    node.state = "inactive"
    found = run_module(transfer_info.main, {"name": "image"})["transfers"]
    assert (found[0]["state"], found[0]["journal"]) == ("absent", [])


def test_export_check_start_again_ready_absent(run_module: RunModule, node: Node) -> None:
    spool = node.root / "spool" / "image"
    arguments = {"image": IMAGE, "spool": str(spool), "state_dir": str(node.root / "state")}
    assert run_module(image_export.main, arguments, check_mode=True)["id"] is None
    assert "Build it first" in run_module(image_export.main, arguments)["msg"]
    node.images[IMAGE] = "sha256:aa"
    assert run_module(image_export.main, arguments, check_mode=True)["changed"]
    assert not node.ran("systemd-run")
    assert run_module(image_export.main, arguments)["changed"]
    assert node.ran("systemd-run", "--unit=sparkgate-export-image.service")
    assert not run_module(image_export.main, arguments)["changed"]

    node.state = "inactive"
    spool.mkdir(parents=True)
    (spool / _transfer_runner.READY).write_text(json.dumps({"id": "sha256:aa", "bytes": 1, "files": 1}))
    result = run_module(image_export.main, arguments)
    assert result["ready"] and not result["changed"]
    # One that has failed is tried again.
    (spool / _transfer_runner.READY).write_text(json.dumps({"id": "sha256:aa", "error": "full"}))
    assert run_module(image_export.main, arguments, check_mode=True)["changed"]

    absent = {"spool": str(spool), "state": "absent"}
    assert run_module(image_export.main, absent, check_mode=True)["changed"] and spool.exists()
    assert run_module(image_export.main, absent)["actions"] == [f"Remove {spool}"]
    assert not spool.exists()
    assert not run_module(image_export.main, absent)["changed"]
