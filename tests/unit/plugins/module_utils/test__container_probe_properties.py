# Copyright (c) 2026, The sparkgate.blackwell authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""What a container prints and what lies beside a model's weights can be anything."""

from __future__ import annotations

import contextlib
import json
import typing as t

import pytest
from ansible_collections.sparkgate.blackwell.plugins.module_utils._container_probe import (
    MARKER,
    ProbeError,
    explain,
    parse_document,
)
from ansible_collections.sparkgate.blackwell.plugins.plugin_utils import _container_program
from hypothesis import example, given, settings
from hypothesis import strategies as st

START = f"{MARKER} n0nce "
values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(), inner, max_size=4),
    max_leaves=12,
)
documents = st.dictionaries(st.text(), values, max_size=5)
# Much of it looks like what is looked for.
noise = st.lists(
    st.text()
    | st.sampled_from([START, f"{MARKER} other {{}}", f"\n{START}", f"{START}[1]\n", f'{START}{{"a": ', "\r", "}"])
).map("".join)


@settings(deadline=2000, max_examples=150)
@given(documents, st.text(), st.text(), st.sampled_from(["\n", ""]))
@example({"a": "\u2028"}, "banner without end", "}} {", "")
def test_a_document_is_found_whatever_is_around_it(
    document: dict[str, t.Any], before: str, after: str, end: str
) -> None:
    out = f"{before}\n{START}{json.dumps(document)}{end}{after}"
    assert parse_document(out, "n0nce") == document
    assert explain(0, out, [], {"image": "a", "timeout": 1, "entrypoint": "used"}, "n0nce") is None


@settings(deadline=2000, max_examples=150)
@given(noise, noise)
@example(START + "[" * 100_000, "")
@example(START + '{"a":' * 100_000, "")
@example((START + "[") * 50_000, "")
def test_noise_gives_a_document_or_is_refused(out: str, more: str) -> None:
    with contextlib.suppress(ProbeError):
        assert isinstance(parse_document(out + more, "n0nce"), dict)


@pytest.mark.parametrize("out", ["", START, f"{START}nonsense", f"{START}[]", f"{MARKER} other {{}}"])
def test_no_document(out: str) -> None:
    with pytest.raises(ProbeError, match="no document that can be read"):
        parse_document(out, "n0nce")


def test_an_earlier_document_is_taken_where_the_last_is_cut_off() -> None:
    assert parse_document(f'{START}{{"a": 1}}\n{START}{{"a": ', "n0nce") == {"a": 1}


@settings(deadline=2000, max_examples=150)
@given(st.binary() | values.map(lambda value: json.dumps(value).encode()))
@example(b"[" * 100_000)
@example(b'{"a":' * 100_000)
@example(b"\xff\xfe{")
@example(b"9" * 5000)
def test_a_configuration_is_an_object_or_is_refused(data: bytes) -> None:
    with contextlib.suppress(ValueError):
        assert isinstance(_container_program.read_config(data), dict)


def test_a_configuration_is_not_read_without_end() -> None:
    data = b"{}" + b" " * _container_program.CONFIG_MAXIMUM_BYTES
    with pytest.raises(ValueError, match="more than 16 MiB"):
        _container_program.read_config(data)


@settings(deadline=2000, max_examples=150)
@given(
    st.dictionaries(
        st.sampled_from([*_container_program.EXPERTS, *_container_program.TEXT_CONFIGS]),
        values | st.dictionaries(st.sampled_from(_container_program.EXPERTS), values),
    )
)
def test_a_dimension_is_a_number_or_unknown(config: dict[str, t.Any]) -> None:
    assert type(_container_program._dimension(config, _container_program.EXPERTS)) in (int, type(None))
