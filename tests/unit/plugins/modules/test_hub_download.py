# Copyright (c) 2026, The sparkgate.blackwell authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

import json
import typing as t
from pathlib import Path

import pytest
from ansible.module_utils import basic
from ansible.module_utils.testing import patch_module_args
from ansible_collections.sparkgate.blackwell.plugins.module_utils import _transfer
from ansible_collections.sparkgate.blackwell.plugins.modules import hub_download

COMMIT = "0f3c2b1a9e8d7c6b5a4f3e2d1c0b9a8f7e6d5c4b"


class Started:
    def __init__(self) -> None:
        self.jobs: list[dict[str, t.Any]] = []


@pytest.fixture
def started(monkeypatch: pytest.MonkeyPatch) -> Started:
    found = Started()
    monkeypatch.setattr(_transfer.Unit, "runs", lambda _self, _job: False)
    monkeypatch.setattr(_transfer.Unit, "start", lambda _self, _text, job, _state_dir: found.jobs.append(job))
    return found


def run(
    monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str], answer: str, **args: t.Any
) -> tuple[dict[str, t.Any], list[list[str]]]:
    asked: list[list[str]] = []

    def run_command(_self: t.Any, argv: list[str], **_kwargs: t.Any) -> tuple[int, str, str]:
        if argv[1:3] == ["image", "inspect"]:
            return (0, "sha256:1 1000", "") if argv[-1] == "serving:1" else (1, "", "Error: No such image")
        asked.append(argv)
        return 0, f"a banner of the image\n{answer}\n", ""

    monkeypatch.setattr(basic.AnsibleModule, "run_command", run_command)
    monkeypatch.setattr(basic.AnsibleModule, "get_bin_path", lambda _self, name, *_args, **_kwargs: f"/usr/bin/{name}")
    with patch_module_args({"model": "org/name", "image": "serving:1", **args}), pytest.raises(SystemExit):
        hub_download.main()
    result: dict[str, t.Any] = json.loads(capfd.readouterr().out)
    return result, asked


@pytest.mark.parametrize("check_mode", [False, True])
def test_the_resolved_commit_is_downloaded(
    monkeypatch: pytest.MonkeyPatch,
    capfd: pytest.CaptureFixture[str],
    tmp_path: Path,
    started: Started,
    check_mode: bool,
) -> None:
    token = str(tmp_path / "token")
    result, asked = run(
        monkeypatch,
        capfd,
        json.dumps({"revision": COMMIT, "bytes": 1000}),
        destination=str(tmp_path / "name"),
        token_file=token,
        endpoint="http://127.0.0.1:9",
        _ansible_check_mode=check_mode,
    )
    assert (result["changed"], result["revision"], result["bytes_total"]) == (True, COMMIT, 1000)
    assert asked[0][-2:] == ["org/name", "main"]
    assert f"{token}:/run/secrets/hub_token:ro" in asked[0]
    assert len(started.jobs) == (0 if check_mode else 1)
    for job in started.jobs:
        assert job["container"] in job["argv"]
        assert job["argv"][job["argv"].index("--pull") + 1] == "never"
        assert job["argv"][-7:] == ["hf", "download", "org/name", "--revision", COMMIT, "--local-dir", "/download"]
        assert "HF_ENDPOINT=http://127.0.0.1:9" in job["argv"]


@pytest.mark.parametrize(
    ("answer", "words"),
    [
        ({"error": "gated", "text": "403"}, ["org/name at main", "gated", "model_weights_token_file", "403"]),
        ({"error": "missing", "text": "404"}, ["no such model", "404"]),
        ({"error": "revision", "text": "404"}, ["not this revision", "lock file"]),
        ({"error": "unreachable", "text": "timed out"}, ["does not answer", "timed out"]),
        ({"revision": COMMIT, "bytes": 1 << 60}, ["free", "the download of org/name"]),
    ],
)
def test_each_way_to_fail_has_its_remedy(
    monkeypatch: pytest.MonkeyPatch,
    capfd: pytest.CaptureFixture[str],
    tmp_path: Path,
    started: Started,
    answer: dict[str, t.Any],
    words: list[str],
) -> None:
    result, _asked = run(monkeypatch, capfd, json.dumps(answer), destination=str(tmp_path / "name"))
    assert result["failed"] and not started.jobs
    assert all(word in result["msg"] for word in words), result["msg"]


def test_an_answer_that_is_none_is_shown(
    monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str], tmp_path: Path, started: Started
) -> None:
    result, _asked = run(monkeypatch, capfd, "no python here", destination=str(tmp_path / "name"))
    assert result["failed"] and "no python here" in result["msg"]


def test_without_the_image_check_mode_says_so_and_a_run_ends(
    monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str], tmp_path: Path, started: Started
) -> None:
    options = {"image": "serving:2", "destination": str(tmp_path / "name")}
    result, asked = run(monkeypatch, capfd, "", **options, _ansible_check_mode=True)
    assert (result["changed"], result["revision"], asked) == (True, None, [])
    result, asked = run(monkeypatch, capfd, "", **options)
    assert result["failed"] and "Run image.yml first" in result["msg"] and asked == []
