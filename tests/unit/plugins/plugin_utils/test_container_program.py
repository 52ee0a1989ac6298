# Copyright (c) 2026, The sparkgate.blackwell authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

import json
import socket
import subprocess
import sys
import typing as t

import pytest
from ansible_collections.sparkgate.blackwell.plugins.module_utils import _container_probe
from ansible_collections.sparkgate.blackwell.plugins.plugin_utils import _container_program
from ansible_collections.sparkgate.blackwell.plugins.plugin_utils._bundle import bundle

PROGRAM = bundle()

# Sections that behave badly, put into the program's own table.
BAD = """
def _hang(request):
    time.sleep(60)
def _crash(request):
    os.kill(os.getpid(), signal.SIGSEGV)
def _noise(request):
    print("a library's banner")
    os.system("echo a child says something")
    return {"ok": True}
def _unprintable(request):
    return {1, 2}
def _exit(request):
    raise SystemExit(3)
def _orphan(request):
    if os.fork() == 0:
        time.sleep(60)
        os._exit(0)
    return True
for _name in ("hang", "crash", "noise", "unprintable", "exit", "orphan"):
    SECTIONS[_name] = (globals()["_" + _name], _name, False)
LIGHT_SECTION_SECONDS = 1.0
"""

SERVER = """
import http.server, json, sys, time
started = time.monotonic()
class Handler(http.server.BaseHTTPRequestHandler):
    def answer(self, code, body):
        self.send_response(code); self.end_headers(); self.wfile.write(json.dumps(body).encode())
    def do_GET(self):
        self.answer(200 if time.monotonic() - started > 1 else 503, {})
    def do_POST(self):
        asked = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        if sys.argv[2] == "broken":
            return self.answer(500, {"error": "no kernel image"})
        message = {"content": " " + asked["messages"][0]["content"], "reasoning_content": "hm"}
        choice = {"message": message, "finish_reason": "length"}
        self.answer(200, {"choices": [choice], "usage": {"completion_tokens": asked["max_tokens"]}})
    def log_message(self, *args):
        pass
http.server.HTTPServer(("127.0.0.1", int(sys.argv[1])), Handler).serve_forever()
"""


@pytest.fixture
def port() -> int:
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        return int(listener.getsockname()[1])


def run(sections: list[str], extra: str = "", **request: t.Any) -> dict[str, t.Any]:
    whole = {"sections": sections, "timeout": 40, "nonce": "n0nce", "health_path": "/health", **request}
    banner = "import sys\nsys.stdout.write('a banner without an end of line'); sys.stdout.flush()\n"
    text = _container_probe.program_text(PROGRAM + extra, whole).replace("\nrun(", f"\n{banner}run(")
    done = subprocess.run([sys.executable, "-"], input=text, capture_output=True, text=True, timeout=60, check=True)
    return _container_probe.parse_document(f"{done.stdout}\ntext after it", "n0nce")


def test_markers_agree() -> None:
    assert _container_probe.MARKER == _container_program.MARKER


def test_a_bad_section_loses_no_other() -> None:
    names = ["hang", "crash", "noise", "unprintable", "exit", "orphan"]
    document = run(["python", *names, "image"], BAD)
    assert document["python"]["version"] == ".".join(map(str, sys.version_info[:3]))
    assert document["image"] == {"cuda_version": False}
    assert document["noise"] == {"ok": True}
    assert document["orphan"] is True
    errors = {error["source"]: error for error in document["errors"]}
    assert set(errors) == {"hang", "crash", "unprintable", "exit"}
    assert errors["hang"]["name"] == "no answer within 1 s"
    assert (errors["crash"]["code"], "SIGSEGV" in errors["crash"]["name"]) == (11, True)
    assert "SystemExit: 3" in errors["exit"]["name"]
    assert [document[name] for name in ("hang", "crash", "unprintable", "exit")] == [None] * 4
    assert document["timings"]["hang"] < 5


def test_no_time_left() -> None:
    document = run(["hang", "python"], BAD, timeout=1)
    assert document["python"] is None
    assert document["errors"][-1] == {"source": "python", "code": None, "name": "no time was left for this section"}


