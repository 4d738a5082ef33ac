"""Import every module of the tests, so that a rename which breaks one is seen in seconds.

Run as `python -m tests.house.importable`. Twice as fast as pytest's own collection, which
rewrites assertions and makes every parameter a test.
"""

from __future__ import annotations

import importlib
import io
import sys
import warnings
from contextlib import redirect_stdout

from tests.environment.variables import CHECKOUT

OPTIONAL = {"libvirt"}
"""Not in every `.venv`: only `make hypervisor` installs it."""


def main() -> int:
    """Print the modules that cannot be imported, with the reason; return 1 when there are any."""
    warnings.simplefilter("ignore")
    broken = 0
    for path in sorted((CHECKOUT / "tests").rglob("*.py")):
        if path.stem == "__main__":
            continue
        name = ".".join(path.relative_to(CHECKOUT).with_suffix("").parts)
        try:
            with redirect_stdout(io.StringIO()):  # some log what they prepare
                importlib.import_module(name.removesuffix(".__init__"))
        except ModuleNotFoundError as error:
            if error.name not in OPTIONAL:
                print(f"{path.relative_to(CHECKOUT)}: {error}")
                broken += 1
        except Exception as error:  # noqa: BLE001  # whatever it is, it is to be named
            print(f"{path.relative_to(CHECKOUT)}: {type(error).__name__}: {error}")
            broken += 1
    return bool(broken)


if __name__ == "__main__":
    sys.exit(main())
