"""Which extra specs and image properties are known, and what becomes of the others."""

from __future__ import annotations

import pytest

from models.errors import Rejected
from models.hardware import Flavor, Image
from models.hardware.requirements.extra_specs import (
    extra_spec,
    image_property,
    refuse_keys_of_flavor,
    refuse_keys_of_image,
)
from models.hardware.requirements.known_keys import EXTRA_SPECS, PROPERTIES, YES_OR_NO, Effect
from models.hardware.requirements.numa_constraints import guest_topology


def flavor(specs: dict[str, str]) -> Flavor:
    return Flavor("f", 2, 1024, extra_specs=specs)


def refused(specs: dict[str, str] | None = None, **properties: object) -> Rejected:
    image = Image("i", properties=properties)
    with pytest.raises(Rejected) as caught:
        refuse_keys_of_image(image) if specs is None else refuse_keys_of_flavor(flavor(specs))
    return caught.value


@pytest.mark.parametrize(
    ("key", "meant"),
    [
        ("hw:cpu_polciy", "hw:cpu_policy"),
        ("HW:cpu_policy", "hw:cpu_policy"),
        ("hw_cpu_policy", "hw:cpu_policy"),
        ("cpu_policy", "hw:cpu_policy"),
        ("hw:numa_node", "hw:numa_nodes"),
        ("hw:mem_pagesize", "hw:mem_page_size"),
        ("resource:VCPU", "resources:VCPU"),
        ("traits:CUSTOM_FAST", "trait:CUSTOM_FAST"),
        ("agregate_instance_extra_specs:ssd", "aggregate_instance_extra_specs:ssd"),
        ("pci_passtrough:alias", "pci_passthrough:alias"),
        ("quota:cpu_qouta", "quota:cpu_quota"),
        ("ssd", "aggregate_instance_extra_specs:ssd"),
    ],
)
def test_a_misspelt_extra_spec_is_refused_with_the_nearest_known_one(key: str, meant: str) -> None:
    error = refused({key: "dedicated"})
    assert (error.code, error.key) == ("extra_spec_unknown", key)
    assert error.message.startswith(f"{key} is 'dedicated': ")
    assert meant in error.message


@pytest.mark.parametrize("key", ["hw:colour", "tenant:tier", "hw:", "trait:", "capabilities:", ":"])
def test_an_extra_spec_like_no_other_is_refused_too(key: str) -> None:
    assert refused({key: "1"}).code == "extra_spec_unknown"


@pytest.mark.parametrize(
    ("key", "meant"),
    [
        ("hw_cpu_polciy", "hw_cpu_policy"),
        ("hw:cpu_policy", "hw_cpu_policy"),
        ("HW_CPU_POLICY", "hw_cpu_policy"),
        ("hwcpu_policy", "hw_cpu_policy"),
        ("os_secureboot", "os_secure_boot"),
        ("trait_required", "traits_required"),
        ("architecture", "hw_architecture"),
        ("resources:VCPU", "flavor"),
    ],
)
def test_a_misspelt_image_property_is_refused_with_the_nearest_known_one(
    key: str, meant: str
) -> None:
    error = refused(**{key: "dedicated"})
    assert (error.code, error.key) == ("image_property_unknown", key)
    assert meant in error.message


@pytest.mark.parametrize("key", [key for key in EXTRA_SPECS if "cpu_policy" not in key])
def test_a_blank_extra_spec_is_refused_rather_than_counted_as_not_given(key: str) -> None:
    for blank in ("", "  "):
        assert refused({key: blank}).code == "extra_spec_blank"


