# Copyright (c) 2026, The sparkgate.blackwell authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

# Note that this module util is **PRIVATE** to the collection. It can have breaking changes at any time.
# Do not use this from other collections or standalone plugins/modules!

"""Find, merge and validate model profiles."""

from __future__ import annotations

import dataclasses
import difflib
import hashlib
import json
import re
import typing as t
from collections.abc import Mapping, Sequence
from pathlib import Path

import yaml

SHIPPED = Path(__file__).parent / "profiles"
SCHEMA_VERSION = 1


class ProfileError(Exception):
    """A profile that cannot be used; the text names file, key and remedy."""


@dataclasses.dataclass(frozen=True)
class Field:
    """What one key of a profile may hold."""

    kind: t.Literal["map", "list", "str", "int", "number", "any"]
    required: bool = True
    nullable: bool = False
    choices: tuple[t.Any, ...] = ()
    pattern: str = ""
    hint: str = ""
    # For maps: the known keys. None means that any key is allowed.
    keys: Mapping[str, Field] | None = None
    # For lists, and for maps with free keys: what each value is.
    each: Field | None = None


_KINDS: dict[str, tuple[type, ...]] = {
    "map": (Mapping,),
    "list": (list, tuple),
    "str": (str,),
    "int": (int,),
    "number": (int, float),
    "any": (object,),
}
_NAMES = {"map": "a mapping", "list": "a list", "str": "a string", "int": "a whole number", "number": "a number"}

_VERSION = Field(
    "str", required=False, pattern=r"\d+(\.\w+)*", hint="Write the version in quotes, for example '5.2.0'."
)
_SOURCE = Field("str", hint="Say where the statement comes from.")
_ENGINE = Field(
    "list",
    required=False,
    each=Field(
        "map",
        keys={
            "versions": Field("str", hint="Give a version range such as '>=0.5.11'."),
            "args": Field(
                "map", hint="Arguments of the engine without the leading dashes, for example kv-cache-dtype: auto."
            ),
            "env": Field(
                "map", required=False, each=Field("str", hint="Quote the value: an environment variable is text.")
            ),
            "source": _SOURCE,
        },
    ),
)

