"""Settings are read once, refused by name, and never say a password."""

import pytest

from conductor.settings import Settings, read_settings
from models.errors import Rejected


def test_an_unknown_variable_is_refused_by_name() -> None:
    with pytest.raises(Rejected, match="CONDUCTOR_COLOUR is not a known setting"):
        read_settings({"CONDUCTOR_COLOUR": "red"})


def test_a_wrong_value_is_refused_with_its_rule() -> None:
    with pytest.raises(Rejected, match="CONDUCTOR_METRICS_PORT is 70000: should be less than"):
        read_settings({"CONDUCTOR_METRICS_PORT": "70000"})


@pytest.mark.parametrize("value", ["inf", "nan", "1e400", "-1", "99999999999999999999"])
@pytest.mark.parametrize(
    "name", [name for name, value in Settings() if isinstance(value, int | float)]
)
def test_no_number_is_endless_negative_or_beyond_what_anybody_means(name: str, value: str) -> None:
    variable = f"CONDUCTOR_{name.upper()}"
    with pytest.raises(Rejected, match=f"^{variable} is "):
        read_settings({variable: value})


@pytest.mark.parametrize("name", ["CONDUCTOR_HEARTBEAT_S", "CONDUCTOR_TICK_S"])
def test_nobody_is_to_be_taken_for_dead_between_two_beats(name: str) -> None:
    rule = f"CONDUCTOR_DOWN_AFTER_S is 30: should be at least twice {name}, which is 15.1"
    with pytest.raises(Rejected, match=f"^{rule}$"):
        read_settings({name: "15.1"})
    read_settings({name: "15"})


@pytest.mark.parametrize(
    ("name", "value", "rule"),
    [
        ("CONDUCTOR_FILTERS", "in_zone, in_cell", "should be NAME,NAME"),
        ("CONDUCTOR_FILTERS", ",", "should be NAME,NAME"),
        ("CONDUCTOR_WEIGHERS", "less_busy", "should be NAME=NUMBER"),
        ("CONDUCTOR_WEIGHERS", "less_busy=1e5", "should be NAME=NUMBER"),
    ],
)
def test_a_wrong_list_is_refused_with_how_it_is_written(name: str, value: str, rule: str) -> None:
    with pytest.raises(Rejected, match=f"^{name} is {value}: {rule}"):
        read_settings({name: value})


@pytest.mark.parametrize("name", ["CONDUCTOR_METRICS_PORT", "CONDUCTOR_PORT"])
def test_what_kubernetes_injects_for_a_service_of_that_name_is_no_setting(name: str) -> None:
    settings = read_settings({name: "tcp://10.0.0.7:9180", "CONDUCTOR_SERVICE_HOST": "10.0.0.7"})
    assert settings.metrics_port == 0


def test_the_password_of_flower_is_in_no_text_of_the_settings() -> None:
    settings = read_settings({"CONDUCTOR_FLOWER_PASSWORD": "canary-3c"})
    assert settings.flower_password.get_secret_value() == "canary-3c"
    assert "canary-3c" not in f"{settings!r} {settings} {settings.model_dump_json()}"


@pytest.mark.parametrize(
    ("url", "rule"),
    [
        ("redis://:canary-3c@h/0", "should begin with amqp:// or amqps://, not with redis://"),
        ("memory://", "not with memory://"),
        ("http://h", "not with http://"),
        ("filesystem://", "not with filesystem://"),
        ("canary-3c@h", "should begin with amqp://"),
        ("amqp://a:canary-3c@h:port/", "a port is a number"),
        ("amqp://h:99999", "a port is a number"),
        ("amqp://h:0", "a port is a number"),
        ("amqp://h;redis://h", "not with redis://"),
    ],
)
def test_a_url_that_is_no_broker_is_refused_with_the_rule_and_without_its_password(
    url: str, rule: str
) -> None:
    with pytest.raises(Rejected) as caught:
        read_settings({"CONDUCTOR_BROKER_URL": url})
    assert caught.value.message.startswith("CONDUCTOR_BROKER_URL is ***: ")
    assert rule in caught.value.message
    assert "canary-3c" not in caught.value.message


@pytest.mark.parametrize("url", ["amqp://", "amqps://a:b@h:5671/v", "amqp://h1;amqp://h2", ""])
def test_urls_of_brokers_are_taken(url: str) -> None:
    assert read_settings({"CONDUCTOR_BROKER_URL": url}).broker_url == url


def test_a_result_backend_that_we_do_not_write_to_is_refused() -> None:
    with pytest.raises(Rejected, match=r"CONDUCTOR_RESULT_URL is .*redis://"):
        read_settings({"CONDUCTOR_RESULT_URL": "rpc://"})


def test_a_variable_in_small_letters_is_refused_with_how_it_is_written() -> None:
    with pytest.raises(Rejected, match="conductor_strategy is not read: write CONDUCTOR_STRATEGY"):
        read_settings({"conductor_strategy": "pack"})


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("CONDUCTOR_PLACEMENT_URL", "x"),
        ("CONDUCTOR_PLACEMENT_URL", "ftp://placement.example.org"),
        ("CONDUCTOR_METRICS_ADDRESS", "127.0.0.1:9100"),
        ("CONDUCTOR_METRICS_ADDRESS", "two words"),
    ],
)
def test_an_address_that_is_none_is_refused_by_name(name: str, value: str) -> None:
    with pytest.raises(Rejected, match=f"^{name} is "):
        read_settings({name: value})


@pytest.mark.parametrize("url", ["http://placement:8778", "https://user:word@[::1]/placement"])
def test_urls_of_a_placement_server_are_taken(url: str) -> None:
    assert read_settings({"CONDUCTOR_PLACEMENT_URL": url}).placement_url.get_secret_value() == url
