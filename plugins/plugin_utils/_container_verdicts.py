# Copyright (c) 2026, The sparkgate.blackwell authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

# Note that this plugin util is **PRIVATE** to the collection. It can have breaking changes at any time.
# Do not use this from other collections or standalone plugins/modules!

"""What is said about an engine's container and its smoke run."""

from __future__ import annotations

import re
import typing as t
from collections.abc import Mapping

from ansible_collections.sparkgate.blackwell.plugins.plugin_utils._image_plan import at_least
from ansible_collections.sparkgate.blackwell.plugins.plugin_utils._verdicts import Verdict, Verdicts, human_bytes

PROFILE = "the model's profile"
DIMENSIONS = ("num_experts", "moe_intermediate_size")


def _error(document: Mapping[str, t.Any], section: str) -> str:
    return next((f": {e['name']}" for e in document.get("errors", []) if e.get("source") == section), "")


def check_transformers(found: Verdicts, document: Mapping[str, t.Any], requirement: Mapping[str, t.Any]) -> None:
    if "transformers" not in document:
        return
    seen, minimum = document["transformers"], requirement.get("min_transformers")
    model_type = requirement.get("model_type") or (seen or {}).get("model_type")
    needs = f"transformers {minimum or 'of a version that knows the model'}{' or newer' if minimum else ''}"
    remedy = f"Build the serving image with {needs} (image.yml does it)."
    if seen is None:
        found.add(
            "model.transformers",
            "unknown",
            f"transformers could not be looked at{_error(document, 'transformers')}",
            remedy,
        )
    elif seen is False:
        found.add("model.transformers", "fail", "the image has no transformers", remedy, source=PROFILE)
    elif seen.get("known") is False:
        summary = f"transformers {seen['version']} does not know {model_type}"
        found.add("model.transformers", "fail", summary, remedy, source=PROFILE, evidence=seen)
    elif minimum and not at_least(seen["version"], minimum):
        summary = f"transformers {seen['version']} is older than {minimum}, which {model_type} needs"
        found.add("model.transformers", "fail", summary, remedy, source=PROFILE, evidence=seen)
    elif seen.get("error"):
        # It knows the name and yet cannot read this model's configuration.
        summary = f"transformers {seen['version']} cannot read the model's configuration: {seen['error']}"
        found.add("model.transformers", "fail", summary, "Verify the weights (model.yml).", evidence=seen)
    elif seen.get("known") is None:
        found.add(
            "model.transformers", "unknown", f"transformers {seen['version']} was not asked for a model type", remedy
        )
    else:
        found.add("model.transformers", "ok", f"transformers {seen['version']} knows {model_type}", evidence=seen)


def check_engine(found: Verdicts, document: Mapping[str, t.Any], requirement: Mapping[str, t.Any]) -> None:
    name, minimum = requirement.get("engine"), requirement.get("min_engine")
    if "engine" not in document or not name:
        return
    seen = document["engine"]
    remedy = (
        f"Name a base image with {name} {f'{minimum} or newer' if minimum else ''} (sparkgate_base_image).".replace(
            "  ", " "
        )
    )
    if seen is None:
        found.add("model.engine", "unknown", f"{name} could not be looked at{_error(document, 'engine')}", remedy)
    elif seen is False:
        found.add("model.engine", "fail", f"the image has no {name}", remedy, source=PROFILE)
    elif seen.get("name") != name:
        found.add(
            "model.engine", "fail", f"the image's engine is {seen.get('name')}, not {name}", remedy, evidence=seen
        )
    else:
        evidence = {key: value for key, value in seen.items() if key != "requires_dist"}
        new_enough = at_least(seen.get("version"), minimum) if minimum else True
        if new_enough is None:
            summary = f"{name}'s version {seen.get('version')} cannot be compared with {minimum}, which the model needs"
            found.add("model.engine", "unknown", summary, remedy, source=PROFILE, evidence=evidence)
        elif not new_enough:
            summary = f"{name} {seen['version']} is older than {minimum}, which the model needs"
            found.add("model.engine", "fail", summary, remedy, source=PROFILE, evidence=evidence)
        else:
            found.add("model.engine", "ok", f"{name} {seen['version']} is new enough", evidence=evidence)


def check_model(found: Verdicts, document: Mapping[str, t.Any], requirement: Mapping[str, t.Any]) -> None:
    """The configuration that was read, against the profile's. Says nothing where it could not be read at all."""
    seen = document.get("transformers")
    if not seen or "architecture" not in seen or not seen.get("known") or seen.get("error"):
        return
    remedy = "Check that the directory holds the model that the profile names, or correct the profile."
    wanted, architecture = requirement.get("architecture"), seen["architecture"]
    if wanted and architecture is None:
        found.add("model.architecture", "unknown", "the model's configuration names no architecture", remedy)
    elif wanted and architecture != wanted:
        summary = f"the model is a {architecture}, the profile describes a {wanted}"
        found.add("model.architecture", "fail", summary, remedy, source=PROFILE, evidence=architecture)
    elif wanted:
        found.add("model.architecture", "ok", f"the architecture is {architecture}", evidence=architecture)
    for key in DIMENSIONS:
        if requirement.get(key) is None or key not in seen:
            continue
        if seen[key] is None:
            found.add("model.experts", "unknown", f"the model's configuration does not say {key}", remedy, subject=key)
        elif seen[key] != requirement[key]:
            summary = f"{key} is {seen[key] or 'absent'} in the model and {requirement[key]} in the profile"
            found.add("model.experts", "fail", summary, remedy, subject=key, source=PROFILE, evidence=seen[key])
        else:
            found.add("model.experts", "ok", f"{key} is {seen[key]}", subject=key, evidence=seen[key])


