"""Settings: read once from `CONDUCTOR_*`, checked, frozen, passed on."""

from __future__ import annotations

import ipaddress
import os
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Literal
from urllib.parse import urlsplit

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, SecretStr, ValidationError

from models.errors import Rejected
from models.secrets import MASK, is_secret

PREFIX = "CONDUCTOR_"

# Kubernetes injects these for every service that happens to be called `conductor`.
_HTTP_URL = re.compile(r"https?://(\S+@)?(\[[0-9A-Fa-f:.]+\]|[A-Za-z0-9._-]+)(:\d{1,5})?(/\S*)?")
_HOST_NAME = re.compile(r"[A-Za-z0-9]([A-Za-z0-9.-]{0,251}[A-Za-z0-9])?")
_FROM_KUBERNETES = re.compile(
    r"CONDUCTOR_(\w+_)?(SERVICE_(HOST|PORT)(_\w+)?|PORT(_\d+_(TCP|UDP|SCTP)(_(PROTO|PORT|ADDR))?)?)"
)
_PORT_OF_A_SERVICE = ("tcp://", "udp://", "sctp://")

# What has no end is not waited for; whoever asks for it has mistyped.
Seconds = Annotated[float, Field(gt=0, le=86_400, allow_inf_nan=False)]
Ratio = Annotated[float, Field(ge=1.0, le=1_000_000, allow_inf_nan=False)]
Whole = Annotated[int, Field(ge=0, le=2**31 - 1)]


def _listed(pattern: str, rule: str) -> AfterValidator:
    def checked(text: str) -> str:
        if not all(
            re.fullmatch(pattern, name) for name in text.removesuffix(",").split(",") if text
        ):
            raise ValueError(rule)
        return text

    return AfterValidator(checked)


def _url(*schemes: str) -> AfterValidator:
    """Accept URLs with one of the schemes, several with `;` between; what is in them is secret."""
    rule = f"should begin with {' or '.join(f'{scheme}://' for scheme in schemes)}"

    def checked(text: str) -> str:
        for name in filter(None, text.split(";")):
            scheme, separator, _ = name.partition("://")
            if not separator or scheme not in schemes:
                given = f", not with {scheme[:20]}://" if separator and scheme.isalnum() else ""
                raise ValueError(rule + given)
            try:
                port = urlsplit(name).port
            except ValueError:
                port = 0
            if port == 0:
                raise ValueError("its host or port is none: a port is a number from 1 to 65535")
        return text

    return AfterValidator(checked)


def _served_over_http(url: SecretStr) -> SecretStr:
    if url.get_secret_value() and not _HTTP_URL.fullmatch(url.get_secret_value()):
        raise ValueError("should be http://HOST or https://HOST, with a port and a path or without")
    return url


def _address(text: str) -> str:
    try:
        ipaddress.ip_address(text)
    except ValueError:
        if not _HOST_NAME.fullmatch(text):
            raise ValueError("should be an IP address or a host's name") from None
    return text


BrokerUrl = Annotated[str, _url("amqp", "amqps")]
ResultUrl = Annotated[str, _url("redis", "rediss", "unix")]
Names = Annotated[str, _listed(r"[\w.-]+", "should be NAME,NAME,… without spaces")]
Multipliers = Annotated[
    str,
    _listed(r"[\w.-]+=-?\d{1,15}(\.\d+)?", "should be NAME=NUMBER,NAME=NUMBER,… without spaces"),
]


def default_state_dir() -> Path:
    """Return where an embedded system keeps its database, as the XDG rules have it."""
    base = os.environ.get("XDG_STATE_HOME") or Path.home() / ".local" / "state"
    return Path(base) / "conductor"


