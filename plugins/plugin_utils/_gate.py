# Copyright (c) 2026, The sparkgate.blackwell authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

# Note that this plugin util is **PRIVATE** to the collection. It can have breaking changes at any time.
# Do not use this from other collections or standalone plugins/modules!

"""The gate: what a smoke run saw, and whether it is what will be launched."""

from __future__ import annotations

import json
import re
import typing as t
from collections.abc import Mapping, Sequence

from ansible_collections.sparkgate.blackwell.plugins.plugin_utils._profile import canonical_digest
from ansible_collections.sparkgate.blackwell.plugins.plugin_utils._verdicts import Verdict, Verdicts, human_bytes

NODE_PARTS = ("image", "manifest", "driver", "kernel", "gpus")
DEPLOYMENT_PARTS = ("profile", "container")
DTYPES = ("float16", "bfloat16", "float32")
AGAIN = "Run the smoke stage again (smoke.yml)."
# Weights need this much more room than their size: buffers, the KV cache, the engine itself.
ROOM = 1.2


def common_environment(deployment: Mapping[str, t.Any]) -> dict[str, t.Any]:
    """The environment that is the same on all nodes; addresses and ranks are not."""
    environments = [node.get("environment") or {} for node in deployment["nodes"]]
    first, *others = environments
    return {key: value for key, value in first.items() if all(o.get(key) == value for o in others)}


def container_digest(deployment: Mapping[str, t.Any]) -> str:
    """What decides how the container runs, whatever the node's rank."""
    return canonical_digest(
        {
            "argv": list(deployment["container"]["argv"]),
            "engine": deployment["engine"],
            "environment": common_environment(deployment),
        }
    )


def fingerprint(
    parts: Mapping[str, Mapping[str, t.Any]], deployment: Mapping[str, t.Any], head: str | None = None
) -> dict[str, t.Any]:
    """Join the nodes' parts.

    With C(head) the image and the weights of every node are taken to be the head's: a smoke run on the head passes
    while they are still being copied to the others, and speaks for nothing else.
    """
    nodes = {}
    for host, part in parts.items():
        nodes[host] = {name: part.get(name) for name in NODE_PARTS}
        if head is not None:
            nodes[host].update({name: parts[head].get(name) for name in ("image", "manifest")})
    return {"nodes": nodes, "profile": deployment["profile_digest"], "container": container_digest(deployment)}


def read_evidence(evidence: t.Any) -> tuple[Mapping[str, t.Any] | None, str | None]:
    """The evidence from a document or its text, and what is wrong with it."""
    if isinstance(evidence, str) and evidence.strip():
        try:
            evidence = json.loads(evidence)
        except ValueError as error:
            return None, f"the evidence of the smoke run is not readable JSON ({error})"
    if not evidence:
        return None, "there is no evidence of a smoke run"
    if (
        not isinstance(evidence, Mapping)
        or evidence.get("schema") != 1
        or not isinstance(evidence.get("fingerprint"), Mapping)
    ):
        return None, "the evidence of the smoke run has an unknown form"
    return evidence, None


def _text(value: t.Any) -> str:
    if value is None:
        return "unknown"
    if value is False or value == []:
        return "none"
    words = map(str, value) if isinstance(value, (list, tuple)) else [str(value)]
    # Twelve digits of a digest are what a person compares; the evidence has them all.
    return ", ".join(re.sub(r"\b([0-9a-f]{12})[0-9a-f]{52}\b", r"\1", word) for word in words)


def _compare(found: Verdicts, part: str, was: t.Any, now: t.Any) -> None:
    if was == now and was is not None:
        return
    if was is None and now is None:
        summary = f"{part} could not be read, neither for the smoke run nor now"
    else:
        summary = f"{part} was {_text(was)} when the smoke run passed and is {_text(now)} now"
    remedy = AGAIN
    if part == "manifest" and str(now).startswith("changed"):
        summary = f"{part} was {_text(was)} when the smoke run passed; since then this file has {now}"
        remedy = "Verify the weights again (model.yml), then run the smoke stage again (smoke.yml)."
    elif part in ("image", "manifest") and now is None:
        summary = f"{part} was {_text(was)} when the smoke run passed and is missing or cannot be read now"
        remedy = f"Bring it to the node ({'image' if part == 'image' else 'model'}.yml)."
    found.add("gate.fingerprint", "fail", summary, remedy, subject=part, evidence={"was": was, "is": now})


