# Copyright (c) 2026, The sparkgate.blackwell authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

import json
import os
import stat
import typing as t
from pathlib import Path

import pytest
from ansible_collections.sparkgate.blackwell.plugins.modules.container_probe import main
from ansible_collections.sparkgate.blackwell.plugins.plugin_utils import _container_program
from ansible_collections.sparkgate.blackwell.plugins.plugin_utils._bundle import bundle

PROGRAM = bundle()
IMAGE = "sparkgate/tiny:0123456789ab"

# A docker that knows one image and runs the program here. It notes how it was called.
DOCKER = """#!/bin/bash
printf '%s\\n' "$*" >> "$CALLS/calls"
case "$1 $2" in
  "image inspect")
    [ "$3" = "sparkgate/tiny:0123456789ab" ] || { echo "Error: No such image: $3" >&2; exit 1; }
    echo '[{"Id": "sha256:1f0c", "Architecture": "arm64", "Os": "linux"}]';;
  "rm --force") ;;
  run\\ *)
    previous=
    for word in "$@"; do
      [ "$previous" = --cidfile ] && echo c0ffee > "$word"
      [ "$previous" = --env-file ] && cp -p "$word" "$CALLS/environment"
      previous=$word
    done
    echo "== a banner =="
    eval "$BEHAVIOUR"
    exec python3 -;;
esac
"""

RunModule = t.Callable[..., dict[str, t.Any]]


