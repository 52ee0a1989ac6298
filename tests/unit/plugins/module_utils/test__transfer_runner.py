# Copyright (c) 2026, The sparkgate.blackwell authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

import asyncio
import hashlib
import json
import os
import pathlib
import shutil
import typing as t

import pytest
from ansible_collections.sparkgate.blackwell.plugins.module_utils import _transfer_runner as runner

SOURCE = {
    "address": "192.0.2.10",
    "port": 2222,
    "user": "spark",
    "identity_file": "/state/secrets/key",
    "known_hosts_file": "/state/secrets/known_hosts",
}
SHA = "0" * 64
OTHER = "1" * 64


def entry(path: str, size: int = 10, sha256: str = SHA) -> dict[str, t.Any]:
    return {"path": path, "size": size, "sha256": sha256}


def stat(size: int = 10, mtime_ns: int = 1, inode: int = 2) -> dict[str, t.Any]:
    return {"size": size, "mtime_ns": mtime_ns, "inode": inode}


PLAN_CASES = [
    pytest.param(None, None, "missing", id="not-there"),
    pytest.param(stat(size=9), None, "missing", id="cut"),
    pytest.param(stat(), None, "unverified", id="never-hashed"),
    pytest.param(stat(), {**stat(), "sha256": SHA}, "good", id="known-and-right"),
    pytest.param(stat(), {**stat(), "sha256": OTHER}, "missing", id="known-and-wrong"),
    pytest.param(stat(mtime_ns=5), {**stat(), "sha256": SHA}, "unverified", id="other-mtime"),
    pytest.param(stat(inode=5), {**stat(), "sha256": SHA}, "unverified", id="other-inode"),
]


@pytest.mark.parametrize(("seen", "record", "where"), PLAN_CASES)
def test_plan_files(seen: dict[str, t.Any] | None, record: dict[str, t.Any] | None, where: str) -> None:
    plan = runner.plan_files([entry("a")], {"a": seen}, {"a": record} if record else {})
    assert {
        "good": list(plan.good),
        "unverified": [e["path"] for e in plan.unverified],
        "missing": [e["path"] for e in plan.missing],
    } == {"good": [], "unverified": [], "missing": [], where: ["a"]}
    assert plan.nothing_to_do == (where == "good")
    assert plan.missing_bytes == (10 if where == "missing" else 0)


MANIFEST_FAILURES = [
    ({}, "not one of schema 1"),
    ({"schema": 2, "files": [entry("a")]}, "not one of schema 1"),
    ({"schema": 1, "files": []}, "at least one file"),
    ({"schema": 1, "files": [entry("../a")]}, "'../a', which is not a plain relative path"),
    ({"schema": 1, "files": [entry("/etc/passwd")]}, "'/etc/passwd', which is not a plain relative path"),
    ({"schema": 1, "files": [entry("a/../b")]}, "not a plain relative path"),
    ({"schema": 1, "files": [entry(f"{runner.STAGING}/b")]}, "not a plain relative path"),
    ({"schema": 1, "files": [entry("a\nb")]}, "not a plain relative path"),
    ({"schema": 1, "files": [entry("a", sha256="x")]}, "no size and sha256 for a"),
    ({"schema": 1, "files": [entry("a", size=-1)]}, "no size and sha256 for a"),
]


@pytest.mark.parametrize(("manifest", "message"), MANIFEST_FAILURES)
def test_check_manifest_refuses(manifest: dict[str, t.Any], message: str) -> None:
    with pytest.raises(runner.TransferError, match=message):
        runner.check_manifest(manifest)


def test_check_manifest_accepts_names_with_spaces_and_directories() -> None:
    files = [entry("config.json"), entry("sub/with space.txt", size=0)]
    assert runner.check_manifest({"schema": 1, "files": files}) == files


def test_rsync_argv_uses_the_pinned_key_and_nothing_else() -> None:
    argv = runner.rsync_argv(SOURCE, "/models/m/.in", ["--times"], bandwidth=10_240)
    assert argv[:2] == ["rsync", "--times"]
    assert argv[-2:] == ["spark@192.0.2.10:.", "/models/m/.in/"]
    assert "--bwlimit=10" in argv
    ssh = argv[argv.index("-e") + 1]
    assert ssh.startswith("ssh -F /dev/null -T -p 2222 -i /state/secrets/key ")
    for option in (
        "BatchMode=yes",
        "IdentitiesOnly=yes",
        "StrictHostKeyChecking=yes",
        "UserKnownHostsFile=/state/secrets/known_hosts",
        "GlobalKnownHostsFile=/dev/null",
    ):
        assert f"-o {option}" in ssh