def gate_verdicts(evidence: t.Any, current: Mapping[str, t.Any], head: str | None = None) -> list[Verdict]:
    """Everything that stands against a launch; one verdict for each part that is not as it was."""
    found = Verdicts(head)
    known, problem = read_evidence(evidence)
    if known is None:
        found.add("gate.evidence", "fail", str(problem), "Run the smoke stage (smoke.yml).")
        return found.all
    found.add("gate.evidence", "ok", f"a smoke run of {known.get('created')} ({known.get('scope')}) is recorded")
    if known.get("passed") is True:
        found.add("gate.passed", "ok", "the smoke run passed")
    else:
        failed = [v for v in known.get("verdicts") or [] if v.get("status") == "fail"]
        why = "; ".join(f"{v['id']}: {v['summary']}" for v in failed) or "no reason was recorded"
        found.add("gate.passed", "fail", f"the smoke run did not pass: {why}", f"Cure that. {AGAIN}", evidence=failed)
    old = known["fingerprint"]
    # The parts of the deployment are the same everywhere, so they are said once.
    for part in DEPLOYMENT_PARTS:
        _compare(found, part, old.get(part), current.get(part))
    result = list(found.all)
    old_nodes = old.get("nodes") or {}
    for host, now in current["nodes"].items():
        node = Verdicts(host)
        if host not in old_nodes:
            node.add("gate.evidence", "fail", f"the smoke run's evidence does not cover {host}", AGAIN)
        else:
            for part in NODE_PARTS:
                _compare(node, part, old_nodes[host].get(part), now.get(part))
        result += node.all
    for host in old_nodes:
        if host not in current["nodes"]:
            gone = Verdicts(host)
            summary = f"the smoke run's evidence covers {host}, which is no node of this deployment"
            gone.add("gate.evidence", "fail", summary, AGAIN)
            result += gone.all
    if not any(verdict["id"] == "gate.fingerprint" for verdict in result):
        matching = Verdicts(head)
        matching.add("gate.fingerprint", "ok", "what will be launched is what the smoke run saw")
        result += matching.all
    return result


def _option(argv: Sequence[str], name: str) -> str | None:
    for index, word in enumerate(argv):
        if word == name and index + 1 < len(argv):
            return argv[index + 1]
        if word.startswith(f"{name}="):
            return word.partition("=")[2]
    return None


def available_memory(recon: Mapping[str, t.Any], accelerator: str) -> int | None:
    """Where weights go on one device: the GPU's own memory, or the machine's where it is shared or there is no GPU."""
    memory = t.cast("int | None", ((recon.get("system") or {}).get("memory") or {}).get("available_bytes"))
    if accelerator != "cuda":
        return memory
    devices = (recon.get("gpu") or {}).get("devices") or []
    if not devices:
        return None
    if devices[0].get("integrated"):
        return memory
    return t.cast("int | None", devices[0].get("memory_total_bytes"))


def smoke_plan(
    deployment: Mapping[str, t.Any],
    weight_bytes: int | None,
    recon: Mapping[str, t.Any],
    scope: str = "auto",
) -> dict[str, t.Any]:
    """What of the model is loaded on the head, and with what it is compared."""
    smoke, answer = deployment["smoke"], deployment.get("answer") or {}
    available = available_memory(recon, deployment["accelerator"])
    can_partial = bool(smoke.get("argv_partial"))
    sizes = " of weights, ".join(human_bytes(size) for size in (weight_bytes, available) if size is not None)
    if scope == "auto":
        if weight_bytes is not None and available is not None and weight_bytes * ROOM < available:
            scope = "full"
            why = f"one node can hold the model ({sizes} available)"
        elif weight_bytes is None or available is None:
            scope = "partial" if can_partial else "full"
            why = "it is not known whether one node can hold the model"
        else:
            scope = "partial"
            why = f"one node cannot hold the model ({sizes} available)"
    else:
        why = "asked for by smoke_gate_scope"
    refuse = None
    if scope == "partial" and not can_partial:
        refuse = (
            f"{why}, and the profile does not say how a part of it is loaded. "
            "Free memory on the head, or set smoke_gate_scope to full to try all the same."
        )
    argv = list(smoke["argv_partial"] if scope == "partial" and can_partial else smoke["argv"])
    dtype = _option(argv, "--dtype")
    dtype = dtype if dtype in DTYPES else answer.get("dtype")
    # The comparison is fair only with the whole model and in the same type.
    oracle = scope == "full" and answer.get("oracle") == "transformers" and dtype in DTYPES
    sections = ["python", "image", "toolkit", "torch", "transformers", "engine", "ray", "nccl", "triton", "generate"]
    return {
        "scope": scope,
        "why": why,
        "refuse": refuse,
        "argv": argv,
        "dtype": dtype if dtype in DTYPES else None,
        "sections": [*sections, "oracle"] if oracle else sections,
    }


def smoke_evidence(
    document: Mapping[str, t.Any],
    deployment: Mapping[str, t.Any],
    verdicts: Sequence[Verdict],
    current: Mapping[str, t.Any],
    *,
    scope: str,
    created: str,
    seconds: float,
) -> dict[str, t.Any]:
    """The record of a smoke run. It passed only if nothing failed and the two things that matter were really seen."""
    status = {verdict["id"]: verdict["status"] for verdict in verdicts}
    seen = all(status.get(identifier) in ("ok", "warn") for identifier in ("device.tensor", "smoke.generation"))
    return {
        "schema": 1,
        "deployment": deployment["name"],
        "created": created,
        "scope": scope,
        "passed": seen and not any(verdict["status"] == "fail" for verdict in verdicts),
        "verdicts": list(verdicts),
        "document": document,
        "timings": {"total": seconds, **(document.get("timings") or {})},
        "fingerprint": current,
    }
