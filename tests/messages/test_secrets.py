"""A secret that somebody sends all the same is refused by name, and its value goes no further."""

from __future__ import annotations

import json
import time
from collections.abc import Mapping
from typing import Any

import pytest

from models.errors import Rejected
from models.messages.requests import parse_request
from models.secrets import MASK, is_secret, masked, masked_text, secret_fields, shown

CANARY = "canary-91c2"
BUILD = "conductor.build_instances"
INSTANCE = {"name": "web", "flavor": "small", "image": "debian"}


def refusal(instance: Mapping[str, Any]) -> Rejected:
    body = {"context": {"project_id": "p"}, "instance": instance}
    with pytest.raises(Rejected) as refused:
        parse_request(BUILD, body)
    return refused.value


@pytest.mark.parametrize(
    "name",
    [
        *("password", "adminPass", "admin_password", "db.password", "API_KEY", "apiKey"),
        *("user_data", "userData", "personality", "token", "auth-token", "private_key_pem"),
        *(
            "apikey",
            "APIKEY",
            "pw",
            "db_pw",
            "jwt",
            "id_jwt",
            "authorization",
            "db_pass",
            "sharedKey",
        ),
        *("accountkey", "sessionId", "psk", "bearer", "clientKey", "dsn"),
        *("AWS_SECRET_ACCESS_KEY", "passwordHash", "password2", "secrets", "credentials"),
    ],
)
def test_a_field_is_a_secret_by_its_last_word(name: str) -> None:
    assert is_secret(name)


@pytest.mark.parametrize(
    "name",
    [
        *("key_name", "secret_ref", "token_ttl_s", "password_policy", "project_id", "compass"),
        *("hw:tpm_secret_security", "cinder_encryption_key_id", "trait:A_SECRET_DEPLOYMENT"),
    ],
)
def test_what_is_about_a_secret_is_none(name: str) -> None:
    assert not is_secret(name)


@pytest.mark.parametrize("name", ["admin_password", "user_data", "personality"])
def test_an_unknown_secret_is_refused_by_name_only(name: str) -> None:
    error = refusal({**INSTANCE, name: CANARY})
    assert (error.code, error.message) == (
        "field_unknown",
        f"instance.{name} is not a known field",
    )


def test_a_secret_among_what_may_be_named_freely_is_refused_by_name_only() -> None:
    error = refusal({**INSTANCE, "metadata": {"db_password": CANARY}})
    assert (error.code, error.key) == ("secret_refused", "instance.metadata.db_password")
    assert CANARY not in json.dumps(error.to_json())
    error = refusal({**INSTANCE, "networks": [{"id": "n"}, {"token": CANARY}]})
    assert error.key == "instance.networks.1.token"


def test_a_complaint_about_the_whole_masks_the_secrets_in_it() -> None:
    error = refusal({"name": "web", "flavor": "small", "metadata": {"password": CANARY}})
    assert "image or block_devices is needed" in error.message
    assert CANARY not in error.message
    assert MASK in error.message


def test_a_complaint_about_a_secret_masks_it_whatever_its_type() -> None:
    assert "55555" not in refusal({**INSTANCE, "metadata": {"password": 55555}}).message
    assert CANARY not in refusal({**INSTANCE, "metadata": f"password={CANARY}"}).message


def test_public_words_of_flavors_and_images_are_no_secrets() -> None:
    flavor = {"vcpus": 1, "memory_mb": 512, "extra_specs": {"quota:token": "5"}}
    body = {"context": {"project_id": "p"}, "instance": {**INSTANCE, "flavor": flavor}}
    assert parse_request(BUILD, body)
    assert masked(body) == body


def test_masking_leaves_what_it_was_given_as_it_was() -> None:
    given = {"a": [{"password": CANARY, "kept": 1}], "secrets": {"x": {"y": CANARY}}, "token": None}
    before = json.dumps(given)
    assert masked(given) == {
        "a": [{"password": MASK, "kept": 1}],
        "secrets": {"x": {"y": MASK}},
        "token": None,
    }
    assert json.dumps(given) == before
    assert list(secret_fields(given)) == ["a.0.password", "secrets", "token"]


