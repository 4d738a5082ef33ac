"""Where a simulated hypervisor keeps its guests: one file each, renamed whole into place."""

from __future__ import annotations

import json
from pathlib import Path
from typing import get_args
from urllib.parse import quote, unquote

from models.errors import Broken, ConductorError, Rejected
from models.ids import InstanceId, is_uuid
from models.messages.base import parse
from models.messages.guests.guest_definition import GuestDefinition
from workers.hypervisor.ports import GuestDomain, Power

EFFECTS = "effects.jsonl"
IMAGES = "images.json"
MACHINE = "machine-id"
_POWERS = get_args(Power)


def read_domains(directory: Path) -> dict[InstanceId, GuestDomain]:
    """Return every guest of a directory, in the order in which they were last changed."""
    files = sorted(directory.glob("*.domain"), key=lambda path: (_changed_at(path), path.name))
    return {domain.instance_id: domain for domain in map(_read, files)}


def write_domain(
    directory: Path, instance_id: InstanceId, verb: str, after: GuestDomain | None
) -> None:
    """Save one guest, or that there is none, and what did it; raise `Broken` when that fails."""
    # An id comes from outside: quoted, it cannot name a file elsewhere.
    path = directory / f"{quote(instance_id, safe='')}.domain"
    try:
        if after is None:
            path.unlink(missing_ok=True)
        else:
            _replace(path, json.dumps(_to_json(after)))
        _record_effect(directory, instance_id, verb)
    except OSError as error:
        raise _failed(path, error) from error


def read_images(directory: Path) -> frozenset[str]:
    """Return the ids of the cached images; none where the list is missing or damaged."""
    try:
        return frozenset(json.loads((directory / IMAGES).read_text(encoding="utf-8")))
    except (OSError, ValueError, TypeError):
        # A cache may be lost: what is not known to be whole is downloaded again.
        return frozenset()


def read_machine_id(directory: Path, fresh: str) -> str:
    """Return the id kept in a directory, which is made; keep the fresh one where there is none.

    Raises `Rejected` (`hypervisor_state`) for what an operator has to mend: no folder, no id.
    """
    path = directory / MACHINE
    try:
        directory.mkdir(parents=True, exist_ok=True)
        known = path.read_text(encoding="utf-8", errors="replace").strip() if path.exists() else ""
        if not known:
            _replace(path, fresh)
    except OSError as error:
        message = f"the simulated hypervisor cannot use {directory}: {error.strerror}"
        raise Rejected("hypervisor_state", message, path=str(directory)) from error
    if known and not is_uuid(known):
        message = f"{path} holds no UUID: whose guests these are is not known"
        raise Rejected("hypervisor_state", message, path=str(path))
    return known or fresh


def write_images(directory: Path, owner: InstanceId, verb: str, after: frozenset[str]) -> None:
    """Save which images are cached, and what did it; raise `Broken` when that fails."""
    path = directory / IMAGES
    try:
        _replace(path, json.dumps(sorted(after)))
        _record_effect(directory, owner, verb)
    except OSError as error:
        raise _failed(path, error) from error


def _changed_at(path: Path) -> int:
    """Return when a file was changed, 0 for one that cannot be looked at."""
    try:
        return path.stat().st_mtime_ns
    except OSError:
        return 0


def _read(path: Path) -> GuestDomain:
    instance_id = InstanceId(unquote(path.name.removesuffix(".domain")))
    try:
        saved = json.loads(path.read_text(encoding="utf-8"))
        spec = parse(GuestDefinition, saved["spec"])
        copied_to, disk = saved.get("copied_to"), saved.get("disk", "")
        power = saved["power"]
        if power not in _POWERS:
            return GuestDomain(instance_id, "nostate", spec, disk=disk)
        return GuestDomain(instance_id, power, spec, copied_to=copied_to, disk=disk)
    except (OSError, ValueError, KeyError, TypeError, ConductorError) as error:
        # One unreadable guest must not hide the others.
        return GuestDomain(instance_id, "nostate", None, fault=_why_unreadable(error))


def _why_unreadable(error: Exception) -> str:
    """Return it in words of ours: what was raised may show the host's paths and the file's text."""
    why = error.code if isinstance(error, ConductorError) else type(error).__name__
    return f"its definition cannot be read ({why})"


def _to_json(domain: GuestDomain) -> dict[str, object]:
    spec = domain.spec.to_json() if domain.spec else None
    return {
        "power": domain.power,
        "spec": spec,
        "copied_to": domain.copied_to,
        "disk": domain.disk,
    }


def _replace(path: Path, content: str) -> None:
    draft = path.with_suffix(".draft")
    draft.write_text(content, encoding="utf-8")
    draft.replace(path)


def _record_effect(directory: Path, instance_id: InstanceId, verb: str) -> None:
    with (directory / EFFECTS).open("a", encoding="utf-8") as effects:
        effects.write(json.dumps({"instance_id": instance_id, "verb": verb}) + "\n")


def _failed(path: Path, error: OSError) -> Broken:
    message = f"the simulated hypervisor cannot save {path.name}: {error.strerror}"
    return Broken("hypervisor_state", message, file=path.name)
