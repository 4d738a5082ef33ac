"""Every golden guest is one that libvirt and QEMU can make, not only one that the schema allows."""

from __future__ import annotations

from typing import Any

import libvirt
import pytest

from tests.hypervisors.conftest import Host
from tests.hypervisors.golden_guests import DISKS, EMULATED, GUESTS, ID, KVM, ROOT
from workers.hypervisor.libvirt.domain_xml.host_context import HostContext
from workers.hypervisor.libvirt.domain_xml.reading import definition_in, is_ours
from workers.hypervisor.libvirt.domain_xml.writing import domain_xml


@pytest.mark.parametrize("host", [EMULATED, KVM], ids=lambda host: host.virtualization)
@pytest.mark.parametrize("name", GUESTS)
def test_libvirt_defines_every_golden_guest_and_gives_it_back(
    hosts: list[Host], name: str, host: HostContext
) -> None:
    disks = DISKS if name == "every-device" else (ROOT,)
    xml = domain_xml(ID, GUESTS[name], host, disks)

    def define(connection: Any) -> str:
        domain = connection.defineXMLFlags(xml, libvirt.VIR_DOMAIN_DEFINE_VALIDATE)
        try:
            return str(domain.XMLDesc(0))
        finally:
            domain.undefineFlags(libvirt.VIR_DOMAIN_UNDEFINE_NVRAM)

    kept = hosts[0].hypervisor.control.connection.call("define", define)
    assert is_ours(kept)
    assert definition_in(kept) == GUESTS[name]