def test_what_is_missing_is_false_and_what_fails_is_null() -> None:
    document = run(["torch", "transformers", "engine", "ray", "triton"], engine="an_engine_that_is_not_there")
    assert document["engine"] is False
    for name in ("ray", "triton", "transformers"):
        assert document[name] is False
    assert document["torch"] is None
    assert document["errors"] == [
        {"source": "torch", "code": None, "name": "ModuleNotFoundError: No module named 'torch'"}
    ]


def test_engine_is_read_from_the_distribution_that_owns_it() -> None:
    engine = run(["engine"], engine="pytest")["engine"]
    assert (engine["name"], engine["distribution"]) == ("pytest", "pytest")
    assert any(text.startswith("pluggy") for text in engine["requires_dist"])


def generate(port: int, argv: list[str], **request: t.Any) -> dict[str, t.Any]:
    asked = {"served_model_name": "tiny", "prompt": "hello", "max_tokens": 7, "engine_port": port, "engine_argv": argv}
    document = run(["generate"], **{**asked, **request})
    assert document["errors"] == []
    return t.cast("dict[str, t.Any]", document["generation"])


def test_generation(port: int) -> None:
    found = generate(port, [sys.executable, "-c", SERVER, str(port), "fine"])
    assert found["error"] is None
    assert (found["text"], found["completion_tokens"], found["finish_reason"]) == ("hm hello", 7, "length")
    assert found["ready_seconds"] >= 1
    with socket.socket() as listener:
        assert listener.connect_ex(("127.0.0.1", port)) != 0, "the server is stopped"


def test_another_server_is_not_taken_for_the_engine(port: int) -> None:
    with socket.create_server(("127.0.0.1", port)):
        found = generate(port, [sys.executable, "-c", "raise SystemExit('was started')"])
    assert found["error"] == f"port {port} is in use by another process, so no server was started"
    assert found["log"] == []


@pytest.mark.parametrize(
    ("argv", "timeout", "error", "log"),
    [
        (["-c", SERVER, "PORT", "broken"], 40, 'HTTP 500: {"error": "no kernel image"}', []),
        (
            ["-c", "print('\\n'.join(str(n) for n in range(100))); raise SystemExit('bad flag')"],
            40,
            "ended with code 1 before it was ready",
            [*(str(n) for n in range(61, 100)), "bad flag"],
        ),
        (["-c", "import time; print('loading', flush=True); time.sleep(60)"], 27, "was not ready after", ["loading"]),
    ],
)
def test_generation_that_fails(port: int, argv: list[str], timeout: int, error: str, log: list[str]) -> None:
    line = [sys.executable, *(str(port) if word == "PORT" else word for word in argv)]
    found = generate(port, line, timeout=timeout)
    assert error in found["error"]
    assert sorted(found["log"]) == sorted(log)
    assert found["text"] is None


@pytest.mark.parametrize(
    ("config", "names", "expected"),
    [
        ({"num_experts": 8}, _container_program.EXPERTS, 8),
        ({"text_config": {"num_experts": 256}}, _container_program.EXPERTS, 256),
        ({"num_local_experts": 8}, _container_program.EXPERTS, 8),
        ({"llm_config": {"n_routed_experts": 160}}, _container_program.EXPERTS, 160),
        ({"text_config": None}, _container_program.EXPERTS, None),
        ({"text_config": {"moe_intermediate_size": 1024}}, _container_program.EXPERT_SIZES, 1024),
        ({}, _container_program.EXPERT_SIZES, None),
    ],
)
def test_dimension(config: dict[str, t.Any], names: tuple[str, ...], expected: int | None) -> None:
    assert _container_program._dimension(config, names) == expected


def test_secrets_of_the_request_are_only_in_the_text() -> None:
    text = _container_probe.program_text("", {"prompt": "'\"\\\n{}", "nonce": "n"})
    asked: list[str] = []
    exec(text, {"json": json, "run": lambda request: asked.append(request["prompt"])})
    assert asked == ["'\"\\\n{}"]


def test_the_first_error_of_a_long_log_is_kept() -> None:
    lines = [
        "start",
        "(Worker) ValueError: no such backend",
        *(f"line {n}" for n in range(100)),
        "RuntimeError: see above",
    ]
    kept = _container_program.telling_lines(lines)
    assert kept[0] == "(Worker) ValueError: no such backend"
    assert kept[1:] == lines[-40:]
