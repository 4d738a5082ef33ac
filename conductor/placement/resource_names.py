"""The names that resource classes and traits may have: the field's, and custom ones made here."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable
from dataclasses import dataclass
from typing import Final

import os_resource_classes
import os_traits

from conductor.store import CatalogueEntry, UnitOfWork
from models.errors import Conflict, Rejected

_CUSTOM: Final = re.compile(r"CUSTOM_[A-Z0-9_]+")
_LONGEST: Final = 255


@dataclass(frozen=True, slots=True)
class Words:
    """Names of one kind; custom ones are entries of that kind in the catalogue.

    What is wrong with a name is told with the code `KIND_unknown`.
    """

    kind: str
    standard: frozenset[str]

    def ensure(self, uow: UnitOfWork, names: Iterable[str]) -> None:
        """Make the custom ones among these that are not there yet."""
        for name in sorted(set(names) - self.standard):
            if not is_custom(name):
                rule = f"one made here is CUSTOM_ and capitals, digits, _, at most {_LONGEST} long"
                raise self._unknown(name, rule)
            if uow.catalogue.get(self.kind, name) is None:
                _add(uow, CatalogueEntry(self.kind, name, {}, uow.now))

    def check(self, uow: UnitOfWork, names: Iterable[str], known: Collection[str] = ()) -> None:
        """Raise `Rejected` for the first that is neither standard, nor made here, nor `known`.

        `known` are names that are in use already: a host may tell of more than anybody has made.
        """
        for name in sorted(set(names) - self.standard - frozenset(known)):
            if uow.catalogue.get(self.kind, name) is None:
                raise self._unknown(name, "it is no standard one, and nobody has made it")

    def _unknown(self, name: str, rule: str) -> Rejected:
        message = f"{self.kind} is {name[:_LONGEST]!r}: {rule}"
        return Rejected(f"{self.kind}_unknown", message, key=self.kind, name=name[:_LONGEST])


CLASSES: Final = Words("resource_class", frozenset(map(str, os_resource_classes.STANDARDS)))
TRAITS: Final = Words("trait", frozenset(map(str, os_traits.get_traits())))


def is_custom(name: str) -> bool:
    """Say whether a name can be that of something made here."""
    return len(name) <= _LONGEST and _CUSTOM.fullmatch(name) is not None


def _add(uow: UnitOfWork, entry: CatalogueEntry) -> None:
    try:
        uow.catalogue.add(entry)
    except Conflict:
        # Somebody made it meanwhile, which is as good.
        return