def test_rsync_argv_brackets_ipv6() -> None:
    assert "root@[2001:db8::1]:." in runner.rsync_argv({**SOURCE, "address": "2001:db8::1", "user": "root"}, "/d", [])


RATE_CASES: list[tuple[list[tuple[float, int]], float]] = [
    ([], 0.0),
    ([(1.0, 100)], 0.0),
    ([(1.0, 100), (1.0, 200)], 0.0),
    ([(1.0, 100), (3.0, 300)], 100.0),
    ([(1.0, 300), (3.0, 100)], 0.0),
]


@pytest.mark.parametrize(("samples", "expected"), RATE_CASES)
def test_rate(samples: list[tuple[float, int]], expected: float) -> None:
    assert runner.rate(samples) == expected


STAGED_CASES: list[tuple[list[tuple[str, int]], int]] = [
    ([], 0),
    ([("a", 100)], 100),
    ([(".a.Xy1234", 40)], 40),
    ([(f"{runner.PARTIAL}/a", 60)], 60),
    # A resumed file grows beside the part that it resumes from.
    ([(f"{runner.PARTIAL}/a", 60), (".a.Xy1234", 40)], 60),
    ([(f"sub/{runner.PARTIAL}/b", 60), ("sub/.b.Xy1234", 70)], 70),
    ([("a", 500)], 100),
    ([("unknown", 500), (".unknown.Xy1234", 5)], 0),
]


@pytest.mark.parametrize(("seen", "expected"), STAGED_CASES)
def test_staged_bytes(seen: list[tuple[str, int]], expected: int) -> None:
    assert runner.staged_bytes([entry("a", 100), entry("sub/b", 100)], seen) == expected


PROBLEM_CASES = [
    (11, "rsync: write failed: No space left on device (28)", False, "is full. What is complete is kept."),
    (255, "Host key verification failed.", False, "is not the one that was pinned"),
    (255, "spark@192.0.2.10: Permission denied (publickey).", False, "refused the transfer's key"),
    (255, "ssh: connect to host 192.0.2.10 port 2222: No route to host", True, "cannot reach the head's ssh server"),
    (30, "rsync error: timeout in data send/receive (code 30)", True, "ended with code 30"),
    (12, "rsync: connection unexpectedly closed", True, "ended with code 12"),
    (23, "rsync: link_stat failed: No such file or directory (2)", False, "ended with code 23"),
    (0, "", False, "ended with code 0"),
]


@pytest.mark.parametrize(("code", "stderr", "retry", "message"), PROBLEM_CASES)
def test_rsync_problem(code: int, stderr: str, retry: bool, message: str) -> None:
    text = runner.rsync_problem(code, stderr, SOURCE)
    assert message in text
    assert "Seen: " in text
    assert "192.0.2.10 port 2222" in text or "full" in text
    assert runner.worth_a_retry(code, stderr) is retry


def test_disk_problem() -> None:
    gib = 1024**3
    assert runner.disk_problem("/models", 3 * gib, 2 * gib, "the copy") is None
    problem = runner.disk_problem("/models", 2 * gib, 2 * gib, "the copy of the weights")
    assert problem is not None
    assert "2.0 GiB free at /models but the copy of the weights needs 2.2 GiB" in problem


def test_adopt_leftovers(tmp_path: pathlib.Path) -> None:
    (tmp_path / "sub" / runner.PARTIAL).mkdir(parents=True)
    (tmp_path / ".a.Xy1234").write_text("12345")
    (tmp_path / "sub" / ".b.Xy1234").write_text("1")
    (tmp_path / "sub" / runner.PARTIAL / "b").write_text("123")
    (tmp_path / "complete").write_text("1")
    runner.adopt_leftovers(str(tmp_path))
    assert sorted(runner.walk_sizes(str(tmp_path))) == [
        (f"{runner.PARTIAL}/a", 5),
        ("complete", 1),
        (f"sub/{runner.PARTIAL}/b", 3),
    ]


# ---- the program, with a copy in the place of rsync


