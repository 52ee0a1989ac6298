# Copyright (c) 2026, The sparkgate.blackwell authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

# Note that this plugin util is private to the collection. It can have breaking changes at any time without warning.

"""The parts of packaging that the collection uses.

ansible-core depends on packaging, so that it is on every controller. The sanity test that imports each plugin has an
environment without it, which is the only reason for the second branch.
"""

from __future__ import annotations

try:
    from packaging.requirements import InvalidRequirement, Requirement
    from packaging.specifiers import InvalidSpecifier, SpecifierSet
    from packaging.utils import canonicalize_name
    from packaging.version import InvalidVersion, Version
except ImportError:
    InvalidRequirement = InvalidSpecifier = InvalidVersion = ValueError  # type: ignore[assignment, misc]
    Requirement = SpecifierSet = Version = canonicalize_name = None  # type: ignore[assignment, misc]

__all__ = [
    "InvalidRequirement",
    "InvalidSpecifier",
    "InvalidVersion",
    "Requirement",
    "SpecifierSet",
    "Version",
    "canonicalize_name",
]
