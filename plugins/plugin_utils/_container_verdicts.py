# Copyright (c) 2026, The sparkgate.blackwell authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

# Note that this plugin util is **PRIVATE** to the collection. It can have breaking changes at any time.
# Do not use this from other collections or standalone plugins/modules!

"""What is said about an engine's container and its smoke run."""

from __future__ import annotations

import functools
import re
import typing as t
from collections.abc import Iterable, Mapping
from pathlib import Path

import yaml
from ansible_collections.sparkgate.blackwell.plugins.plugin_utils._image_plan import at_least
from ansible_collections.sparkgate.blackwell.plugins.plugin_utils._verdicts import Verdict, Verdicts, human_bytes

PROFILE = "the model's profile"
DIMENSIONS = ("num_experts", "moe_intermediate_size")


@functools.cache
def container_rules() -> dict[str, t.Any]:
    text = (Path(__file__).parent / "container_rules.yml").read_text(encoding="utf-8")
    return t.cast("dict[str, t.Any]", yaml.safe_load(text))


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


def _computes(document: Mapping[str, t.Any]) -> bool:
    """Whether the GPU did the simplest thing. Where it did not, that is what must be cured, and not what came after."""
    return bool((document.get("torch") or {}).get("tensor_ok", "torch" not in document))


def check_graph(found: Verdicts, document: Mapping[str, t.Any]) -> None:
    seen = document.get("graph", False)
    if seen is False:
        return
    remedy = (
        "Serve without CUDA graphs (vLLM: --enforce-eager, SGLang: --disable-cuda-graph), which is slower; "
        "or go to another driver of a branch that this GPU is known to work with."
    )
    if seen is None:
        status = "fail" if _error(document, "graph") and _computes(document) else "unknown"
        found.add(
            "gpu.graph", status, f"no CUDA graph could be captured and replayed{_error(document, 'graph')}", remedy
        )
    elif seen.get("ok") is True:
        summary = f"a CUDA graph was captured, and {seen.get('replays')} replays were right"
        found.add("gpu.graph", "ok", summary, evidence=seen)
    else:
        found.add("gpu.graph", "fail", f"CUDA graphs do not work: {seen.get('error')}", remedy, evidence=seen)


def check_copy(found: Verdicts, document: Mapping[str, t.Any]) -> None:
    seen = document.get("copy", False)
    if seen is False:
        return
    rules = container_rules()["copy"]
    speed, name = (seen or {}).get("bytes_per_second"), (seen or {}).get("device")
    if not speed:
        summary = f"how fast the GPU copies within its memory could not be measured{_error(document, 'copy')}"
        found.add("gpu.copy", "unknown", summary, "Stop what else uses the GPU, and run the probe again.")
        return
    measured = f"{name} copies {speed / 1e9:.0f} GB/s"
    entry = next((entry for entry in rules["devices"] if entry["name"] in str(name)), None)
    if entry is None:
        summary = f"{measured}; what is to be expected of it is not known"
        found.add("gpu.copy", "unknown", summary, "Compare it with what the vendor says.", evidence=seen)
        return
    share = speed / entry["bytes_per_second"]
    summary = f"{measured}, {share:.0%} of what its memory can do"
    if share < rules["minimum_share"]:
        remedy = (
            "Stop what else uses the GPU; look at its clocks and its power with `nvidia-smi -q -d PERFORMANCE`; "
            "a GPU that stays in a low-power state needs the machine's power taken away for a minute."
        )
        found.add("gpu.copy", "warn", summary, remedy, source=entry["source"], evidence=seen)
    else:
        found.add("gpu.copy", "ok", summary, source=entry["source"], evidence=seen)


def check_fp8_block(found: Verdicts, document: Mapping[str, t.Any], requirement: Mapping[str, t.Any]) -> None:
    """A product in FP8 against the same in BF16. What a model does not need is a warning."""
    seen = document.get("fp8_block", False)
    if seen is False:
        return
    rules = container_rules()["fp8_block"]
    bad = "fail" if requirement.get("fp8_block") else "warn"
    remedy = (
        "Choose another backend for FP8 (SGLang: --fp8-gemm-backend, vLLM: --linear-backend), "
        "or an image whose libraries are built for this capability."
    )
    if seen is None:
        died = bool(_error(document, "fp8_block")) and _computes(document)
        summary = f"no product in FP8 could be compared with BF16{_error(document, 'fp8_block')}"
        found.add("gpu.fp8_block", bad if died else "unknown", summary, remedy)
        return
    for kernel in seen.get("kernels") or []:
        name, error = kernel.get("name"), kernel.get("relative_error")
        short = str(name).rpartition(".")[2]
        if kernel.get("error"):
            # The engine may well use another kernel than this one, so this says nothing about what will be launched.
            summary = f"the FP8 product of {short} could not be computed: {kernel['error']}"
            found.add("gpu.fp8_block", "warn", summary, remedy, subject=name, evidence=kernel)
        elif kernel.get("finite") is False:
            summary = f"the FP8 product of {short} holds numbers that are not finite"
            found.add("gpu.fp8_block", bad, summary, remedy, subject=name, source=rules["source"], evidence=kernel)
        elif error is None:
            summary = f"how far the FP8 product of {short} is from BF16 is not known"
            found.add("gpu.fp8_block", "unknown", summary, remedy, subject=name, evidence=kernel)
        else:
            summary = f"the FP8 product of {short} is {error:.1%} away from BF16"
            wrong = error > rules["tolerance"]
            found.add(
                "gpu.fp8_block",
                bad if wrong else "ok",
                f"{summary}, where {rules['tolerance']:.0%} is the most that rounding makes" if wrong else summary,
                remedy if wrong else None,
                subject=name,
                source=rules["source"],
                evidence=kernel,
            )