SCHEMA = Field(
    "map",
    keys={
        "schema": Field("int", choices=(SCHEMA_VERSION,)),
        "name": Field(
            "str",
            pattern=r"[a-z0-9]+([._-][a-z0-9]+)*",
            hint="Use lower case letters, digits, and single . _ or - between them.",
        ),
        "model": Field(
            "map",
            keys={
                "id": Field(
                    "str",
                    pattern=r"[A-Za-z0-9_][\w.-]*/[A-Za-z0-9_][\w.-]*",
                    hint="Give owner/name, as the hub spells it.",
                ),
                "revision": Field("str", nullable=True, hint="Give a commit, or null to resolve it on the first run."),
                "source": _SOURCE,
            },
        ),
        "accelerator": Field("str", choices=("cuda", "cpu")),
        "config": Field(
            "map",
            keys={
                "architecture": Field("str"),
                "model_type": Field("str"),
                **{
                    key: Field("int", required=False, nullable=True)
                    for key in (
                        "hidden_size",
                        "num_hidden_layers",
                        "full_attention_interval",
                        "num_attention_heads",
                        "num_key_value_heads",
                        "head_dim",
                        "linear_num_key_heads",
                        "linear_num_value_heads",
                        "num_experts",
                        "num_experts_per_tok",
                        "moe_intermediate_size",
                        "shared_expert_intermediate_size",
                        "max_position_embeddings",
                        "vocab_size",
                    )
                },
                "source": _SOURCE,
            },
        ),
        "quantization": Field(
            "str", nullable=True, hint="Give the checkpoint's quant_method, or null for unquantized weights."
        ),
        "fp8_block": Field("list", required=False, nullable=True, each=Field("int")),
        "kv_scales": Field("any", required=False),
        "weight_bytes": Field("int", nullable=True, hint="Give the number of bytes, or null where no source says it."),
        "min_versions": Field(
            "map",
            keys={"transformers": _VERSION, "sglang": _VERSION, "vllm": _VERSION, "ray": _VERSION, "source": _SOURCE},
        ),
        "image": Field(
            "map",
            keys={
                "base": Field("str", pattern=r"[^\s@]+", hint="Give repository:tag; the digest has a key of its own."),
                "digest": Field(
                    "str",
                    nullable=True,
                    pattern=r"sha256:[0-9a-f]{64}",
                    hint="Give sha256:…, or null to resolve it on the first run.",
                ),
                "engines": Field("list", each=Field("str", choices=("sglang", "vllm"))),
                "pip": Field(
                    "list",
                    each=Field("str", pattern=r"[A-Za-z0-9._-]+(\[[\w,-]+\])?==\S+", hint="Pin it: name==version."),
                ),
                "source": _SOURCE,
            },
        ),
        "container": Field(
            "map",
            keys={
                "options": Field(
                    "map",
                    keys={
                        "gpus": Field("str", required=False, nullable=True),
                        "devices": Field("list", required=False, each=Field("str")),
                        "cap_add": Field("list", required=False, each=Field("str")),
                        "cap_drop": Field("list", required=False, each=Field("str")),
                        "ulimits": Field("map", required=False, each=Field("any")),
                        "volumes": Field("list", required=False, each=Field("str")),
                    },
                ),
            },
        ),
        "default_engine": Field("str", choices=("sglang", "vllm")),
        "engines": Field("map", keys={"sglang": _ENGINE, "vllm": _ENGINE}),
        "smoke": Field("map", keys={"partial": Field("map", keys={"layers": Field("int")})}),
        "answer": Field(
            "map",
            keys={
                "prompt": Field("str"),
                "max_tokens": Field("int"),
                "oracle": Field("str", choices=("transformers", "none")),
                "dtype": Field(
                    "map", keys={"sglang": Field("str", required=False), "vllm": Field("str", required=False)}
                ),
                "contains": Field("str", nullable=True),
            },
        ),
        "known_results": Field(
            "list",
            required=False,
            each=Field("map", keys={"what": Field("str"), "result": Field("str"), "source": _SOURCE}),
        ),
    },
)


def check(field: Field, value: t.Any, key: str, file: str) -> None:
    """Raise ProfileError for the first thing that is not as the field wants it."""

    def wrong(problem: str, remedy: str) -> ProfileError:
        return ProfileError(f"Profile {file}: {key or 'the file'} {problem}. {remedy or field.hint or 'Correct it.'}")

    if value is None:
        if not field.nullable:
            raise wrong("is empty", field.hint)
        return
    right: bool = isinstance(value, _KINDS[field.kind])
    if not right or (isinstance(value, bool) and field.kind in {"int", "number"}):
        raise wrong(f"is {value!r}, but must be {_NAMES[field.kind]}", field.hint)
    if field.choices and value not in field.choices:
        raise wrong(f"is {value!r}", f"Use one of: {', '.join(map(str, field.choices))}.")
    if field.pattern and not re.fullmatch(field.pattern, t.cast(str, value)):
        raise wrong(f"is {value!r}", field.hint)
    if field.kind == "list":
        for index, item in enumerate(value):
            check(field.each or Field("any"), item, f"{key}[{index}]", file)
    elif field.kind == "map":
        for name, item in value.items():
            path = f"{key}.{name}" if key else str(name)
            if field.keys is None:
                if field.each:
                    check(field.each, item, path, file)
                continue
            if name not in field.keys:
                near = difflib.get_close_matches(str(name), field.keys, n=1)
                remedy = f"Did you mean {near[0]}?" if near else f"Known here: {', '.join(sorted(field.keys))}."
                raise ProfileError(f"Profile {file}: {path} is not a key of a profile. {remedy}")
            check(field.keys[name], item, path, file)
        for name, sub in (field.keys or {}).items():
            if sub.required and name not in value:
                path = f"{key}.{name}" if key else name
                raise ProfileError(f"Profile {file}: {path} is missing. {sub.hint or 'Add it.'}")


