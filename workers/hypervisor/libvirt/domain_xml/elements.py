"""Small things that all parts of a domain's XML are made with."""

from __future__ import annotations

from xml.etree.ElementTree import Element, SubElement


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