def test_a_blank_thread_policy_is_refused_by_whoever_reads_it() -> None:
    with pytest.raises(Rejected) as caught:
        guest_topology(flavor({"hw:cpu_thread_policy": ""}), Image(""))
    assert caught.value.code == "cpu_thread_policy_invalid"


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("hw:viommu_model", "intel"),
        ("hw:tpm_secret_security", "host"),
        ("quota:disk_io_limit", "100"),
        ("hw:mem_encryption", "yes"),
        ("hw:ephemeral_encryption", "true"),
        ("hw:pmem", "6GB,4GB"),
        ("hw:numa_mempolicy", "strict"),
        ("accel:device_profile", "gpu"),
    ],
)
def test_what_no_host_can_grant_is_refused_by_key_value_and_rule(key: str, value: str) -> None:
    error = refused({key: value})
    assert (error.code, error.key) == ("not_supported", key)
    assert error.message.startswith(f"{key} is '{value}': ")


def test_what_an_image_wants_and_no_host_can_grant_is_refused_too() -> None:
    for key, value in (
        ("hw_iommu_model", "intel"),
        ("hw_vif_multiqueue_enabled", True),
        ("hw_floppy_bus", "fdc"),
        ("hw_vm_mode", "xen"),
        ("hw_mem_encryption", True),
        ("img_config_drive", "mandatory"),
        ("img_signature", "abc"),
        ("img_hv_type", "kvm"),
    ):
        assert refused(**{key: value}).key == key


def test_values_that_ask_for_nothing_are_taken() -> None:
    specs = {"hw:mem_encryption": "false"}
    refuse_keys_of_flavor(flavor(specs))
    properties = {"hw_vm_mode": "hvm", "hw_mem_encryption": False, "os_distro": "debian"}
    refuse_keys_of_image(Image("i", properties=properties))


@pytest.mark.parametrize("key", sorted(YES_OR_NO))
def test_a_value_that_is_neither_yes_nor_no_is_refused_rather_than_taken_for_no(key: str) -> None:
    of_flavor = key in EXTRA_SPECS
    error = refused({key: "maybe"}) if of_flavor else refused(**{key: "maybe"})
    code = "extra_spec_invalid" if of_flavor else "image_property_invalid"
    assert (error.code, error.key) == (code, key)
    assert (
        error.message == f"{key} is 'maybe': it must be yes or no, true or false, on or off, 1 or 0"
    )


@pytest.mark.parametrize("value", ["no", "False", " off ", "0", "N", "f", False, 0])
def test_every_spelling_of_no_is_taken(value: object) -> None:
    for key in sorted(YES_OR_NO):
        if key in EXTRA_SPECS:
            refuse_keys_of_flavor(flavor({key: str(value)}))
        else:
            refuse_keys_of_image(Image("i", properties={key: value}))


def test_only_what_an_image_says_of_itself_has_no_effect() -> None:
    informed = [key for key, known in PROPERTIES.items() if known.effect is Effect.INFORMATION]
    assert not [key for key, known in EXTRA_SPECS.items() if known.effect is Effect.INFORMATION]
    about_hardware = [key for key in informed if key.startswith("hw_")]
    assert about_hardware == ["hw_rescue_bus", "hw_rescue_device"]


def test_the_fitter_refuses_unknown_hardware_keys_and_reads_no_other_namespace() -> None:
    for known in (flavor({"hw:tpm_version": "2.0"}), flavor({"colour": "red"})):
        assert guest_topology(known, Image("")) is None
    with pytest.raises(Rejected) as caught:
        guest_topology(flavor({"hw:cpu_polciy": "dedicated"}), Image(""))
    assert caught.value.key == "hw:cpu_polciy"
    with pytest.raises(Rejected) as caught:
        guest_topology(flavor({}), Image("", properties={"hw_numanodes": "2"}))
    assert caught.value.key == "hw_numanodes"


def test_no_known_name_is_taken_for_a_mistake() -> None:
    assert all(extra_spec(key) is known for key, known in EXTRA_SPECS.items())
    assert all(image_property(key) is known for key, known in PROPERTIES.items())
    for key in ("description", "build_date", "owner_specified.shade.md5", "org.openstack__1__id"):
        known = image_property(key)
        assert known is not None
        assert known.effect is Effect.INFORMATION