@pytest.fixture
def calls(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> t.Callable[[], list[str]]:
    docker = tmp_path / "bin" / "docker"
    docker.parent.mkdir()
    docker.write_text(DOCKER, encoding="utf-8")
    docker.chmod(0o755)
    monkeypatch.setenv("PATH", f"{docker.parent}:{os.environ['PATH']}")
    monkeypatch.setenv("CALLS", str(tmp_path))
    monkeypatch.setenv("BEHAVIOUR", "")
    return lambda: (
        (tmp_path / "calls").read_text(encoding="utf-8").splitlines() if (tmp_path / "calls").exists() else []
    )


def arguments(**changes: t.Any) -> dict[str, t.Any]:
    return {"image": IMAGE, "sections": ["python", "image"], "program": PROGRAM, **changes}


@pytest.mark.parametrize("check_mode", [False, True])
def test_document(calls: t.Callable[[], list[str]], run_module: RunModule, check_mode: bool) -> None:
    result = run_module(main, arguments(container_argv=["--network", "host"], labels={"a": "b"}), check_mode)
    assert result["changed"] is False
    assert result["document"]["image"] == {"cuda_version": False, "id": "sha256:1f0c", "architecture": "arm64"}
    assert result["document"]["entrypoint"] == "used"
    assert result["document"]["python"]["version"]
    run, removal = calls()[1:]
    assert run.startswith("run --network host --label a=b --env-file ")
    assert run.endswith(f"--rm --interactive --pull never {IMAGE} python3 -")
    assert removal == "rm --force c0ffee"


def test_environment_is_in_a_file_that_only_root_reads(
    calls: t.Callable[[], list[str]], run_module: RunModule, tmp_path: Path
) -> None:
    run_module(main, arguments(environment={"TOKEN": "s3cret", "N": 1}))
    copy = tmp_path / "environment"
    assert copy.read_text(encoding="utf-8") == "TOKEN=s3cret\nN=1\n"
    assert stat.S_IMODE(copy.stat().st_mode) == 0o600
    assert "s3cret" not in "\n".join(calls())
    used = next(line for line in calls() if line.startswith("run")).split("--env-file ")[1].split()[0]
    assert not os.path.exists(used)


def test_entrypoint_left_out(calls: t.Callable[[], list[str]], run_module: RunModule) -> None:
    result = run_module(main, arguments(entrypoint="bypassed"))
    assert result["document"]["entrypoint"] == "bypassed"
    assert calls()[1].endswith(f"--entrypoint python3 {IMAGE} -")


def test_second_container_without_the_entrypoint(calls: t.Callable[[], list[str]], run_module: RunModule) -> None:
    result = run_module(main, arguments(sections=["python", "gpu"], compare_entrypoint=True, name="probe"))
    first, second = (line for line in calls() if line.startswith("run"))
    assert first.endswith(f"{IMAGE} python3 -")
    assert " --name probe-bypassed " in second
    assert second.endswith(f"--entrypoint python3 {IMAGE} -")
    assert (result["document"]["entrypoint"], result["bypassed"]["entrypoint"]) == ("used", "bypassed")
    assert "python" not in result["bypassed"]
    assert result["bypassed"]["image"]["id"] == "sha256:1f0c"
    assert result["bypassed"]["kernel_launch"] == result["document"]["kernel_launch"]


def test_second_container_that_fails_loses_not_the_first(
    calls: t.Callable[[], list[str]], run_module: RunModule, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("BEHAVIOUR", '[[ "$*" != *--entrypoint* ]] || exit 127')
    result = run_module(main, arguments(compare_entrypoint=True))
    assert result["document"]["python"]["version"]
    assert result["bypassed"] is None
    assert [(e["source"], e["code"], "no python3" in e["name"]) for e in result["document"]["errors"]] == [
        ("bypassed", 127, True)
    ]


def test_image_that_is_not_there(calls: t.Callable[[], list[str]], run_module: RunModule) -> None:
    result = run_module(main, arguments(image="other:1"), check_mode=True)
    assert (result["document"], result["message"]) == (None, "The image other:1 is not on this node.")
    result = run_module(main, arguments(image="other:1"))
    assert result["failed"]
    assert result["msg"] == (
        "The image other:1 is not on this node. Bring it there first; image.yml does it for the serving image."
    )
    assert not any(line.startswith("run") for line in calls())


@pytest.mark.parametrize(
    ("behaviour", "words"),
    [
        ("echo 'docker: Error response from daemon: no such device.' >&2; exit 125", "no such device"),
        ("exit 127", "has no python3"),
        ("echo Killed >&2; exit 137", "was killed"),
        ("exit 124", "did not end within 600 s"),
        ("echo 'usage: serve MODEL' >&2; exit 2", "usage: serve MODEL. If the image's entrypoint takes no command"),
        ("exit 0", "printed no document"),
    ],
)
def test_container_that_fails(
    calls: t.Callable[[], list[str]],
    run_module: RunModule,
    monkeypatch: pytest.MonkeyPatch,
    behaviour: str,
    words: str,
) -> None:
    monkeypatch.setenv("BEHAVIOUR", behaviour)
    result = run_module(main, arguments())
    assert result["failed"]
    assert IMAGE in result["msg"]
    assert words in result["msg"]
    assert calls()[-1] == "rm --force c0ffee"


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"sections": ["engine"]}, "The section engine needs the option engine."),
        ({"sections": ["generate"], "engine_argv": ["x"]}, "needs the option engine_port"),
        ({"sections": ["oracle"], "prompt": "x"}, "needs the option model_path"),
        ({"environment": {"A": "two\nlines"}}, "The environment variable A cannot"),
        ({"environment": {"A": None}}, "The environment variable A cannot"),
        ({"program": None}, "action plugin"),
        ({"sections": ["nothing"]}, "must be one or more of"),
    ],
)
def test_arguments_that_cannot_be(
    calls: t.Callable[[], list[str]], run_module: RunModule, changes: dict[str, t.Any], words: str
) -> None:
    result = run_module(main, arguments(**changes))
    assert result["failed"]
    assert words in result["msg"]
    assert calls() == []


def test_sections_are_those_of_the_program() -> None:
    import yaml
    from ansible_collections.sparkgate.blackwell.plugins.modules import container_probe

    documented = yaml.safe_load(container_probe.DOCUMENTATION)["options"]["sections"]["choices"]
    assert documented == list(_container_program.SECTIONS)
    assert json.dumps(documented)
