# Copyright (c) 2026, The sparkgate.blackwell authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

import http.server
import json
import threading
import typing as t
from collections.abc import Iterator

import pytest
from ansible_collections.sparkgate.blackwell.plugins.module_utils import _endpoint as endpoint


class Handler(http.server.BaseHTTPRequestHandler):
    """An OpenAI-compatible server, as far as it is asked here."""

    def answer(self, status: int, body: t.Any) -> None:
        self.send_response(status)
        self.end_headers()
        self.wfile.write(json.dumps(body).encode() if body is not None else b"not json")

    def do_GET(self) -> None:
        if self.path == "/health":
            self.answer(200, None)
        else:
            self.answer(200 if self.headers.get("Authorization") == "Bearer k" else 401, {"data": [{"id": "m"}]})

    def do_POST(self) -> None:
        body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        if self.headers.get("Authorization") != "Bearer k":
            self.answer(401, {"error": "Unauthorized"})
            return
        message = {"content": body["messages"][0]["content"].upper(), "reasoning_content": "hm"}
        usage = {"completion_tokens": 3}
        self.answer(200, {"choices": [{"message": message, "finish_reason": "stop"}], "usage": usage})

    def log_message(self, *_args: t.Any) -> None:
        pass


@pytest.fixture
def url() -> Iterator[str]:
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    yield f"http://127.0.0.1:{server.server_port}"
    server.shutdown()
    server.server_close()


def test_request(url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("http_proxy", "http://192.0.2.1:1")
    assert endpoint.request(f"{url}/health") == (200, "not json", None)
    assert endpoint.request(f"{url}/v1/models")[0] == 401
    assert endpoint.request(f"{url}/v1/models", key="k")[1] == {"data": [{"id": "m"}]}
    status, answer, error = endpoint.request("http://127.0.0.1:1/health", timeout=2)
    assert (status, answer) == (None, None)
    assert "refused" in str(error)


def test_ask(url: str) -> None:
    completion, error = endpoint.ask(url, key="k", model="m", prompt="hi", max_tokens=4, timeout=5)
    assert error is None
    assert completion is not None
    assert (completion["text"], completion["reasoning"], completion["completion_tokens"]) == ("HI", "hm", 3)
    assert completion["tokens_per_second"] > 0
    completion, error = endpoint.ask(url, key=None, model="m", prompt="hi", max_tokens=4, timeout=5)
    assert (completion, error) == (None, 'HTTP 401: {"error": "Unauthorized"}')


LOGS = [
    ("a\n\nb\n", ["a", "b"]),
    ("\x1b[36mINFO\x1b[0m ready\n", ["INFO ready"]),
    ("load 10%\rload 100%\n", ["load 100%"]),
    ("api_key='s3cret' up\n", ["api_key='********' up"]),
]


@pytest.mark.parametrize(("text", "lines"), LOGS)
def test_clean_log(text: str, lines: list[str]) -> None:
    assert endpoint.clean_log(text, ["s3cret", ""]) == lines


def test_parse_show() -> None:
    text = "LoadState=loaded\nActiveState=activating\nSubState=auto-restart\nResult=exit-code\nNRestarts=2\n"
    assert endpoint.parse_show(text) == {
        "load_state": "loaded",
        "active_state": "activating",
        "sub_state": "auto-restart",
        "result": "exit-code",
        "restarts": 2,
    }
    assert endpoint.parse_show("")["load_state"] == "not-found"
