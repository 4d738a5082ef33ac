"""Which fields hold secrets, told by their names, and how such values are written down: masked.

No message of ours has a field for a secret: the guest or its host fetches its own. What a caller
puts into a request all the same is masked before it is stored, answered, logged or shown.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from typing import Any, Final

MASK: Final = "***"

_DEEPEST: Final = 64
_WORDS: Final = re.compile(r"[A-Z]+(?![a-z])|[A-Z]?[a-z]+|[0-9]+")
_SECRETS: Final = frozenset(
    {
        *("credential", "credentials", "passphrase", "passwd", "password", "passwords", "pwd"),
        *("personality", "secret", "secrets", "token", "tokens", "userdata", "pw", "pass"),
        *(
            "apikey",
            "apikeys",
            "accesskey",
            "accountkey",
            "secretkey",
            "privatekey",
            "jwt",
            "bearer",
            "cookie",
        ),
        *("authorization", "otp", "totp", "psk", "passcode", "passkey", "htpasswd"),
        *("apitoken", "authtoken", "sessionid", "csrf", "dsn", "creds", "cred", "kubeconfig"),
    }
)
_KEYS: Final = (
    *("access", "account", "api", "auth", "client", "encryption", "license", "luks"),
    *("master", "private", "secret", "service", "shared", "signing", "storage"),
)
_PAIRS: Final = frozenset(
    {
        *(("user", "data"), ("admin", "pass"), ("db", "pass"), ("root", "pass")),
        *(("key", "data"), ("key", "material"), ("auth", "header"), ("session", "id")),
        *((kind, word) for kind in _KEYS for word in ("key", "keys")),
    }
)
# What may follow the word that makes a field a secret without making it something else.
_QUALIFIERS: Final = frozenset({"b", "base64", "hash", "pem", "plain", "string", "text", "value"})
# Named by the field's vocabulary, whoever made them; everybody sees a flavor and an image.
_PUBLIC: Final = frozenset({"extra_specs", "properties"})
_TOKEN: Final = frozenset({"operation_id", "step", "attempt", "sequence"})

# A name begins where no name goes on before it: else a long one would be read from each character.
_NAMED: Final = re.compile(r"""(?<![\w.-])([\w.-]++)\\?["']?\s*+[:=]\s*+""")
# What is a secret whatever it is called: passwords in URLs, signed tokens, private keys.
_BY_ITSELF: Final = re.compile(
    r"(?P<before>://[^\s/:@\"'<>]{0,256}:)[^\s/@\"'<>]{1,1024}(?=@)"
    r"|\beyJ[\w-]{8,}\.[\w-]+(?:\.[\w-]*)?"
    r"|-----BEGIN [A-Z ]{0,40}PRIVATE KEY-----.*?(?:-----END [A-Z ]{0,40}PRIVATE KEY-----|\Z)",
    re.DOTALL,
)
# `<password kind="x">…`, and elements that name what they hold: `<entry key="password">…`.
_ELEMENT: Final = re.compile(r"<(?:[\w.-]+:)?([\w.-]+)((?:\s[^<>]*)?)>")
_SAYS_NAME: Final = re.compile(r"""\b(?:name|key|id|field|property)\s*=\s*["']([\w.-]+)["']""")
_SAYS_VALUE: Final = re.compile(r"""\b(value|content)\s*=\s*("[^"]*"?|'[^']*'?)""")
_PAIR: Final = ("name", "key", "field")
"""Where an object says what its `value` is, as lists of variables have it."""

# Of a list or an object the whole rest is the value: nothing says where it ends.
_VALUE: Final = re.compile(
    r"""[|>][+-]?[0-9]?[ \t]*\n(?:[ \t]+[^\n]*(?:\n|\Z)|[ \t]*\n)*"""
    r"""|(?:-[ \t][^\n]*(?:\n[ \t]*|\Z))+|(?:Bearer|Basic|Digest|Token)[ \t]+[^\s,;"']+"""
    r"""|[\[{].*|"(?:[^"\\]|\\.)*+"?|\\"(?:[^"\\]|\\[^"])*+(?:\\")?|'[^']*+'?"""
    r"""|[^\s,;&{}\[\]"'<>]++(?:[ \t]++[^\s,;&{}\[\]"'<>=:]++(?![=:]))*+""",
    re.DOTALL,
)