def check_tensor(found: Verdicts, document: Mapping[str, t.Any], requirement: Mapping[str, t.Any]) -> None:
    if "torch" not in document:
        return
    seen, wanted = document["torch"], requirement.get("accelerator")
    if seen is None:
        summary = f"torch could not be tried{_error(document, 'torch')}"
        found.add(
            "device.tensor",
            "fail" if _error(document, "torch") else "unknown",
            summary,
            "See whether the image's torch can be imported.",
        )
        return
    device = seen.get("device") or {}
    if not seen.get("tensor_ok"):
        summary = f"no tensor could be computed on the {'GPU' if wanted == 'cuda' else 'device'}: {seen.get('error')}"
        remedy = "Run preflight.yml; it says what driver, container runtime and image need from each other."
        found.add("device.tensor", "fail", summary, remedy, evidence=seen)
    elif wanted == "cuda" and device.get("type") != "cuda":
        summary = f"torch {seen.get('version')} computes on the CPU, not on a GPU"
        remedy = (
            "Use a base image whose torch is built for CUDA, and give the container the GPUs (container option gpus)."
        )
        found.add("device.tensor", "fail", summary, remedy, evidence=seen)
    else:
        memory = device.get("memory_total_bytes")
        size = f", {human_bytes(memory)}" if memory else ""
        kind = "GPU" if device.get("type") == "cuda" else "CPU"
        found.add(
            "device.tensor", "ok", f"a tensor was computed on the {kind} ({device.get('name')}{size})", evidence=seen
        )


def check_ray(found: Verdicts, document: Mapping[str, t.Any]) -> None:
    if "ray" not in document:
        return
    remedy = "Build the serving image with Ray (image.yml does it)."
    if document["ray"] is None:
        found.add("image.ray", "unknown", f"Ray could not be looked for{_error(document, 'ray')}", remedy)
    elif document["ray"] is False:
        found.add("image.ray", "fail", "the image has no Ray", remedy)
    else:
        found.add("image.ray", "ok", f"Ray {document['ray']['version']} is in the image", evidence=document["ray"])


def check_generation(found: Verdicts, document: Mapping[str, t.Any], scope: str, contains: str | None) -> None:
    if "generation" not in document:
        return
    seen = document["generation"]
    remedy = "Read the engine's log in the evidence; a failure here would be the same on all nodes, only later."
    if seen is None or seen.get("error"):
        why = seen["error"] if seen else f"the smoke run was not finished{_error(document, 'generate')}"
        lines = (seen or {}).get("log") or []
        # Processes of an engine fail one after the other: the first that names an error tells more than the last.
        named = (line for line in lines if re.search(r"\b\w*(Error|Exception)\b: ", line))
        last = next(named, lines[-1] if lines else "").strip()
        summary = f"the engine did not generate: {why}{f' (its log: {last[:300]})' if last else ''}"
        found.add("smoke.generation", "fail", summary, remedy, subject=scope, evidence=seen)
    elif scope == "partial":
        # With a few layers of the model the text means nothing; that there is an answer is all.
        found.add(
            "smoke.generation", "ok", "the engine loaded a part of the model and answered", subject=scope, evidence=seen
        )
    elif not (seen.get("text") or "").strip():
        found.add(
            "smoke.generation", "fail", "the engine answered with an empty text", remedy, subject=scope, evidence=seen
        )
    elif contains and contains.lower() not in seen["text"].lower():
        summary = f"the answer does not contain {contains!r}: {seen['text'][:200]!r}"
        found.add("smoke.generation", "fail", summary, remedy, subject=scope, evidence=seen)
    else:
        found.add(
            "smoke.generation",
            "ok",
            f"the engine answered after {seen.get('ready_seconds')} s",
            subject=scope,
            evidence=seen,
        )


def check_oracle(found: Verdicts, document: Mapping[str, t.Any]) -> None:
    """The engine's text against transformers' own. Asked only where the same weights and the same type were used."""
    if "oracle" not in document or not (document.get("generation") or {}).get("text"):
        return
    seen, text = document["oracle"], document["generation"]["text"]
    if seen is None:
        summary = f"transformers could not generate from the weights{_error(document, 'oracle')}"
        found.add("smoke.oracle", "fail", summary, "Verify the weights (model.yml) and the image's transformers.")
        return
    evidence = {**seen, "engine_text": text}
    if seen["text"] == text:
        summary = f"the text is the one that transformers generates (smallest lead of a choice: {seen['margin']:.3f})"
        found.add("smoke.oracle", "ok", summary, evidence=evidence)
    else:
        summary = (
            f"the engine answers {text[:200]!r} "
            f"where transformers generates {seen['text'][:200]!r} from the same weights"
        )
        remedy = (
            "Verify the weights (model.yml). "
            "If they are sound, the engine computes wrongly with these arguments: try another backend."
        )
        found.add("smoke.oracle", "fail", summary, remedy, evidence=evidence)


def container_verdicts(
    document: Mapping[str, t.Any] | None,
    requirement: Mapping[str, t.Any],
    name: str | None = None,
    *,
    scope: str = "full",
    contains: str | None = None,
) -> list[Verdict]:
    """All verdicts about a container's document."""
    found = Verdicts(name)
    document = document or {}
    check_tensor(found, document, requirement)
    check_transformers(found, document, requirement)
    check_engine(found, document, requirement)
    check_model(found, document, requirement)
    check_ray(found, document)
    check_generation(found, document, scope, contains)
    check_oracle(found, document)
    return found.all
