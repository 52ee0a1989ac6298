# Copyright (c) 2026, The sparkgate.blackwell authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

# Note that this module util is **PRIVATE** to the collection. It can have breaking changes at any time.
# Do not use this from other collections or standalone plugins/modules!

"""Judgements on a deployment that runs: who can reach its ports, and whether its answer is right."""

from __future__ import annotations

import ipaddress
import re
import typing as t
from collections.abc import Iterable, Mapping, Sequence


def quote_unit(argv: Iterable[str]) -> str:
    """A command line for a systemd unit: specifiers and variables escaped, arguments quoted where it is needed."""
    words = []
    for arg in argv:
        word = str(arg).replace("%", "%%").replace("$", "$$")
        if word and re.fullmatch(r"[\w@%+=:,./$-]+", word):
            words.append(word)
        else:
            escaped = word.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")
            words.append(f'"{escaped}"')
    return " ".join(words)


def parse_listeners(text: str) -> list[dict[str, t.Any]]:
    """The output of `ss -Hltnp` as address, port, and the processes that hold the socket."""
    found = []
    for line in text.splitlines():
        fields = line.split(None, 5)
        if len(fields) < 4:
            continue
        address, _colon, port = fields[3].rpartition(":")
        if not port.isdigit():
            continue
        users = fields[5] if len(fields) > 5 else ""
        found.append(
            {
                "address": address.strip("[]").partition("%")[0],
                "port": int(port),
                "process": (re.findall(r'\(\("([^"]*)"', users) or [""])[0],
                "pids": sorted({int(pid) for pid in re.findall(r"pid=(\d+)", users)}),
            }
        )
    return found


def _in_ranges(port: int, ranges: Iterable[str]) -> bool:
    for item in ranges:
        first, _dash, last = item.partition("-")
        if int(first) <= port <= int(last or first):
            return True
    return False


def _is_loopback(address: str) -> bool:
    try:
        found = ipaddress.ip_address(address)
    except ValueError:
        return False
    mapped = getattr(found, "ipv4_mapped", None)
    return bool((mapped or found).is_loopback)


def exposure_verdicts(
    listeners: str, *, pids: Iterable[int], node: Mapping[str, t.Any], deployment: Mapping[str, t.Any], firewall: bool
) -> list[dict[str, t.Any]]:
    """One verdict for each listener of our processes: from where can it be reached?"""
    ours = {int(pid) for pid in pids}
    verdicts = []
    for row in parse_listeners(listeners):
        if not ours.intersection(row["pids"]):
            continue
        address, port = row["address"], row["port"]
        api = port == deployment["api"]["port"] and node["host"] == deployment["head"]
        closed = firewall and _in_ranges(port, deployment["reject_ports"])
        loopback = _is_loopback(address)
        if loopback:
            status, where = "ok", "loopback only"
        elif address == node["address"]:
            status, where = "ok", "the fabric only"
        elif api:
            status, where = "ok", "the management network: it is the API"
        elif closed:
            status, where = "ok", "the fabric only: the firewall rejects the rest"
        else:
            status, where = "fail", "every network of the node"
        subject = f"{address}:{port}"
        verdicts.append(
            {
                "id": "exposure.listener",
                "status": status,
                "host": node["host"],
                "subject": subject,
                "summary": f"{row['process'] or 'a process'} listens on {subject}, reachable from {where}",
                "remedy": ""
                if status == "ok"
                else "Start sparkgate-firewall.service with ray_cluster_firewall: true, or close the port in "
                "the machine's own firewall.",
                "source": "ss -ltnp",
                "evidence": row,
            }
        )
    return verdicts


def _flat(text: str) -> str:
    return " ".join(text.split())


def answer_verdict(
    completion: Mapping[str, t.Any], *, deployment: Mapping[str, t.Any], oracle: Mapping[str, t.Any] | None = None
) -> dict[str, t.Any]:
    """Is the text that was served the one that the weights give?"""
    answer = deployment["answer"]
    text = completion.get("text") or ""
    thought = completion.get("reasoning") or ""
    expected = (oracle or {}).get("text")
    same_dtype = expected is not None and (oracle or {}).get("dtype") == answer.get("dtype")
    status, summary, remedy = "ok", "", ""
    if not (text.strip() or thought.strip()):
        status, summary = "fail", "the served model answered with no text at all"
        remedy = "Look at the engine's log: docker logs --tail 100 sparkgate-engine"
    elif answer.get("oracle") == "transformers" and same_dtype:
        if text == expected:
            summary = f"the answer equals transformers' own in {answer['dtype']}"
        else:
            status = "fail"
            summary = (
                f"the answer is {text!r}, but transformers itself gives {expected!r} in {answer['dtype']} "
                "on the same weights"
            )
            remedy = (
                "The weights differ between the nodes, or the engine computes wrongly. Run model.yml to "
                "verify the weights on every node."
            )
    elif answer.get("contains"):
        if answer["contains"] in _flat(text):
            summary = f"the answer has {answer['contains']!r} in it"
        else:
            status = "fail"
            summary = f"the answer does not have {answer['contains']!r} in it: {_flat(text)[-200:]!r}"
            remedy = "Look at the back ends and the KV cache's type that the engine chose; see its log."
    elif answer.get("oracle") == "transformers":
        status = "warn"
        summary = f"there is an answer, but no text of transformers in {answer.get('dtype')} to compare it with"
        remedy = "Run smoke.yml with scope full, which leaves the text in the evidence."
    else:
        summary = "there is an answer; the profile says nothing about what it must be"
    return {
        "id": "serving.answer",
        "status": status,
        "host": deployment["head"],
        "subject": deployment["api"]["served_model_name"],
        "summary": summary,
        "remedy": remedy,
        "source": "a chat completion at temperature 0",
        "evidence": {"text": text, "expected": expected, "dtype": answer.get("dtype")},
    }


def stage_durations(times: Sequence[Mapping[str, t.Any]], now: float) -> list[dict[str, t.Any]]:
    """Stages with their seconds; a stage ends where the next one starts."""
    ends = [*(float(row["started"]) for row in times[1:]), now][: len(times)]
    return [
        {"stage": row["stage"], "seconds": round(end - float(row["started"]), 1)}
        for row, end in zip(times, ends, strict=True)
    ]
