"""Any value of any key that a guest can see is in its domain, or is refused by the key's name."""

from __future__ import annotations

from typing import Any
from xml.etree.ElementTree import Element, fromstring, tostring

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from models.errors import Rejected
from models.hardware import Flavor, Image
from models.hardware.requirements.extra_specs import refuse_keys_of_flavor, refuse_keys_of_image
from models.hardware.requirements.known_keys import Effect, rows
from models.messages.guests.guest_definition import GuestDefinition
from models.messages.guests.requested_hardware import (
    hardware_of,
    refuse_flavor_values,
    refuse_image_values,
)
from tests.hypervisors.golden_guests import DISKS, ID, KVM, complaints, why_not_validated
from tests.hypervisors.requested_keys import KEYS, VCPUS, is_of_both, sides
from workers.hypervisor.libvirt.domain_xml.writing import domain_xml

ELSEWHERE = ("hw_cdrom_bus", "hw_vif_model")
"""What decides only which hosts are used: no guest has such a device yet."""
PLACED = "decides which hosts, CPUs, pages and devices are used"


def requested(specs: dict[str, str], properties: dict[str, Any]) -> str:
    """The domain of a guest of a flavor and an image, or what refuses them."""
    flavor = Flavor("f", VCPUS, 1024, extra_specs=specs)
    image = Image("i", properties=properties)
    refuse_keys_of_flavor(flavor)
    refuse_keys_of_image(image)
    refuse_flavor_values(flavor)
    refuse_image_values(image)
    guest = GuestDefinition(
        name="g", vcpus=VCPUS, memory_mib=1024, disk_gb=1, hardware=hardware_of(flavor, image)
    )
    return domain_xml(ID, guest, KVM, DISKS)


def outcome(specs: dict[str, str], properties: dict[str, Any]) -> Element | Rejected:
    try:
        return fromstring(requested(specs, properties))
    except Rejected as refused:
        return refused


def test_every_key_that_is_acted_on_in_the_guest_is_here() -> None:
    shown = {
        name
        for _, name, known in rows()
        if known.effect is Effect.ACTED_ON and known.why != PLACED and "NAME" not in name
    }
    here = {key for key in KEYS if ":" in key or not is_of_both(key)}
    here |= {key.replace(":", "_") for key in KEYS if is_of_both(key)}
    assert shown == here | set(ELSEWHERE)


@pytest.mark.parametrize("key", KEYS)
@given(data=st.data())
@settings(max_examples=15, deadline=None, suppress_health_check=list(HealthCheck))
@pytest.mark.hypothesis
def test_a_value_that_is_taken_is_in_the_domain(key: str, data: st.DataObject) -> None:
    value = data.draw(KEYS[key].values)
    for specs, properties in sides(key, value):
        made = outcome(specs, properties)
        assert not isinstance(made, Rejected), made
        assert KEYS[key].shows(made, value), (specs, properties)


@pytest.mark.parametrize("key", [key for key in KEYS if not KEYS[key].is_free])
@given(data=st.data())
@settings(max_examples=15, deadline=None, suppress_health_check=list(HealthCheck))
@pytest.mark.hypothesis
def test_any_other_value_is_in_the_domain_or_refused_by_the_name_of_its_key(
    key: str, data: st.DataObject
) -> None:
    value = data.draw(st.text(max_size=12) | st.integers().map(str) | st.sampled_from(
        ["-1", "0", "5", "1e3", "1.5", "required", "none", "virtio", "9" * 30, "\x00", "²"]
    ))  # fmt: skip
    for specs, properties in sides(key, value):
        made = outcome(specs, properties)
        if isinstance(made, Rejected):
            named = {made.key, str(made.key).replace("_", ":", 1)}
            assert named & {key, *KEYS[key].beside}, made.message
            assert made.message.startswith(f"{made.key} is ")
        else:
            assert KEYS[key].may_be_open(value) or KEYS[key].shows(made, value.strip()), value


@pytest.mark.skipif(why_not_validated() is not None, reason=str(why_not_validated()))
@given(st.data())
@settings(max_examples=10, deadline=None, suppress_health_check=list(HealthCheck))
@pytest.mark.hypothesis
def test_whatever_is_taken_together_is_as_the_schema_of_libvirt_has_it(data: st.DataObject) -> None:
    texts = []
    for _ in range(10):
        specs: dict[str, str] = {}
        properties: dict[str, str] = {}
        for key in data.draw(st.lists(st.sampled_from(sorted(KEYS)), max_size=6)):
            more, others = sides(key, data.draw(KEYS[key].values))[-1]
            specs, properties = {**specs, **more}, {**properties, **others}
        made = outcome(specs, properties)
        if isinstance(made, Rejected):
            assert made.key in {**specs, **properties}, made.message
        else:
            texts.append(tostring(made, encoding="unicode"))
    assert not complaints(texts)
