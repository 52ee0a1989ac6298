# Copyright (c) 2026, The sparkgate.blackwell authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Every role documents exactly the variables that it has."""

from __future__ import annotations

import typing as t
from pathlib import Path

import pytest
import yaml

ROOT = Path(__file__).resolve().parents[2]
ROLES = sorted(path.parent.parent for path in (ROOT / "roles").glob("*/tasks/main.yml"))


def load(path: Path) -> dict[str, t.Any]:
    return (yaml.safe_load(path.read_text()) or {}) if path.exists() else {}


def specs(role: Path) -> dict[str, t.Any]:
    found: dict[str, t.Any] = load(role / "meta" / "argument_specs.yml").get("argument_specs", {})
    return found


@pytest.mark.parametrize("role", ROLES, ids=lambda role: role.name)
def test_every_default_is_documented(role: Path) -> None:
    defaults = set(load(role / "defaults" / "main.yml"))
    documented = {name for spec in specs(role).values() for name in spec.get("options", {})}
    assert defaults - documented == set(), "in defaults/main.yml, but in no entry point of meta/argument_specs.yml"


@pytest.mark.parametrize("role", ROLES, ids=lambda role: role.name)
def test_every_documented_variable_has_its_default(role: Path) -> None:
    """A variable is required, or has a default, or its description says what its absence means."""
    defaults = load(role / "defaults" / "main.yml")
    wrong = []
    for entry, spec in specs(role).items():
        for name, option in spec.get("options", {}).items():
            literal = name in defaults and "{{" not in str(defaults[name])
            if name not in defaults and "default" in option:
                wrong.append(f"{entry}: {name} has a default in the specification only")
            elif literal and defaults[name] is not None and option.get("default") != defaults[name]:
                wrong.append(
                    f"{entry}: {name} is {defaults[name]!r} in defaults, {option.get('default')!r} in the specification"
                )
    assert wrong == []


@pytest.mark.parametrize("role", ROLES, ids=lambda role: role.name)
def test_names_carry_the_role(role: Path) -> None:
    shared = "sparkgate_" if role.name == "common" else f"{role.name}_"
    names = {name for spec in specs(role).values() for name in spec.get("options", {})}
    assert {name for name in names if not name.startswith((shared, f"{role.name}_"))} == set()


@pytest.mark.parametrize("role", ROLES, ids=lambda role: role.name)
def test_the_role_is_described(role: Path) -> None:
    assert "main" in specs(role), "meta/argument_specs.yml lacks the entry point main"
    assert (role / "README.md").exists()
    assert load(role / "meta" / "main.yml").get("galaxy_info", {}).get("description")


# common resolves it; preflight looks at the inventory before a node is contacted, and node_recon brings common along.
WITHOUT_DEPLOYMENT = ("common", "preflight")


@pytest.mark.parametrize("role", ROLES, ids=lambda role: role.name)
def test_the_role_knows_the_deployment(role: Path) -> None:
    wanted = [] if role.name in WITHOUT_DEPLOYMENT else ["sparkgate.blackwell.common"]
    found = [entry["role"] for entry in load(role / "meta" / "main.yml").get("dependencies", [])]
    assert found == wanted
