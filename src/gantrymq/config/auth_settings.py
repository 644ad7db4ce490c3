"""The settings of RocketMQ 5's users and policies, under its keys and with its defaults.

RocketMQ loads the classes of providers and strategies by name. Here those of its distribution mean what is built in,
which keeps users and policies below ``config/`` and checks every request.

Source: AuthConfig, AuthenticationFactory, AuthorizationFactory.
"""

from __future__ import annotations

import json
from collections.abc import Mapping

from gantrymq.config.frozen import settings
from gantrymq.config.keys import key

_PACKAGE = "org.apache.rocketmq.auth"
# The classes that mean what is built in. Empty is RocketMQ's default; without a metadata provider it has no users.
CLASSES: Mapping[str, tuple[str, ...]] = {
    "authenticationProvider": (f"{_PACKAGE}.authentication.provider.DefaultAuthenticationProvider",),
    "authenticationMetadataProvider": (f"{_PACKAGE}.authentication.provider.LocalAuthenticationMetadataProvider",),
    "authenticationStrategy": (
        f"{_PACKAGE}.authentication.strategy.StatelessAuthenticationStrategy",
        f"{_PACKAGE}.authentication.strategy.StatefulAuthenticationStrategy",
    ),
    "authorizationProvider": (f"{_PACKAGE}.authorization.provider.DefaultAuthorizationProvider",),
    "authorizationMetadataProvider": (f"{_PACKAGE}.authorization.provider.LocalAuthorizationMetadataProvider",),
    "authorizationStrategy": (
        f"{_PACKAGE}.authorization.strategy.StatelessAuthorizationStrategy",
        f"{_PACKAGE}.authorization.strategy.StatefulAuthorizationStrategy",
    ),
}
# Those of a proxy, too: it asks the brokers.
CLASSES_OF_PROXY: Mapping[str, tuple[str, ...]] = {
    f"{name}MetadataProvider": (f"org.apache.rocketmq.proxy.auth.Proxy{name.capitalize()}MetadataProvider",)
    for name in ("authentication", "authorization")
}
# The key of a user's name and of its password, in the JSON of these keys.
CREDENTIALS: Mapping[str, tuple[str, str]] = {
    "initAuthenticationUser": ("username", "password"),
    "innerClientAuthenticationCredentials": ("accessKey", "secretKey"),
}


@settings(frozen=True)
class UserSettings:
    """Whether a server has users and policies, and which users its settings name. Read only at the start."""

    authentication_enabled: bool = key("authenticationEnabled", False, at_start=True)
    init_authentication_user: str = key("initAuthenticationUser", "", at_start=True, is_secret=True)
    inner_client_credentials: str = key("innerClientAuthenticationCredentials", "", at_start=True, is_secret=True)
    authorization_enabled: bool = key("authorizationEnabled", False, at_start=True)

    @property
    def initial_users(self) -> list[tuple[str, str]]:
        """Name and password of the super users that a start creates if they do not exist. Raises ValueError."""
        entries = {
            "initAuthenticationUser": self.init_authentication_user,
            "innerClientAuthenticationCredentials": self.inner_client_credentials,
        }
        return [user for name, text in entries.items() if (user := read_credentials(name, text)) is not None]

    @property
    def inner_client(self) -> tuple[str, str] | None:
        """Name and password with which the server signs its own requests, or None. Raises ValueError."""
        return read_credentials("innerClientAuthenticationCredentials", self.inner_client_credentials)


@settings(frozen=True)
class AuthConfig(UserSettings):
    """Users and policies of a broker or a proxy. Read only at the start."""

    authentication_provider: str = key("authenticationProvider", "", at_start=True)
    authentication_metadata_provider: str = key("authenticationMetadataProvider", "", at_start=True)
    authentication_strategy: str = key("authenticationStrategy", "", at_start=True)
    authentication_whitelist: str = key("authenticationWhitelist", "", at_start=True)
    authorization_provider: str = key("authorizationProvider", "", at_start=True)
    authorization_metadata_provider: str = key("authorizationMetadataProvider", "", at_start=True)
    authorization_strategy: str = key("authorizationStrategy", "", at_start=True)
    authorization_whitelist: str = key("authorizationWhitelist", "", at_start=True)

    @property
    def open_codes(self) -> frozenset[str]:
        """The request codes of authenticationWhitelist, which need no signature."""
        return _codes(self.authentication_whitelist)

    @property
    def free_codes(self) -> frozenset[str]:
        """The request codes of authorizationWhitelist, which need no permission."""
        return _codes(self.authorization_whitelist)


def _codes(text: str) -> frozenset[str]:
    return frozenset(code for part in text.split(",") if (code := part.strip()))


def read_credentials(key_name: str, text: str) -> tuple[str, str] | None:
    """Name and password in the JSON of a key of :data:`CREDENTIALS`; None for a blank text.

    Raises ValueError, whose text does not show the value, because it has a password.
    """
    if not text.strip():
        return None
    name_key, password_key = CREDENTIALS[key_name]
    try:
        value = json.loads(text)
    except (ValueError, RecursionError):
        raise ValueError("is not JSON") from None
    if not isinstance(value, dict):
        raise ValueError("is not a JSON object")
    name, password = value.get(name_key), value.get(password_key)
    if not isinstance(name, str) or not name.strip() or not isinstance(password, str) or not password.strip():
        raise ValueError(f'has no "{name_key}" and "{password_key}"')
    return name, password
