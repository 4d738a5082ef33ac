"""How findable the code is, as limits. `python -m tests.house.numbers` prints where it stands."""

from __future__ import annotations

from statistics import quantiles

from tests.house.numbers import imports_by_module, modules_by_folder, repeated_names

MOST_MODULES = 15
CATALOGUES = {"conductor/cli/commands", "conductor/operations", "workers/actions"}
"""Folders of one module a command, operation or action: whoever knows its name has found it."""
MOST_IMPORTS = 15
USUAL_IMPORTS = 11
"""What is reached for nine of ten modules; the goal is 9."""


def test_no_folder_holds_more_modules_than_one_can_look_over() -> None:
    full = {
        folder: len(names)
        for folder, names in modules_by_folder().items()
        if len(names) > MOST_MODULES and folder not in CATALOGUES
    }
    assert not full, "make a folder of those that belong together, with a contract in .importlinter"


def test_no_two_modules_share_a_name() -> None:
    assert not repeated_names(), "name them by what is in them"


def test_no_module_imports_more_of_ours_than_it_can_be_about() -> None:
    wide = {path: count for path, count in imports_by_module().items() if count > MOST_IMPORTS}
    assert not wide, "split these modules by what they do"


def test_nine_of_ten_modules_import_few_of_ours() -> None:
    assert quantiles(imports_by_module().values(), n=10)[8] <= USUAL_IMPORTS
