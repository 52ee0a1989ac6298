# Copyright (c) 2026, The sparkgate.blackwell authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

import typing as t

import pytest
from ansible_collections.sparkgate.blackwell.plugins.plugin_utils import _serving as serving

NODE = {"host": "spark-1", "address": "198.51.100.11"}
DEPLOYMENT: dict[str, t.Any] = {
    "head": "spark-1",
    "api": {"port": 8000, "served_model_name": "lab/tiny"},
    "reject_ports": ["6379-6386", "25000-25000", "32768-60999"],
    "answer": {"oracle": "transformers", "dtype": "bfloat16", "contains": None},
}


def ss(address: str, pid: int = 7, name: str = "raylet") -> str:
    return f'LISTEN 0 4096 {address} 0.0.0.0:* users:(("{name}",pid={pid},fd=23),("{name}",pid={pid + 1},fd=23))\n'


LISTENERS = [
    ("127.0.0.1:6379", True, "ok", "loopback only"),
    ("[::1]:40000", False, "ok", "loopback only"),
    ("[::ffff:127.0.0.1]:9000", False, "ok", "loopback only"),
    ("198.51.100.11:9999", False, "ok", "the fabric only"),
    ("192.0.2.11:8000", True, "ok", "the management network: it is the API"),
    ("*:8000", True, "ok", "the management network: it is the API"),
    ("*:6379", True, "ok", "the firewall rejects the rest"),
    ("0.0.0.0:33333%eth0", True, "ok", "the firewall rejects the rest"),
    ("0.0.0.0:6379", False, "fail", "every network"),
    ("[::]:25000", True, "ok", "the firewall rejects the rest"),
    ("*:9999", True, "fail", "every network"),
    ("192.0.2.11:9999", True, "fail", "every network"),
]


@pytest.mark.parametrize(("address", "firewall", "status", "where"), LISTENERS)
def test_exposure(address: str, firewall: bool, status: str, where: str) -> None:
    text = ss(address.replace("%eth0", "")) + ss("0.0.0.0:22", pid=1, name="sshd") + "\ngarbage\n"
    (verdict,) = serving.exposure_verdicts(text, pids=[8], node=NODE, deployment=DEPLOYMENT, firewall=firewall)
    assert (verdict["status"], verdict["host"]) == (status, "spark-1")
    assert where in verdict["summary"]
    assert bool(verdict["remedy"]) is (status == "fail")


def test_the_api_port_of_another_node_is_not_the_api() -> None:
    (verdict,) = serving.exposure_verdicts(
        ss("*:8000"), pids=[7], node={**NODE, "host": "spark-2"}, deployment=DEPLOYMENT, firewall=True
    )
    assert verdict["status"] == "fail"


def test_parse_listeners() -> None:
    assert serving.parse_listeners('LISTEN 0 511 [fe80::1%eth0]:6380 [::]:* users:(("python3",pid=12,fd=5))') == [
        {"address": "fe80::1", "port": 6380, "process": "python3", "pids": [12]}
    ]
    assert serving.parse_listeners("LISTEN 0 128 0.0.0.0:22 0.0.0.0:*")[0]["pids"] == []


ORACLE = {"text": "abc", "dtype": "bfloat16"}
ANSWERS = [
    ({"text": "abc"}, {}, ORACLE, "ok", "equals transformers' own in bfloat16"),
    ({"text": "abd"}, {}, ORACLE, "fail", "transformers itself gives 'abc'"),
    ({"text": "abc "}, {}, ORACLE, "fail", "the answer is 'abc '"),
    ({"text": ""}, {}, ORACLE, "fail", "no text at all"),
    ({}, {}, None, "fail", "no text at all"),
    ({"text": "abd"}, {}, {"text": "abc", "dtype": "float16"}, "warn", "no text of transformers in bfloat16"),
    ({"text": "abd"}, {}, None, "warn", "no text of transformers in bfloat16"),
    ({"text": "It is 391."}, {"oracle": "none", "contains": "391"}, None, "ok", "has '391' in it"),
    ({"text": "It is 392.", "reasoning": "391?"}, {"oracle": "none", "contains": "391"}, None, "fail", "does not have"),
    ({"reasoning": "hm"}, {"oracle": "none"}, None, "ok", "there is an answer"),
]


@pytest.mark.parametrize(("completion", "answer", "oracle", "status", "text"), ANSWERS)
def test_answers(
    completion: dict[str, t.Any], answer: dict[str, t.Any], oracle: dict[str, t.Any] | None, status: str, text: str
) -> None:
    deployment = {**DEPLOYMENT, "answer": {**DEPLOYMENT["answer"], **answer}}
    verdict = serving.answer_verdict(completion, deployment=deployment, oracle=oracle)
    assert verdict["status"] == status
    assert text in verdict["summary"]
    assert bool(verdict["remedy"]) is (status != "ok")


LINES = [
    (["/usr/bin/docker", "run", "--ulimit", "memlock=-1"], "/usr/bin/docker run --ulimit memlock=-1"),
    (["echo", "100%", "$HOME"], "echo 100%% $$HOME"),
    (["a b", ""], '"a b" ""'),
    (['{"a": "b"}'], '"{\\"a\\": \\"b\\"}"'),
    (["back\\slash", "x;y", "0|1"], '"back\\\\slash" "x;y" "0|1"'),
]


@pytest.mark.parametrize(("argv", "line"), LINES)
def test_quote_unit(argv: list[str], line: str) -> None:
    assert serving.quote_unit(argv) == line


def test_stage_durations() -> None:
    times = [{"stage": "a", "started": 10.0}, {"stage": "b", "started": 12.5}]
    assert serving.stage_durations(times, 20.0) == [{"stage": "a", "seconds": 2.5}, {"stage": "b", "seconds": 7.5}]
    assert serving.stage_durations([], 20.0) == []
