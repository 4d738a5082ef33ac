"""How findable the code is: modules a folder, imports of ours a module, names that occur twice.

Run as `python -m tests.house.numbers`; `test_rooms.py` holds the limits.
"""

from __future__ import annotations

import ast
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from functools import cache
from pathlib import Path
from statistics import quantiles

CHECKOUT = Path(__file__).resolve().parents[2]
PACKAGES = ("conductor", "models", "tasks", "workers")
SAME_EVERYWHERE = {"__init__", "__main__", "ports", "settings"}
"""Names that mean the same in every folder."""


def modules() -> Iterator[Path]:
    """Every module of the product, without migrations, which are named by their numbers."""
    for package in PACKAGES:
        for path in sorted((CHECKOUT / package).rglob("*.py")):
            if "versions" not in path.parts:
                yield path.relative_to(CHECKOUT)


def modules_by_folder() -> Mapping[str, Sequence[str]]:
    """The modules of each folder, `__init__` and `__main__` apart."""
    found: dict[str, list[str]] = defaultdict(list)
    for path in modules():
        if not path.stem.startswith("__"):
            found[str(path.parent)].append(path.stem)
    return found


def repeated_names() -> Mapping[str, Sequence[str]]:
    """Module names that stand in more than one folder although they mean different things."""
    found: dict[str, list[str]] = defaultdict(list)
    for path in modules():
        if path.stem not in SAME_EVERYWHERE:
            found[path.stem].append(str(path))
    return {name: paths for name, paths in found.items() if len(paths) > 1}


@cache
def _known() -> frozenset[str]:
    return frozenset(str(p.with_suffix("")).replace("/", ".") for p in modules())


def own_imports(path: Path) -> frozenset[str]:
    """The modules of ours that a module imports, wherever in it."""
    found = set()
    for node in ast.walk(ast.parse((CHECKOUT / path).read_text("utf-8"))):
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module:
            inside = {f"{node.module}.{alias.name}" for alias in node.names}
            found |= (inside & _known()) or {node.module}
    return frozenset(name for name in found if name.partition(".")[0] in PACKAGES)


def imports_by_module() -> Mapping[str, int]:
    """How many modules of ours each module imports."""
    return {str(path): len(own_imports(path)) for path in modules()}


def main() -> None:
    """Print the numbers."""
    print("modules  folder")
    for folder, names in sorted(modules_by_folder().items(), key=lambda item: -len(item[1])):
        print(f"{len(names):7}  {folder}")
    counts = imports_by_module()
    tenths = quantiles(counts.values(), n=10)
    print(f"\nimports of ours a module: p50 {tenths[4]:.0f}, p90 {tenths[8]:.0f}, ", end="")
    print(f"most {max(counts.values())}")
    for path, count in sorted(counts.items(), key=lambda item: -item[1])[:5]:
        print(f"{count:7}  {path}")
    repeated = repeated_names()
    print(f"\nmodule names that mean different things: {len(repeated)}")
    for name, paths in sorted(repeated.items()):
        print(f"  {name}: {', '.join(paths)}")


if __name__ == "__main__":
    main()