def _results(document: Mapping[str, t.Any]) -> dict[str, t.Any]:
    launch, ptx = document.get("kernel_launch"), document.get("ptx_jit")
    return {
        "kernel": launch.get("ok") if isinstance(launch, Mapping) else launch,
        "PTX": ptx.get("code") if isinstance(ptx, Mapping) else ptx,
    }


def _libcuda(document: Mapping[str, t.Any]) -> str:
    library, cuda = document.get("libcuda"), document.get("cuda_driver_version")
    if not library:
        return "no libcuda" if library is False else "a libcuda that is not known"
    return f"libcuda {library.get('version') or 'of unknown version'}{f' (CUDA {cuda})' if cuda else ''}"


def _outcome(document: Mapping[str, t.Any]) -> str:
    seen = _results(document)
    kernel = {True: "a kernel runs", False: "no kernel runs"}.get(seen["kernel"], "whether a kernel runs is not known")
    if seen["PTX"] is None or seen["PTX"] is False:
        return kernel
    taken = "is taken" if seen["PTX"] == 0 else f"is refused (error {seen['PTX']})"
    return f"{kernel}, PTX {(document.get('ptx_jit') or {}).get('ptx_version')} {taken}"


def check_entrypoint(found: Verdicts, used: Mapping[str, t.Any], bypassed: Mapping[str, t.Any] | None) -> None:
    """What the image's entrypoint does for the GPU, from two containers of the same image."""
    if "kernel_launch" not in used:
        return
    remedy = "Start the engine through the image's entrypoint, never by docker exec or with another entrypoint."
    if bypassed is None:
        summary = f"what works without the image's entrypoint could not be tried{_error(used, 'bypassed')}"
        found.add("cuda.entrypoint", "unknown", summary, remedy)
        return
    evidence = {
        name: {"libcuda": d.get("libcuda"), **_results(d)} for name, d in (("used", used), ("bypassed", bypassed))
    }
    libraries = _libcuda(used), _libcuda(bypassed)
    if _results(used) == _results(bypassed):
        summary = f"through the image's entrypoint the container loads {libraries[0]}, and without it "
        summary += f"{'too' if libraries[0] == libraries[1] else libraries[1]}; {_outcome(used)} either way"
        found.add("cuda.entrypoint", "ok", summary, evidence=evidence)
        return
    better = _results(bypassed)["kernel"] is True and _results(bypassed)["PTX"] in (0, False)
    found.add(
        "cuda.entrypoint",
        "warn",
        f"through the image's entrypoint the container loads {libraries[0]}: {_outcome(used)}; "
        f"without it {libraries[1]}: {_outcome(bypassed)}",
        "Start the engine without the image's entrypoint, or use an image that fits the driver." if better else remedy,
        evidence=evidence,
    )


def start_verdict(message: str, name: str | None = None) -> Verdict:
    """Why a container could not be looked at at all."""
    found = Verdicts(name)
    rule = next((rule for rule in container_rules()["start"] if re.search(rule["pattern"], message)), None)
    if rule:
        found.add("container.start", "fail", f"{rule['summary']}: {message}", rule["remedy"], source=rule["source"])
    else:
        found.add(
            "container.start", "fail", message, "Run the same container by hand on that node and read what it says."
        )
    return found.all[0]


def joined(first: Iterable[Verdict], second: Iterable[Verdict]) -> list[Verdict]:
    """Both, where a question that the first have answered is not answered twice."""
    result = list(first)
    answered = {verdict["id"] for verdict in result}
    return [*result, *(verdict for verdict in second if verdict["id"] not in answered)]


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
    check_graph(found, document)
    check_copy(found, document)
    check_fp8_block(found, document, requirement)
    check_generation(found, document, scope, contains)
    check_oracle(found, document)
    return found.all
