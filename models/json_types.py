"""JSON objects as Python holds them: one to read, one to build."""

from collections.abc import Mapping
from typing import Any, TypeAlias

Json: TypeAlias = Mapping[str, Any]
"""A JSON object that is only read."""

JsonDict: TypeAlias = dict[str, Any]
"""A JSON object that its owner builds or changes."""