class Lab:
    """A source, a destination, and a `run` that copies as rsync would."""

    def __init__(self, root: pathlib.Path, monkeypatch: pytest.MonkeyPatch) -> None:
        self.source = root / "source"
        self.destination = root / "models" / "m"
        (self.source / "sub").mkdir(parents=True)
        (self.source / "config.json").write_text("{}")
        (self.source / "sub" / "shard").write_bytes(b"x" * 1000)
        self.calls: list[list[str]] = []
        self.corrupt: list[str] = []
        self.codes: list[int] = []
        self.job: dict[str, t.Any] = {
            "kind": "weights",
            "source": SOURCE,
            "bandwidth": None,
            "progress": str(root / "run" / "weights.json"),
            "manifest": {"schema": 1, "model": "m", "revision": None, "files": self.manifest_files()},
            "destination": str(self.destination),
            "record": str(root / "manifests" / "m.json"),
            "hash_cache": str(root / "manifests" / "m.hashes.json"),
        }
        monkeypatch.setattr(runner, "run", self.rsync)
        monkeypatch.setattr(runner, "RETRY_DELAY_S", 0)
        monkeypatch.setattr(runner, "free_bytes", lambda path: 1 << 40)

    def manifest_files(self) -> list[dict[str, t.Any]]:
        return [
            entry(name, len(data), hashlib.sha256(data).hexdigest())
            for name in ("config.json", "sub/shard")
            for data in [(self.source / name).read_bytes()]
        ]

    async def rsync(self, argv: t.Sequence[str], stdin: bytes = b"") -> tuple[int, str, str]:
        names = [name for name in os.fsdecode(stdin).split("\0") if name]
        self.calls.append(names)
        if self.codes:
            return self.codes.pop(0), "", "rsync: connection unexpectedly closed"
        for name in names:
            target = pathlib.Path(argv[-1]) / name
            if not (self.source / name).is_file():
                continue
            target.parent.mkdir(parents=True, exist_ok=True)
            data = (self.source / name).read_bytes()
            if name in self.corrupt:
                self.corrupt.remove(name)
                data = b"?" + data[1:]
            target.write_bytes(data)
        return 0, "", ""

    def run(self) -> dict[str, t.Any]:
        self.calls.clear()
        code = asyncio.run(runner.work(self.job))
        progress = json.loads(pathlib.Path(self.job["progress"]).read_text())
        assert isinstance(progress, dict)
        assert (code == 0) == progress["finished"]
        return progress


@pytest.fixture
def lab(tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch) -> Lab:
    return Lab(tmp_path, monkeypatch)


def test_weights_are_copied_recorded_and_then_left_alone(lab: Lab) -> None:
    progress = lab.run()
    assert (progress["phase"], progress["bytes_done"], progress["bytes_total"]) == ("done", 1002, 1002)
    assert sorted(runner.walk_sizes(str(lab.destination))) == [("config.json", 2), ("sub/shard", 1000)]
    assert json.loads(pathlib.Path(lab.job["record"]).read_text()) == lab.job["manifest"]
    assert runner.survey(lab.job).nothing_to_do
    lab.run()
    assert lab.calls == []


def test_only_the_file_that_was_damaged_moves(lab: Lab) -> None:
    lab.run()
    (lab.destination / "sub" / "shard").write_bytes(b"y" * 1000)
    assert lab.run()["error"] is None
    assert lab.calls == [["sub/shard"]]
    assert (lab.destination / "sub" / "shard").read_bytes() == b"x" * 1000


def test_what_arrives_damaged_is_fetched_a_second_time(lab: Lab) -> None:
    lab.corrupt = ["sub/shard"]
    assert lab.run()["error"] is None
    assert lab.calls == [["config.json", "sub/shard"], ["sub/shard"]]


def test_what_stays_damaged_is_named_and_never_gets_its_name(lab: Lab) -> None:
    lab.corrupt = ["sub/shard"] * 2
    error = lab.run()["error"]
    assert "The sha256 of sub/shard differs from the manifest" in error
    assert not (lab.destination / "sub" / "shard").exists()
    assert (lab.destination / "config.json").exists()
    assert not pathlib.Path(lab.job["record"]).exists()


def test_what_the_head_lacks_is_named(lab: Lab) -> None:
    (lab.source / "config.json").unlink()
    assert "The head did not send config.json" in lab.run()["error"]


def test_a_lost_link_is_tried_again(lab: Lab) -> None:
    lab.codes = [12, 255]
    assert lab.run()["error"] is None
    assert len(lab.calls) == 3


def test_a_link_that_stays_lost_is_an_error(lab: Lab) -> None:
    lab.codes = [12] * 50
    assert "ended with code 12" in lab.run()["error"]
    assert len(lab.calls) == runner.RETRIES


