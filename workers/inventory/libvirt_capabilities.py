"""The capabilities XML of libvirt to reports of NUMA cells."""

from __future__ import annotations

from collections.abc import Iterator
from xml.etree.ElementTree import Element, ParseError

from defusedxml import DefusedXmlException
from defusedxml.ElementTree import fromstring

from models.errors import Rejected
from models.hardware import HIGHEST_CPU, CpuMask, PagePool, mask_of, parse_cpu_list
from models.units import KIB_PER_MIB
from workers.inventory.hardware_findings import SMALL_PAGE_KIB, CellReport, over_reported_kib

_UNIT_BYTES = {
    "b": 1,
    "bytes": 1,
    "KB": 1000,
    "k": 1024,
    "KiB": 1024,
    "M": 1024**2,
    "MiB": 1024**2,
    "G": 1024**3,
    "GiB": 1024**3,
    "TiB": 1024**4,
}


def cells_of_capabilities(text: str) -> tuple[tuple[CellReport, ...], tuple[str, ...]]:
    """Return the NUMA cells of `virsh capabilities`, and what a person should know.

    A CPU that is listed without its siblings, where others have theirs, is offline and left
    out. Raises `Rejected` naming the element that is missing or not understood.
    """
    try:
        root = fromstring(text)
    except (ParseError, DefusedXmlException) as error:
        raise Rejected("xml_invalid", f"the XML cannot be read: {error}") from None
    elements = root.findall("./host/topology/cells/cell")
    if root.tag != "capabilities" or not elements:
        message = "it has no capabilities/host/topology/cells/cell"
        raise Rejected("topology_missing", message, key="capabilities")
    listed = [cpu for element in elements for cpu in element.iterfind("./cpus/cpu")]
    offline_known = any(cpu.get("siblings") for cpu in listed)
    cells = tuple(_cell(element, offline_known) for element in elements)
    return tuple(sorted(cells, key=lambda cell: cell.id)), tuple(_complaints(cells))


def _cell(element: Element, offline_known: bool) -> CellReport:
    cpus = [
        cpu
        for cpu in element.iterfind("./cpus/cpu")
        if cpu.get("siblings") is not None or not offline_known
    ]
    online = mask_of(_cpu_number(cpu) for cpu in cpus)
    memory = element.find("memory")
    pools = tuple(_pool(pages) for pages in element.iterfind("pages"))
    # libvirt lists ordinary pages first, if any; huge ones alone are those of 4 KiB machines.
    base_kib = min((pool.size_kib for pool in pools), default=SMALL_PAGE_KIB)
    return CellReport(
        id=_number(element, "id"),
        cpus=online,
        cores=frozenset(_core(cpu) & online for cpu in cpus),
        sockets=frozenset(_number(cpu, "socket_id") for cpu in cpus if cpu.get("socket_id")),
        memory_kib=0 if memory is None else _bytes(memory, memory.text) // 1024,
        pools=pools,
        base_page_kib=base_kib if base_kib < KIB_PER_MIB else SMALL_PAGE_KIB,
    )


def _core(cpu: Element) -> CpuMask:
    return parse_cpu_list(cpu.get("siblings") or "") | 1 << _cpu_number(cpu)


def _pool(pages: Element) -> PagePool:
    size_kib = _bytes(pages, pages.get("size")) // 1024
    return PagePool(size_kib, _whole(pages.text, "pages"))


def _complaints(cells: tuple[CellReport, ...]) -> Iterator[str]:
    for cell in cells:
        # Less than a MiB is how the whole-MiB memory of a cell is rounded, not a false report.
        excess_kib = over_reported_kib(cell.memory_kib, cell.pools)
        if excess_kib >= KIB_PER_MIB:
            yield (
                f"NUMA cell {cell.id} over-reports its pages by {excess_kib} KiB: "
                "small ones are cut to what the large ones leave"
            )


def _bytes(element: Element, amount: str | None) -> int:
    unit = element.get("unit", "KiB")
    if unit not in _UNIT_BYTES:
        message = f"{element.tag} has unit {unit[:20]!r}: one of {', '.join(_UNIT_BYTES)}"
        raise Rejected("xml_invalid", message, key=element.tag)
    return _whole(amount, element.tag) * _UNIT_BYTES[unit]


def _cpu_number(cpu: Element) -> int:
    number = _number(cpu, "id")
    if number > HIGHEST_CPU:
        raise Rejected("xml_invalid", f"cpu id is {number}: the highest is {HIGHEST_CPU}", key="id")
    return number


def _number(element: Element, attribute: str) -> int:
    return _whole(element.get(attribute), f"{element.tag} {attribute}")


def _whole(text: str | None, what: str) -> int:
    digits = (text or "").strip()
    if not (digits.isascii() and digits.isdigit() and len(digits) < 20):
        raise Rejected("xml_invalid", f"{what} is {digits[:40]!r}: a whole number", key=what)
    return int(digits)