def test_the_tokens_of_our_own_asks_are_no_secrets() -> None:
    token = {"operation_id": "o", "step": "spawn", "attempt": 1, "sequence": 3, "fence": 2}
    assert masked({"token": token}) == {"token": token}
    assert masked({"token": {"value": CANARY}}) == {"token": {"value": MASK}}


def test_whatever_is_nested_too_deep_to_look_at_is_masked() -> None:
    nested: Any = CANARY
    for _ in range(900):
        nested = [nested]
    assert CANARY not in json.dumps(masked(nested))


@pytest.mark.parametrize(
    "text",
    [
        '{"instance": {"admin_password": "%s", "name": "web"',
        '{"password": "a\\"%s", "x": 1',
        "{'user_data': '%s'}",
        '"{\\"token\\": \\"%s\\"}',
        "amqp password=%s&x=1",
        'secrets: ["a", "%s"',
        'credentials = {"a": {"b": "%s"',
        '"api_key"\n:\n%s',
        "<vm><password>%s</password><name>web</name></vm>",
        '<password kind="plain">%s</password>',
        "<password>%s",
        "<a:password>%s</a:password>",
        "<password><![CDATA[%s]]></password>",
        "<auth><secret><a>%s</a></secret></auth>",
        '<entry key="db_password">%s</entry>',
        '<property name="apikey" value="%s"/>',
        "<user password='%s'/>",
        "password: |\n  first\n  %s\nname: web",
        "password: >-\n    first\n\n    %s\n",
        "password:\n  - a\n  - %s\nname: web",
        "- db:\n    pw: %s\n",
        "password: two %s",
        "apikey=%s",
        "Authorization: Bearer %s",
        "https://me:%s@example.org/x",
        "-----BEGIN RSA PRIVATE KEY-----\n%s\n-----END RSA PRIVATE KEY-----",
        "x eyJhbGciOiJIUzI1NiJ9.eyJzdWIiOiIxIn0.%s y",
    ],
)
def test_secrets_in_text_that_is_no_json_are_masked_too(text: str) -> None:
    safe = masked_text(text % CANARY)
    assert CANARY not in safe
    assert MASK in safe


def test_an_object_that_names_its_value_is_masked_and_refused() -> None:
    given = {"env": [{"name": "DB_PASSWORD", "value": CANARY}, {"name": "MODE", "value": "x"}]}
    safe = {"env": [{"name": "DB_PASSWORD", "value": MASK}, {"name": "MODE", "value": "x"}]}
    assert masked(given) == safe
    assert list(secret_fields(given)) == ["env.0.value"]


def test_what_is_beside_a_secret_in_xml_and_yaml_stays() -> None:
    assert (
        masked_text("<vm><pw>x</pw><name>web</name></vm>")
        == "<vm><pw>***</pw><name>web</name></vm>"
    )
    assert masked_text("password: |\n  a\nname: web").endswith("name: web")


def test_text_without_secrets_stays_to_the_letter() -> None:
    text = '{"instance": {"name": "web", "key_name": "k", "at": 12:30}, broken'
    assert masked_text(text) == text


@pytest.mark.parametrize(
    "text",
    [
        "a" * 10**6,
        "password " * 10**5,
        "<password>" * 10**5,
        "<a " * 10**5,
        "://" * 10**5,
        'password="' + '\\"' * 10**5,
    ],
)
def test_long_text_is_masked_in_time_that_grows_with_it(text: str) -> None:
    began = time.monotonic()
    masked_text(text)
    assert time.monotonic() - began < 5


def test_a_quoted_value_is_short_and_masked() -> None:
    assert shown({"password": CANARY}) == '{"password": "***"}'
    assert shown(f"token: {CANARY}") == '"token: ***"'
    assert len(shown("x" * 1_000)) == 80
