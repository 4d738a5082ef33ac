"""Small things that all parts of a domain's XML are made with."""

from __future__ import annotations

import re
from typing import Final
from xml.etree.ElementTree import Element, SubElement

_NOT_IN_A_LINE: Final = re.compile("[^\u0020-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")
"""Line breaks, and what XML 1.0 has no way to write, escaped or not."""


def child(parent: Element, tag: str, text: object = None, **attributes: object) -> Element:
    """Add an element with text and attributes, those that are None left out; return it."""
    given = {
        name.rstrip("_"): str(value) for name, value in attributes.items() if value is not None
    }
    element = SubElement(parent, tag, given)
    if text is not None:
        element.text = str(text)
    return element


def on_off(value: bool) -> str:
    """Return how libvirt writes a switch."""
    return "on" if value else "off"


def in_one_line(text: str) -> str:
    """Return words of a person as one line that XML can hold."""
    return " ".join(_NOT_IN_A_LINE.sub(" ", text).split())