def test_what_an_earlier_run_has_brought_is_not_fetched_again(lab: Lab) -> None:
    staged = lab.destination / runner.STAGING / "sub" / "shard"
    staged.parent.mkdir(parents=True)
    shutil.copy(lab.source / "sub" / "shard", staged)
    assert lab.run()["error"] is None
    assert lab.calls == [["config.json"]]


def test_a_full_disk_is_found_before_the_first_byte(lab: Lab, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(runner, "free_bytes", lambda path: 1000)
    assert "Free some space" in lab.run()["error"]
    assert lab.calls == []


def test_the_record_of_another_manifest_does_not_survive_a_failure(lab: Lab) -> None:
    record = pathlib.Path(lab.job["record"])
    record.parent.mkdir(parents=True)
    record.write_text("{}")
    lab.corrupt = ["sub/shard"] * 2
    lab.run()
    assert not record.exists()


class Engine:
    """A container engine and a head that has exported an image."""

    def __init__(self, root: pathlib.Path, monkeypatch: pytest.MonkeyPatch) -> None:
        self.images: dict[str, str] = {}
        self.loads = "sha256:aa"
        self.ready: list[dict[str, t.Any] | int] = []
        self.local: list[str] = []
        self.wants_all = False
        self.calls: list[str] = []
        self.spool = root / "spool" / "image"
        self.job: dict[str, t.Any] = {
            "kind": "image",
            "source": SOURCE,
            "bandwidth": None,
            "progress": str(root / "image.json"),
            "image": {"id": "sha256:aa", "name": "sparkgate/m:1", "size": 4},
            "spool": str(self.spool),
            "export_timeout": 1,
        }
        monkeypatch.setattr(runner, "run", self.run_command)
        monkeypatch.setattr(runner, "pipe", self.pipe)
        monkeypatch.setattr(runner, "free_bytes", lambda path: 1 << 40)
        monkeypatch.setattr(runner, "POLL_S", 0.01)
        monkeypatch.setattr(runner, "RETRY_DELAY_S", 0)

    async def run_command(self, argv: t.Sequence[str], stdin: bytes = b"") -> tuple[int, str, str]:
        if argv[:3] == ["docker", "image", "ls"]:
            return 0, "\n".join(self.images.values()), ""
        if argv[:3] == ["docker", "image", "inspect"] and argv[4] == "{{json .RootFS.Layers}}":
            return 0, json.dumps(self.local), ""
        if argv[:3] == ["docker", "image", "inspect"]:
            found = self.images.get(argv[-1]) or (argv[-1] if argv[-1] in self.images.values() else None)
            return (0, f"{found}\n", "") if found else (1, "", "No such image")
        if argv[:3] == ["docker", "image", "tag"]:
            self.images[argv[4]] = argv[3]
            return 0, "", ""
        assert argv[0] == "rsync"
        if "--delete" in argv:
            excluded = [word for word in argv if word.startswith("--exclude=")]
            self.calls.append("copy" + "".join(excluded))
            (self.spool / "layer.tar").write_text("data")
            return 0, "", ""
        ready = self.ready.pop(0) if len(self.ready) > 1 else self.ready[0]
        if isinstance(ready, int):
            return ready, "", "Permission denied (publickey)." if ready == 255 else "rsync: change_dir failed"
        (self.spool / runner.READY).write_text(json.dumps(ready))
        return 0, "", ""

    async def pipe(self, first: t.Sequence[str], second: t.Sequence[str]) -> None:
        if first[:2] == ["docker", "save"]:
            (pathlib.Path(second[3]) / "layer.tar").write_text("data")
        else:
            self.calls.append("load")
            if self.wants_all and "--exclude" in self.calls[-2]:
                raise runner.TransferError("no such layer")
            self.images["loaded:1"] = self.loads

    def run(self) -> dict[str, t.Any]:
        asyncio.run(runner.work(self.job))
        progress = json.loads(pathlib.Path(self.job["progress"]).read_text())
        assert isinstance(progress, dict)
        return progress


@pytest.fixture
def engine(tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch) -> Engine:
    return Engine(tmp_path, monkeypatch)


LAYERS = [{"diff_id": f"sha256:{n}", "path": f"{n}/layer.tar", "bytes": 10 * n} for n in (1, 2, 3)]
READY_DOCUMENT = {"id": "sha256:aa", "bytes": 4, "files": 1, "layers": []}


def test_image_waits_for_the_export_and_is_loaded(engine: Engine) -> None:
    # No directory yet, then the export of an older image, then ours.
    engine.ready = [23, {"id": "sha256:old", "bytes": 1, "files": 1}, READY_DOCUMENT]
    progress = engine.run()
    assert progress["error"] is None
    assert progress["finished"]
    assert engine.calls == ["copy", "load"]
    assert engine.images["sparkgate/m:1"] == "sha256:aa"
    assert not engine.spool.exists()


@pytest.mark.parametrize(
    ("wants_all", "calls"),
    [
        (False, ["copy--exclude=/1/layer.tar", "load"]),
        (True, ["copy--exclude=/1/layer.tar", "load", "copy", "load"]),
    ],
)
def test_layers_that_the_engine_has_are_not_copied(engine: Engine, wants_all: bool, calls: list[str]) -> None:
    engine.ready = [{**READY_DOCUMENT, "layers": LAYERS, "bytes": 60}]
    engine.images["base:1"] = "sha256:base"
    engine.local = ["sha256:1"]
    engine.wants_all = wants_all
    progress = engine.run()
    assert (progress["error"], progress["finished"]) == (None, True)
    assert engine.calls == calls
    assert progress["bytes_total"] == (60 if wants_all else 50)


def test_image_that_is_there_only_gets_its_name(engine: Engine) -> None:
    engine.images["other:1"] = "sha256:aa"
    assert engine.run()["finished"]
    assert engine.calls == []
    assert engine.images["sparkgate/m:1"] == "sha256:aa"


IMAGE_FAILURES: list[tuple[list[dict[str, t.Any] | int], str, str]] = [
    ([{"id": "sha256:aa", "error": "the disk is full"}], "sha256:aa", "could not export the image: the disk is full"),
    ([255], "sha256:aa", "refused the transfer's key"),
    ([12], "sha256:aa", "has not exported sparkgate/m:1"),
    ([READY_DOCUMENT], "sha256:bb", "is absent on .* and sha256:aa on the head"),
]


@pytest.mark.parametrize(("ready", "loads", "message"), IMAGE_FAILURES)
def test_image_failures(engine: Engine, ready: list[dict[str, t.Any] | int], loads: str, message: str) -> None:
    engine.ready, engine.loads = ready, loads
    progress = engine.run()
    assert not progress["finished"]
    with pytest.raises(runner.TransferError, match=message):
        raise runner.TransferError(progress["error"])


def test_export_says_when_it_is_ready(engine: Engine) -> None:
    engine.job["kind"] = "export"
    engine.spool.mkdir(parents=True)
    (engine.spool / "old").write_text("old")
    assert engine.run()["finished"]
    assert json.loads((engine.spool / runner.READY).read_text()) == READY_DOCUMENT
    assert sorted(path.name for path in engine.spool.iterdir()) == ["layer.tar", runner.READY]


def test_export_tells_the_workers_why_it_failed(engine: Engine, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(runner, "free_bytes", lambda path: 1)
    engine.job["kind"] = "export"
    assert "the export of sparkgate/m:1 needs" in engine.run()["error"]
    assert "Free some space" in json.loads((engine.spool / runner.READY).read_text())["error"]


def test_pipe_names_the_command_that_failed() -> None:
    with pytest.raises(runner.TransferError, match="sh -c .* ended with code 3. Seen: broken"):
        asyncio.run(runner.pipe(["echo", "x"], ["sh", "-c", "cat; echo broken >&2; exit 3"]))
    with pytest.raises(runner.TransferError, match="false on .* ended with code 1"):
        asyncio.run(runner.pipe(["false"], ["cat"]))
    asyncio.run(runner.pipe(["echo", "x"], ["grep", "-q", "x"]))


def test_image_layers() -> None:
    manifest = [{"Config": "c.json", "Layers": ["1/layer.tar", "2/layer.tar", "3/layer.tar"]}]
    config = {"rootfs": {"diff_ids": ["sha256:1", "sha256:2", "sha256:3"]}}
    sizes = {"1/layer.tar": 10, "2/layer.tar": 20, "3/layer.tar": 30}
    assert runner.image_layers(manifest, config, sizes) == LAYERS


@pytest.mark.parametrize(
    ("local", "expected"),
    [
        ([], []),
        ([["sha256:9"]], []),
        ([["sha256:1"]], ["1/layer.tar"]),
        ([["sha256:9"], ["sha256:1", "sha256:2", "sha256:7"]], ["1/layer.tar", "2/layer.tar"]),
        ([["sha256:1", "sha256:2", "sha256:3"]], ["1/layer.tar", "2/layer.tar", "3/layer.tar"]),
        # The same content on other layers is another layer to the engine.
        ([["sha256:2", "sha256:3"]], []),
    ],
)
def test_known_layers(local: list[list[str]], expected: list[str]) -> None:
    assert [layer["path"] for layer in runner.known_layers(LAYERS, local)] == expected


def test_a_file_that_a_needed_layer_shares_is_fetched() -> None:
    layers = [LAYERS[0], {**LAYERS[1], "path": LAYERS[0]["path"]}]
    assert runner.known_layers(layers, [["sha256:1"]]) == []


@pytest.mark.parametrize(
    ("text", "number"), [("0B", 0), ("812B", 812), ("45.6kB", 45600), ("1.5MB", 1500000), ("2.25GB", 2250000000)]
)
def test_decimal_bytes(text: str, number: int) -> None:
    assert runner.decimal_bytes(text) == number


LAYER_STATES = [
    ([], {"bytes_done": 0, "bytes_total": 0, "detail": None}),
    (["a1b2c3d4e5f6: Pulling fs layer"], {"bytes_done": 0, "bytes_total": 0, "detail": "0 of 1 layers unpacked"}),
    (
        ["a1b2c3d4e5f6: Already exists", "b1b2c3d4e5f6: Downloading [=====>      ]  12.5MB/45MB"],
        {"bytes_done": 12500000, "bytes_total": 45000000, "detail": "1 of 2 layers unpacked"},
    ),
    # One layer has not begun: the sum is not known yet.
    (
        ["a1b2c3d4e5f6: Waiting", "b1b2c3d4e5f6: Downloading [=====>      ]  12.5MB/45MB"],
        {"bytes_done": 12500000, "bytes_total": 0, "detail": "0 of 2 layers unpacked"},
    ),
    (
        [
            "b1b2c3d4e5f6: Downloading [=====>      ]  12.5MB/45MB",
            "b1b2c3d4e5f6: Download complete",
            "b1b2c3d4e5f6: Extracting [=>          ]  1MB/45MB",
        ],
        {"bytes_done": 45000000, "bytes_total": 45000000, "detail": "0 of 1 layers unpacked"},
    ),
    (
        ["b1b2c3d4e5f6: Downloading [=====>      ]  12.5MB/45MB", "b1b2c3d4e5f6: Pull complete", "Digest: sha256:00"],
        {"bytes_done": 45000000, "bytes_total": 45000000, "detail": "1 of 1 layers unpacked"},
    ),
]


@pytest.mark.parametrize(("lines", "state"), LAYER_STATES)
def test_layers_of_a_pull(lines: list[str], state: dict[str, t.Any]) -> None:
    layers = runner.Layers()
    for line in lines:
        layers.see(line)
    assert layers.state() == state


PULLED = "printf 'a1b2c3d4e5f6: Downloading [==>  ]  1MB/4MB\\r\\033[2Ka1b2c3d4e5f6: Pull complete\\n'; test -t 1"
MAKES = [
    ({"kind": "pull"}, PULLED, None),
    (
        {"kind": "pull"},
        "echo unauthorized: no such repository; exit 1",
        "cannot be pulled on .* Seen: unauthorized: no such",
    ),
    (
        {"kind": "build"},
        'test "$*" = "build --build-arg INDEX --network host --tag m:1 /recipe" && test "$INDEX" = secret',
        None,
    ),
    (
        {"kind": "build"},
        "echo Step 3; echo no such package; exit 1",
        "cannot be built on .* /recipe/Dockerfile .*\nStep 3\nno such package$",
    ),
]


@pytest.mark.parametrize(("changes", "script", "message"), MAKES)
def test_pull_and_build(
    tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch, changes: dict[str, t.Any], script: str, message: str | None
) -> None:
    """Docker is played by a shell script that looks at its arguments and its terminal."""
    docker = tmp_path / "docker"
    docker.write_text(f"#!/bin/sh\n{script}\n")
    docker.chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path), prepend=os.pathsep)
    job = {"image": "m:1", "path": "/recipe", "network": "host", "arguments": {"INDEX": "secret"}, **changes}
    code = asyncio.run(runner.work({**job, "progress": str(tmp_path / "progress.json")}))
    progress = json.loads((tmp_path / "progress.json").read_text())
    assert (code, progress["finished"]) == ((0, True) if message is None else (1, False)), progress["error"]
    if message:
        with pytest.raises(runner.TransferError, match=message):
            raise runner.TransferError(progress["error"])
    elif changes["kind"] == "pull":
        assert progress["bytes_total"] == 4000000