def validate(profile: Mapping[str, t.Any], file: str) -> None:
    """Raise ProfileError at the first key that is wrong."""
    check(SCHEMA, profile, "", file)
    engine = profile["default_engine"]
    if not profile["engines"].get(engine):
        raise ProfileError(
            f"Profile {file}: engines.{engine} is missing, but default_engine is {engine}. Describe the engine, "
            "or choose another default."
        )
    for name, entries in profile["engines"].items():
        if entries and profile["answer"]["oracle"] != "none" and name not in profile["answer"]["dtype"]:
            raise ProfileError(
                f"Profile {file}: answer.dtype.{name} is missing. Name the data type in which the oracle and "
                f"{name} both compute."
            )


def merge(base: Mapping[str, t.Any], extra: Mapping[str, t.Any]) -> dict[str, t.Any]:
    """Merge mappings key by key; lists and scalars of the second replace those of the first."""
    merged = dict(base)
    for key, value in extra.items():
        old = merged.get(key)
        merged[key] = merge(old, value) if isinstance(old, Mapping) and isinstance(value, Mapping) else value
    return merged


def canonical_digest(document: t.Any) -> str:
    """The sha256 of a document's canonical JSON."""
    text = json.dumps(document, sort_keys=True, separators=(",", ":"), ensure_ascii=True)
    return "sha256:" + hashlib.sha256(text.encode()).hexdigest()


def find(name: str, search: Sequence[str | Path]) -> Path:
    """The file of a profile, given by path or by name."""
    if "/" in name or name.endswith((".yml", ".yaml")):
        path = Path(name).expanduser()
        if path.is_file():
            return path
        raise ProfileError(
            f"There is no profile file {path} on the controller. Correct the path, or give the name of a "
            f"shipped profile: {', '.join(shipped())}."
        )
    folders = [Path(folder).expanduser() for folder in search] + [SHIPPED]
    for folder in folders:
        for suffix in (".yml", ".yaml"):
            path = folder / (name + suffix)
            if path.is_file():
                return path
    near = difflib.get_close_matches(name, shipped(), n=1)
    remedy = f"Did you mean {near[0]}?" if near else f"Shipped are: {', '.join(shipped())}."
    raise ProfileError(
        f"There is no profile called {name} in {', '.join(map(str, folders[:-1])) or 'the collection'}. {remedy}"
    )


def shipped() -> list[str]:
    """The names of the profiles that come with the collection."""
    return sorted(path.stem for path in SHIPPED.glob("*.yml"))


def _read(path: Path, search: Sequence[str | Path], seen: tuple[Path, ...]) -> dict[str, t.Any]:
    resolved = path.resolve()
    if resolved in seen:
        raise ProfileError(f"Profile {path}: extends comes back to {path.name}. Break the circle.")
    try:
        data = yaml.safe_load(path.read_text(encoding="utf-8"))
    except (OSError, UnicodeDecodeError, yaml.YAMLError) as exc:
        raise ProfileError(f"Profile {path} cannot be read: {exc}. Correct the YAML.") from exc
    if not isinstance(data, dict):
        raise ProfileError(
            f"Profile {path} holds {type(data).__name__}, not a mapping of keys. See the shipped profiles for "
            "an example."
        )
    parent = data.pop("extends", None)
    if parent is None:
        return data
    if not isinstance(parent, str):
        raise ProfileError(f"Profile {path}: extends is {parent!r}. Give the name or the path of one profile.")
    if parent.startswith("."):
        parent = str(path.parent / parent)
    return merge(_read(find(parent, search), search, (*seen, resolved)), data)


def load(name: str, search: Sequence[str | Path] = ()) -> dict[str, t.Any]:
    """Load, merge and validate a profile, and add its digest."""
    path = find(name, search)
    profile = _read(path, search, ())
    validate(profile, str(path))
    return {**profile, "digest": canonical_digest(profile)}
