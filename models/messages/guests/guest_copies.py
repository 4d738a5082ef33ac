"""How a running guest is copied to another host: where to, and within which limits."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import Field

from models.messages.base import Message


class CopyPolicy(Message):
    """The limits of a copy; what is not set is left to the hypervisor.

    A guest that writes faster than its memory can be copied is slowed down (`auto_converge`), or
    goes on at the target before all of it is there (`post_copy`: should the network fail then, the
    guest is lost). After `timeout_s` the copy is given up, or the guest paused until it is there.
    """

    bandwidth_mib_s: Annotated[int, Field(ge=1, le=2**31 - 1)] | None = None
    downtime_ms: Annotated[int, Field(ge=1, le=2_000_000)] | None = None
    auto_converge: bool = True
    post_copy: bool = False
    timeout_s: Annotated[float, Field(gt=0, le=86_400)] | None = None
    on_timeout: Literal["abort", "pause"] = "abort"


class CopyTarget(Message):
    """The host where the guest waits; `destination` is what that host's hypervisor said of it."""

    target: str
    destination: dict[str, Any] = {}
    policy: CopyPolicy = CopyPolicy()
