# Copyright (c) 2026, The sparkgate.blackwell authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

# Note that this module util is **PRIVATE** to the collection. It can have breaking changes at any time.
# Do not use this from other collections or standalone plugins/modules!

"""Ask an engine's HTTP server, and read what systemd and the container engine say about it."""

from __future__ import annotations

import json
import re
import time
import typing as t
import urllib.error
import urllib.request

# The machine's own proxies have no business between a client and a node.
_OPENER = urllib.request.build_opener(urllib.request.ProxyHandler({}))


def request(
    url: str, *, key: str | None = None, body: t.Mapping[str, t.Any] | None = None, timeout: float = 10
) -> tuple[int | None, t.Any, str | None]:
    """Return status, decoded JSON (or text), and what went wrong on the way."""
    headers = {"Content-Type": "application/json"}
    if key:
        headers["Authorization"] = f"Bearer {key}"
    data = json.dumps(body).encode() if body is not None else None
    try:
        with _OPENER.open(urllib.request.Request(url, data=data, headers=headers), timeout=timeout) as answer:
            status, text = answer.status, answer.read().decode("utf-8", "replace")
    except urllib.error.HTTPError as exc:
        status, text = exc.code, exc.read().decode("utf-8", "replace")
    except (OSError, ValueError) as exc:
        return None, None, str(getattr(exc, "reason", exc))
    try:
        return status, json.loads(text), None
    except ValueError:
        return status, text, None


def read_completion(document: t.Mapping[str, t.Any], seconds: float) -> dict[str, t.Any]:
    """Return the parts of a chat completion that are judged and shown."""
    choice = (document.get("choices") or [{}])[0]
    message = choice.get("message") or {}
    tokens = (document.get("usage") or {}).get("completion_tokens")
    return {
        "text": message.get("content") or "",
        "reasoning": message.get("reasoning_content") or message.get("reasoning") or "",
        "finish_reason": choice.get("finish_reason"),
        "completion_tokens": tokens,
        "seconds": round(seconds, 3),
        "tokens_per_second": round(tokens / seconds, 2) if tokens and seconds > 0 else None,
    }


def ask(
    url: str, *, key: str | None, model: str, prompt: str, max_tokens: int, timeout: float
) -> tuple[dict[str, t.Any] | None, str | None]:
    """Return a chat completion at temperature 0, or why there is none."""
    started = time.monotonic()
    status, answer, error = request(
        f"{url}/v1/chat/completions",
        key=key,
        body={
            "model": model,
            "messages": [{"role": "user", "content": prompt}],
            "max_tokens": max_tokens,
            "temperature": 0,
        },
        timeout=timeout,
    )
    if status == 200 and isinstance(answer, dict):
        return read_completion(answer, time.monotonic() - started), None
    if error:
        return None, error
    return None, f"HTTP {status}: {json.dumps(answer)[:500]}"


def redact(text: str, secrets: t.Iterable[str]) -> str:
    """Return text without the secrets."""
    for secret in secrets:
        if secret:
            text = text.replace(secret, "********")
    return text


def clean_log(text: str, secrets: t.Iterable[str] = ()) -> list[str]:
    """Return the lines of a log, without colours, overwritten progress bars and secrets."""
    lines = []
    for raw in redact(text, secrets).split("\n"):
        line = re.sub(r"\x1b\[[0-9;?]*[A-Za-z]", "", raw).rstrip("\r").rpartition("\r")[2].rstrip()
        if line:
            lines.append(line)
    return lines


def parse_show(text: str) -> dict[str, t.Any]:
    """Return the output of `systemctl show`, as far as it is of use."""
    pairs = dict(line.split("=", 1) for line in text.splitlines() if "=" in line)
    return {
        "load_state": pairs.get("LoadState", "not-found"),
        "active_state": pairs.get("ActiveState", "inactive"),
        "sub_state": pairs.get("SubState", "dead"),
        "result": pairs.get("Result", ""),
        "restarts": int(pairs.get("NRestarts") or 0),
    }
