# Copyright (c) 2026, The sparkgate.blackwell authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

import json
import typing as t

import pytest
from ansible.module_utils import basic
from ansible.module_utils.testing import patch_module_args
from ansible_collections.sparkgate.blackwell.plugins.module_utils import _transfer
from ansible_collections.sparkgate.blackwell.plugins.modules import image_make


@pytest.fixture
def jobs(monkeypatch: pytest.MonkeyPatch) -> list[dict[str, t.Any]]:
    found: list[dict[str, t.Any]] = []
    monkeypatch.setattr(_transfer.Unit, "runs", lambda _self, job: job in found)
    monkeypatch.setattr(_transfer.Unit, "start", lambda _self, _text, job, _state_dir: found.append(job))
    monkeypatch.setattr(basic.AnsibleModule, "get_bin_path", lambda _self, name, *_args, **_kwargs: f"/usr/bin/{name}")
    return found


def run(
    monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str], answer: tuple[int, str, str], **args: t.Any
) -> dict[str, t.Any]:
    monkeypatch.setattr(basic.AnsibleModule, "run_command", lambda _self, _argv, **_kwargs: answer)
    with patch_module_args(args), pytest.raises(SystemExit):
        image_make.main()
    return t.cast("dict[str, t.Any]", json.loads(capfd.readouterr().out))


ABSENT = (1, "", "Error: No such image: engines:1")
BUILD = {
    "name": "engines:1",
    "source": "build",
    "path": "/srv/recipe",
    "arguments": {"PIP_INDEX_URL": "https://u:p@198.51.100.1/"},
}
PULL = {"name": "engines:1", "source": "pull"}


@pytest.mark.parametrize("arguments", [PULL, BUILD])
def test_what_is_there_is_left_alone(
    monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str], jobs: list[t.Any], arguments: dict[str, t.Any]
) -> None:
    result = run(monkeypatch, capfd, (0, "sha256:1 1000", ""), **arguments)
    assert (result["changed"], result["running"], jobs) == (False, False, [])


@pytest.mark.parametrize("arguments", [PULL, BUILD])
def test_what_lacks_is_started_once_and_never_in_check_mode(
    monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str], jobs: list[t.Any], arguments: dict[str, t.Any]
) -> None:
    result = run(monkeypatch, capfd, ABSENT, **arguments, _ansible_check_mode=True)
    assert (result["changed"], result["running"], jobs) == (True, False, [])
    for _time in range(2):
        result = run(monkeypatch, capfd, ABSENT, **arguments)
        assert (result["changed"], result["running"], len(jobs)) == (True, True, 1)
    assert result["unit"] == f"sparkgate-transfer-{arguments['source']}.service"
    assert jobs[0]["kind"] == arguments["source"] and jobs[0]["image"] == "engines:1"
    assert jobs[0].get("arguments") == arguments.get("arguments")


@pytest.mark.parametrize(
    ("answer", "arguments", "words"),
    [
        ((1, "", "Cannot connect to the Docker daemon"), PULL, ["does not answer", "Cannot connect"]),
        (ABSENT, {"name": "engines:1", "source": "build"}, ["path"]),
    ],
)
def test_an_error_says_what_is_wrong(
    monkeypatch: pytest.MonkeyPatch,
    capfd: pytest.CaptureFixture[str],
    jobs: list[t.Any],
    answer: tuple[int, str, str],
    arguments: dict[str, t.Any],
    words: list[str],
) -> None:
    result = run(monkeypatch, capfd, answer, **arguments)
    assert result["failed"] and not jobs
    assert all(word in result["msg"] for word in words), result["msg"]
