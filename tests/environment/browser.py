"""The browser in which tests look at pages: found on the machine, or installed like a service."""

import shutil
from collections.abc import Callable
from dataclasses import dataclass

from tests.environment import services

PACKAGES = ("chromium", "chromium-driver")
HOW = f"sudo apt-get install {' '.join(PACKAGES)}"
_PROGRAMS = ("chromium", "chromium-browser", "google-chrome")


@dataclass(frozen=True)
class Browser:
    """A browser and the program that drives it, as paths."""

    program: str
    driver: str


def find() -> Browser | None:
    """Return the browser of this machine, if it has one that can be driven."""
    program = next(filter(None, map(shutil.which, _PROGRAMS)), None)
    driver = shutil.which("chromedriver")
    return Browser(program, driver) if program and driver else None


def ensure(report: Callable[[str], None]) -> None:
    """Install the browser where it is missing and that is ours to do, and say how things are.

    Without one the tests that need it fail, and all others run.
    """
    if find() is None and services.may_install():
        services.install(PACKAGES, report)
    found = find()
    report(f"{'Chromium':<11} {found.program if found else f'missing: {HOW}'}")