class Settings(BaseModel):
    """Everything that can be set. Without a broker the system is embedded in one process."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    database_url: str = ""
    broker_url: BrokerUrl = ""
    result_url: ResultUrl = ""
    placement_url: Annotated[SecretStr, AfterValidator(_served_over_http)] = SecretStr("")
    """An OpenStack Placement server that is asked before a claim counts, and told of all others."""
    state_dir: Path = Field(default_factory=default_state_dir)

    strategy: Literal["spread", "pack"] = "spread"
    filters: Names = ""
    """Names of the filters in force, in order; empty means all of ours."""
    weighers: Multipliers = ""
    """`NAME=MULTIPLIER` each: other multipliers for the strategy's weighers, or more of them."""
    scheduler_subset: Annotated[int, Field(ge=1, le=100_000)] | None = None
    """One of so many best hosts is drawn; 1 means the best, none given a share of the fleet."""
    cpu_allocation_ratio: Ratio = 4.0
    ram_allocation_ratio: Ratio = 1.0
    disk_allocation_ratio: Ratio = 1.0
    reserved_host_memory_mib: Whole = 0
    reserved_host_disk_gb: Whole = 0
    reserved_host_vcpus: Whole = 0

    heartbeat_s: Seconds = 5.0
    manifest_s: Seconds = 60.0
    down_after_s: Seconds = 30.0
    ask_again_s: Seconds = 15.0
    tick_s: Seconds = 1.0
    conductor_threads: Annotated[int, Field(ge=1, le=64)] = 4
    compute_threads: Annotated[int, Field(ge=1, le=64)] = 8
    confirm_after_s: Annotated[float, Field(ge=0, le=2**31, allow_inf_nan=False)] = 86_400.0
    """How long a move awaits confirmation before it is confirmed by itself; 0 is for ever."""
    retention_days: Annotated[float, Field(gt=0, le=36_500, allow_inf_nan=False)] = 30.0
    log_level: Literal["debug", "info", "warning", "error"] = "info"

    flower_user: str = "operator"
    flower_password: SecretStr = SecretStr("")
    metrics_port: Annotated[int, Field(ge=0, le=65_535)] = 0
    metrics_address: Annotated[str, AfterValidator(_address)] = "127.0.0.1"

    @property
    def embedded(self) -> bool:
        """Whether everything runs in one process, without services."""
        return not self.broker_url

    @property
    def store_url(self) -> str:
        """The database: the one that was set, or a SQLite file in the state directory."""
        return self.database_url or f"sqlite:///{self.state_dir / 'conductor.db'}"


def read_settings(environ: Mapping[str, str] | None = None) -> Settings:
    """Return the settings of the environment; raise `Rejected` naming variable, value and rule."""
    variables = os.environ if environ is None else environ
    ours = {name: value for name, value in variables.items() if name.startswith(PREFIX)}
    known = {PREFIX + name.upper() for name in Settings.model_fields}
    for name in sorted(variables):
        if name.upper().startswith(PREFIX) and name not in ours and name.upper() in known:
            message = f"{name} is not read: write {name.upper()}"
            raise Rejected("setting_unknown", message, key=name)
    for name in sorted(ours):
        if name not in known and not _FROM_KUBERNETES.fullmatch(name):
            raise Rejected("setting_unknown", f"{name} is not a known setting", key=name)
    given = {name: text for name, text in ours.items() if name in known}
    values = {
        name[len(PREFIX) :].lower(): text
        for name, text in given.items()
        if not (_FROM_KUBERNETES.fullmatch(name) and text.startswith(_PORT_OF_A_SERVICE))
    }
    try:
        settings = Settings.model_validate(values)
    except ValidationError as error:
        first = error.errors(include_url=False)[0]
        name = PREFIX + str(first["loc"][0]).upper()
        value = MASK if is_secret(name) or name.endswith("_URL") else first["input"]
        rule = first["msg"].removeprefix("Input ").removeprefix("Value error, ")
        message = f"{name} is {value}: {rule}"
        raise Rejected("setting_invalid", message, key=name) from None
    _refuse_what_contradicts(settings)
    return settings


def _refuse_what_contradicts(settings: Settings) -> None:
    """Raise `Rejected` where whoever beats would be taken for dead between two beats.

    Hosts and schedulers beat every `heartbeat_s`, conductors every `tick_s`.
    """
    for name in ("heartbeat_s", "tick_s"):
        every: float = getattr(settings, name)
        if settings.down_after_s < 2 * every:
            variable = PREFIX + name.upper()
            message = (
                f"{PREFIX}DOWN_AFTER_S is {settings.down_after_s:g}: should be at least twice "
                f"{variable}, which is {every:g}"
            )
            raise Rejected("setting_invalid", message, key=f"{PREFIX}DOWN_AFTER_S")
