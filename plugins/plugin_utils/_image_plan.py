# Copyright (c) 2026, The sparkgate.blackwell authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

# Note that this plugin util is **PRIVATE** to the collection. It can have breaking changes at any time.
# Do not use this from other collections or standalone plugins/modules!

"""What a base image lacks for a model, and what is to be installed in it."""

from __future__ import annotations

import functools
import typing as t
from collections.abc import Iterable, Mapping
from pathlib import Path

import yaml
from ansible_collections.sparkgate.blackwell.plugins.plugin_utils._packaging import (
    InvalidRequirement,
    InvalidVersion,
    Requirement,
    SpecifierSet,
    Version,
    canonicalize_name,
)


@functools.cache
def engine_requirements() -> dict[str, t.Any]:
    text = (Path(__file__).parent / "engine_requirements.yml").read_text(encoding="utf-8")
    return t.cast("dict[str, t.Any]", yaml.safe_load(text))


def version_of(text: t.Any) -> Version | None:
    try:
        return Version(str(text))
    except InvalidVersion:
        return None


def at_least(version: t.Any, minimum: t.Any) -> bool | None:
    """Whether a version is new enough; None where it cannot be compared."""
    found, wanted = version_of(version), version_of(minimum)
    return None if found is None or wanted is None else found >= wanted


def requirements_on(requires_dist: Iterable[str], name: str, extra: str = "") -> list[Requirement]:
    """An engine's requirements on a distribution, plain or by an extra, as they hold on Linux."""
    found = []
    for text in requires_dist:
        try:
            requirement = Requirement(text)
        except InvalidRequirement:
            continue
        if canonicalize_name(requirement.name) != name:
            continue
        marker = requirement.marker
        # The container's Python is not ours, so an entry counts only where nothing but the extra decides it.
        if extra and (marker is None or marker.evaluate({"extra": ""}) or not marker.evaluate({"extra": extra})):
            continue
        if not extra and marker is not None and not marker.evaluate({"extra": "", "sys_platform": "linux"}):
            continue
        found.append(requirement)
    return found


def _candidates(pin: str | None, minimum: str | None, specifiers: SpecifierSet) -> list[str]:
    """Versions that may satisfy everybody, the best first: the profile's, the engine's own, the oldest named."""
    named = [s.version for s in specifiers if s.operator in ("==", "===", ">=", "~=") and not s.version.endswith(".*")]
    exact = [s.version for s in specifiers if s.operator in ("==", "===") and not s.version.endswith(".*")]
    return [text for text in dict.fromkeys([pin, *exact, *sorted(named, key=Version), minimum, *_released()]) if text]


@functools.cache
def _released() -> tuple[str, ...]:
    """Versions of transformers of which the table knows that they exist, the oldest first."""
    rows = [row for engine in engine_requirements().values() for row in engine["versions"]]
    return tuple(sorted({r["transformers"][2:] for r in rows if r["transformers"].startswith("==")}, key=Version))


def choose(pin: str | None, minimum: str | None, specifiers: SpecifierSet) -> str | None:
    """The version of transformers that satisfies the profile's minimum and the engine's requirement."""
    for candidate in _candidates(pin, minimum, specifiers):
        if (minimum is None or Version(candidate) >= Version(minimum)) and candidate in specifiers:
            return candidate
    return None


def engine_that_would(engine: str, pin: str | None, minimum: str | None, min_engine: str | None) -> str | None:
    """The oldest known version of the engine whose requirement admits a transformers that is new enough."""
    for row in engine_requirements().get(engine, {}).get("versions", []):
        if min_engine is not None and Version(str(row["version"])) < Version(min_engine):
            continue
        if choose(pin, minimum, SpecifierSet(row["transformers"])):
            return str(row["version"])
    return None


