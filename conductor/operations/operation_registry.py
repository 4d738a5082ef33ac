"""Every operation by kind, found in the modules of this package, so that one file adds one."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from importlib import import_module
from pkgutil import iter_modules
from typing import Any, Final

import conductor.operations as package
from conductor.operations.engine.definition import Operation


def _operations() -> Iterator[Operation[Any]]:
    """Import every module of the package and yield the operations in it, imported ones too."""
    for module in iter_modules(package.__path__, f"{package.__name__}."):
        if module.ispkg or module.name == __name__:
            continue
        for value in vars(import_module(module.name)).values():
            if isinstance(value, Operation) and not value.template:
                yield value


OPERATIONS: Final[Mapping[str, Operation[Any]]] = {
    operation.kind: operation for operation in sorted(_operations(), key=lambda found: found.kind)
}
"""In the order of their kinds."""