def is_secret(name: str) -> bool:
    """Say whether a field of this name holds a secret.

    Its last word says what a field is: `db_password` and `apiKey` are secrets, `token_ttl_s`,
    `secret_ref` and `key_name` are about one.
    """
    words = [word.lower() for word in _WORDS.findall(name)]
    while words and (words[-1] in _QUALIFIERS or words[-1].isdigit()):
        words.pop()
    return bool(words) and (words[-1] in _SECRETS or tuple(words[-2:]) in _PAIRS)


def masked(value: Any) -> Any:
    """Return JSON values with every secret in them masked; `value` itself stays as it is.

    What is nested deeper than 64 levels is masked whole: nothing of ours is.
    """
    return _masked(value, secret=False, deep=0)


def masked_text(text: str) -> str:
    """Return text that is no JSON with what follows a secret's name masked, as well as can be.

    Names are told in JSON that is cut, in YAML, XML, shells, queries and headers.
    """
    text = _BY_ITSELF.sub(lambda found: (found["before"] or "") + MASK, text)
    return _masked_named(_masked_elements(text) if "<" in text else text)


def _masked_elements(text: str) -> str:
    kept: list[str] = []
    at = 0
    for found in _ELEMENT.finditer(text):
        if found.start() < at:
            continue
        names_secret = _SAYS_NAME.search(found[2])
        if not is_secret(found[1]) and not (names_secret and is_secret(names_secret[1])):
            continue
        inside = _SAYS_VALUE.sub(lambda value: f'{value[1]}="{MASK}"', found[0])
        kept += text[at : found.start()], inside
        at = found.end()
        if not found[2].rstrip().endswith("/"):
            end = text.find(f"</{found[0][1:].split(maxsplit=1)[0].rstrip('>')}", at)
            kept.append(MASK)
            at = len(text) if end < 0 else end
    return "".join((*kept, text[at:]))


def _masked_named(text: str) -> str:
    kept: list[str] = []
    at = 0
    for found in _NAMED.finditer(text):
        if found.start() < at or not is_secret(found[1]):
            continue
        value = _VALUE.match(text, found.end())
        if value is not None:
            kept += text[at : found.end()], MASK
            at = value.end()
    return "".join((*kept, text[at:]))


def shown(value: Any, most: int = 80) -> str:
    """Return a value as an error quotes it: JSON, masked, at most `most` characters."""
    safe = masked_text(value) if isinstance(value, str) else masked(value)
    return json.dumps(safe, default=str)[:most]


def secret_fields(value: Any, path: str = "") -> Iterator[str]:
    """Return where secrets are in JSON values, as dotted paths."""
    if isinstance(value, Mapping):
        for name, item in value.items():
            here = f"{path}.{name}" if path else str(name)
            if is_secret(str(name)) or (name == "value" and _says_secret(value)):
                yield here
            elif name not in _PUBLIC:
                yield from secret_fields(item, here)
    elif isinstance(value, list | tuple):
        for place, item in enumerate(value):
            yield from secret_fields(item, f"{path}.{place}")


def _masked(value: Any, *, secret: bool, deep: int) -> Any:
    if deep > _DEEPEST:
        return MASK
    if isinstance(value, Mapping):
        names_secret = _says_secret(value)
        return {
            name: item
            if name in _PUBLIC and not secret
            else _masked(
                item,
                secret=_covers(secret or (names_secret and name == "value"), str(name), item),
                deep=deep + 1,
            )
            for name, item in value.items()
        }
    if isinstance(value, list | tuple):
        return [_masked(item, secret=secret, deep=deep + 1) for item in value]
    return MASK if secret and value is not None else value


def _says_secret(value: Mapping[Any, Any]) -> bool:
    """Say whether an object's `value` is a secret by the name that it gives beside it."""
    names = (value.get(part) for part in _PAIR if "value" in value)
    return any(isinstance(name, str) and is_secret(name) for name in names)


def _covers(secret: bool, name: str, value: Any) -> bool:
    """Say whether a field's value is a secret; the tokens of our own asks are none."""
    ours = isinstance(value, Mapping) and value.keys() >= _TOKEN
    return secret or (is_secret(name) and not ours)