def image_plan(document: Mapping[str, t.Any] | None, profile: Mapping[str, t.Any], engine: str) -> dict[str, t.Any]:
    """Decide from the base image's document whether an image is built on it, and with what."""
    plan: dict[str, t.Any] = {"build": False, "why": [], "transformers": None, "pip": [], "labels": {}, "refuse": None}
    minimums = profile.get("min_versions") or {}
    minimum, min_engine = minimums.get("transformers"), minimums.get(engine)
    model_type = (profile.get("config") or {}).get("model_type")
    pins = [Requirement(text) for text in (profile.get("image") or {}).get("pip") or []]
    pin = next((next(iter(r.specifier)).version for r in pins if canonicalize_name(r.name) == "transformers"), None)

    document = document or {}
    found = document.get("engine")
    if not found:
        seen = next((e["name"] for e in document.get("errors", []) if e.get("source") == "engine"), None)
        plan["refuse"] = (
            f"The base image has no {engine}{f' that can be read ({seen})' if seen else ''}. "
            f"Name a base image that brings {engine} (sparkgate_base_image), "
            "or choose another engine (sparkgate_engine)."
        )
        return plan
    would = engine_that_would(engine, pin, minimum, min_engine)
    advice = (
        f"Name a base image with {engine} {would} or newer (sparkgate_base_image)."
        if would
        else "No known version of it does."
    )
    if min_engine and at_least(found["version"], min_engine) is False:
        plan["refuse"] = (
            f"The base image has {engine} {found['version']}, but {profile['name']} needs {min_engine}. {advice}"
        )
        return plan

    requires = found.get("requires_dist") or []
    specifiers = SpecifierSet(
        ",".join(str(r.specifier) for r in requirements_on(requires, "transformers") if r.specifier)
    )
    demand = (
        f"{engine} {found['version']} requires transformers {specifiers}"
        if specifiers
        else f"{engine} {found['version']} sets no bounds"
    )
    transformers = document.get("transformers")
    have = transformers.get("version") if transformers else None
    # What the base has is good only where all hold: it knows the model, the minimum, and the engine's bounds.
    good = bool(
        transformers
        and transformers.get("known") is True
        and (minimum is None or at_least(have, minimum))
        and (not specifiers or specifiers.contains(str(have), prereleases=True))
    )
    if good:
        plan["transformers"] = have
        plan["why"].append(f"The base image's transformers {have} knows {model_type} and is new enough; {demand}.")
    else:
        chosen = choose(pin, minimum, specifiers)
        if chosen is None:
            plan["refuse"] = f"{profile['name']} needs transformers {minimum} or newer, but {demand}. {advice}"
            return plan
        plan["transformers"] = chosen
        wrong = _what_is_wrong(transformers, have, minimum, specifiers, model_type)
        plan["why"].append(
            f"The base image's transformers {have or 'is missing and'} {wrong}; {demand}, and {chosen} satisfies both."
        )
        plan["pip"].append(f"transformers=={chosen}")
        if chosen == pin:
            # The other pins belong to the pinned transformers. With another one, pip finds what goes with it.
            for other in (r for r in pins if canonicalize_name(r.name) not in ("transformers", "ray")):
                plan["pip"].append(_within(other, requires, engine, plan["why"]))
    if document.get("ray") is False:
        extra = requirements_on(requires, "ray", "ray")
        ray = next((str(r) for r in pins if canonicalize_name(r.name) == "ray"), None)
        if ray is None and extra:
            ray = _without_marker(extra[0])
        plan["pip"].append(ray or engine_requirements()[engine]["ray"])
        plan["why"].append(f"The base image lacks Ray; {plan['pip'][-1]} is installed.")
    plan["build"] = bool(plan["pip"])
    if not plan["build"]:
        plan["why"].append("Nothing has to be built.")
    plan["labels"] = {
        "sparkgate.engine": f"{engine} {found['version']}",
        "sparkgate.transformers": str(plan["transformers"]),
        "sparkgate.profile": str(profile["name"]),
        "sparkgate.why": " ".join(plan["why"]),
    }
    return plan


def _within(pin: Requirement, requires: Iterable[str], engine: str, why: list[str]) -> str:
    """The profile's pin, or what the engine requires where the pin is outside of that."""
    version = next(iter(pin.specifier)).version
    for demand in requirements_on(requires, canonicalize_name(pin.name)):
        if demand.specifier and version not in demand.specifier:
            wanted = _without_marker(demand)
            why.append(f"{engine} requires {wanted}, so the profile's {pin} is not used.")
            return wanted
    return str(pin)


def _without_marker(requirement: Requirement) -> str:
    extras = f"[{','.join(sorted(requirement.extras))}]" if requirement.extras else ""
    return f"{requirement.name}{extras}{requirement.specifier}"


def _what_is_wrong(
    transformers: Mapping[str, t.Any] | bool | None,
    have: str | None,
    minimum: str | None,
    specifiers: SpecifierSet,
    model_type: str | None,
) -> str:
    if not transformers or isinstance(transformers, bool) or transformers.get("known") is False:
        return f"does not know {model_type}"
    if minimum is not None and not at_least(have, minimum):
        return f"is older than {minimum}, which the model needs"
    if not specifiers.contains(str(have), prereleases=True):
        return f"is not what the engine requires ({specifiers})"
    return f"does not say whether it knows {model_type}"
