"""Access control by the accounts of plain_acl.yml: every request is checked before its processor runs.

Its needs are those of :mod:`gantrymq.broker.acl.permissions`. A code without a row is for administrators.

Source: PlainAccessValidator, PlainPermissionManager, FileWatchService (4.9.8).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from functools import partial
from pathlib import Path
from typing import NamedTuple, Protocol, Self

from gantrymq.auth.decision import ResourceAccess
from gantrymq.broker.acl.accounts import PUB, SUB, Account, Accounts, parse_accounts
from gantrymq.broker.acl.permissions import CHANGES_CLUSTER, Need, Permission
from gantrymq.config.broker_settings import BrokerConfig
from gantrymq.errors import ConfigError
from gantrymq.logs import get_logger
from gantrymq.model.host import ip_of
from gantrymq.remoting.acl import ACCESS_KEY, SessionCredentials, signature_matches
from gantrymq.remoting.codes import RequestCode, ResponseCode
from gantrymq.remoting.command import RemotingCommand
from gantrymq.remoting.transport.channel import Channel

WATCH_INTERVAL_MS = 500


_State = tuple[int, int]

log = get_logger("gantrymq.broker")


class _Claim(NamedTuple):
    """The parts of a request that the check reads.

    ``is_signed`` takes a secret. ``needs`` is None for requests of administrators only. It decodes the request, so it
    is called after the signature is verified.
    """

    ip: str
    access_key: str | None
    code: int
    is_signed: Callable[[str], bool]
    needs: Callable[[], Iterable[Need]] | None


class AccessGuard(Protocol):
    """Access control of either kind, as the broker's ports use it. Thread rule: the event loop's thread."""

    def require(self, permissions: Mapping[int, Permission]) -> None:
        """Set the permission of each request code."""
        ...

    def reload(self) -> None:
        """Do what has to be done every half second."""
        ...

    def secret_of(self, access_key: str) -> str | None:
        """The secret of an account or a user; None if there is none of this name."""
        ...

    def login_refusal(self, ip: str, access_key: str, is_signed: Callable[[str], bool]) -> str | None:
        """Why a request or a call is not signed by a known account, or None. ``is_signed`` takes the secret.

        Without an access key nothing is signed.
        """
        ...

    def topic_refusal(self, ip: str, access_key: str, topic: str) -> str | None:
        """Why a caller with a verified signature may neither send to a topic nor read it, or None."""
        ...

    def accesses_refusal(self, ip: str, access_key: str, accesses: Iterable[ResourceAccess]) -> str | None:
        """Why a user may not do all of ``accesses``, or None. For accounts None: their needs are checked elsewhere."""
        ...

    def slave_refusal(self, ip: str, access_key: str, is_signed: Callable[[str], bool]) -> str | None:
        """Why a peer may not copy the log, or None. ``is_signed`` takes the secret."""
        ...

    def refusal(self, channel: Channel, request: RemotingCommand) -> RemotingCommand | None:
        """The answer that refuses a request, or None if the request is allowed."""
        ...

    def recheck(self, channel: Channel, request: RemotingCommand) -> Callable[[], str | None]:
        """A check to repeat when a held request is answered: the reason to refuse it then, or None."""
        ...


class AccessControl:
    """The accounts of the file ``path``, reloaded when it changes.

    ``mixed_topics`` are topics that a default permission does not open, in addition to those with a known name. Raises
    ConfigError if the file cannot be read: without accounts every request would be refused.

    Thread rule: the event loop's thread.
    """

    def __init__(self, path: Path, mixed_topics: frozenset[str] = frozenset()) -> None:
        self._path, self._mixed_topics = path, mixed_topics
        self._permissions: Mapping[int, Permission] = {}
        self._accounts = self._read()
        self._reported: tuple[_State | None, str] | None = None  # the last reported error, while it lasts

    @classmethod
    def of_broker(cls, config: BrokerConfig, store: Path) -> Self | None:
        """The access control of a broker with the store at ``store``; None if it is off. Raises ConfigError."""
        if not config.acl_enable:
            return None
        path = Path(config.acl_plain_file) if config.acl_plain_file else store / "config" / "plain_acl.yml"
        return cls(path, frozenset({config.msg_trace_topic_name}))

    def reload(self) -> None:
        """Reload the file if it changed. If it cannot be read, the old accounts stay in force.

        The read is retried at each call, because its cause may end without a change of the file. Each change is
        reported once.
        """
        state, failure = self._state(), None
        if state != self._seen:
            try:
                self._accounts = self._read()
                log.info("access control reloaded", file=str(self._path), accounts=len(self._accounts.by_key))
            except ConfigError as error:
                failure = state, str(error)
                if failure != self._reported:
                    log.error("access control not reloaded", file=str(self._path), reason=str(error))
        self._reported = failure

    def require(self, permissions: Mapping[int, Permission]) -> None:
        """Set the permission of each request code. A code without one is for administrators."""
        self._permissions = permissions

    def secret_of(self, access_key: str) -> str | None:
        """The secret of an account, for a protocol that signs in another way. None if there is no such account."""
        account = self._accounts.by_key.get(access_key)
        return None if account is None else account.secret_key

    def sign_as_administrator(self, request: RemotingCommand) -> None:
        """Sign a request to another broker of the group, whose file has the same accounts; without one it stays so."""
        if self.administrator is not None:
            self.administrator.sign(request)

    @property
    def administrator(self) -> SessionCredentials | None:
        """The first administrator, or None."""
        admin = next((account for account in self._accounts.by_key.values() if account.admin), None)
        return None if admin is None else SessionCredentials(admin.access_key, admin.secret_key)

    def accesses_refusal(self, ip: str, access_key: str, accesses: Iterable[ResourceAccess]) -> str | None:
        """None: an account's needs are those of the requests that a call becomes."""
        return None

    def slave_refusal(self, ip: str, access_key: str, is_signed: Callable[[str], bool]) -> str | None:
        """Why a peer may not copy the log, or None for an administrator. White addresses do not count."""
        account = self._accounts.by_key.get(access_key)
        if account is None:
            return f"No acl config for {access_key[:128]}"
        if not is_signed(account.secret_key):
            return f"Check signature failed for accessKey={access_key[:128]}"
        return None if account.admin else f"accessKey={access_key[:128]} is no administrator"

    def login_refusal(self, ip: str, access_key: str, is_signed: Callable[[str], bool]) -> str | None:
        """Why a call is not signed by an account, or None. One without an access key is fine from a white address."""
        if not access_key:
            return None if self._accounts.is_white(ip) else "No accessKey is configured"
        account = self._accounts.by_key.get(access_key)
        if account is None:
            return f"No acl config for {access_key[:128]}"
        return None if is_signed(account.secret_key) else f"Check signature failed for accessKey={access_key[:128]}"

    def topic_refusal(self, ip: str, access_key: str, topic: str) -> str | None:
        """Why a caller with a verified signature may neither send to a topic nor read it, or None."""
        needs = [Need(topic, PUB | SUB, is_group=False)]
        return self._wrong(_Claim(ip, access_key, RequestCode.GET_TOPIC_CONFIG, lambda secret: True, lambda: needs))

    def refusal(self, channel: Channel, request: RemotingCommand) -> RemotingCommand | None:
        """The answer that refuses a request, or None if the request is allowed."""
        wrong = self._wrong(self._claim(channel, request))
        return None if wrong is None else request.response(ResponseCode.NO_PERMISSION, wrong)

    def recheck(self, channel: Channel, request: RemotingCommand) -> Callable[[], str | None]:
        """A check to repeat when a held request is answered. It returns the reason to refuse it then, or None.

        The check holds neither the request's fields nor its body. It refuses once the account's secret has changed.
        """
        claim = self._claim(channel, request)
        account = self._accounts.by_key.get(claim.access_key) if claim.access_key else None
        signed_with = account.secret_key if account and claim.is_signed(account.secret_key) else None
        needs = None if claim.needs is None else tuple(claim.needs())
        return partial(
            self._wrong,
            claim._replace(
                is_signed=lambda secret: secret == signed_with, needs=None if needs is None else lambda: needs
            ),
        )

    def _claim(self, channel: Channel, request: RemotingCommand) -> _Claim:
        permission = self._permissions.get(request.code, CHANGES_CLUSTER)
        return _Claim(
            ip=ip_of(channel.address),
            access_key=request.ext_fields.get(ACCESS_KEY),
            code=request.code,
            is_signed=partial(signature_matches, request),
            needs=None if permission.needs is None else partial(permission.needs, request),
        )

    def _wrong(self, claim: _Claim) -> str | None:
        accounts = self._accounts
        if accounts.is_white(claim.ip):
            return None
        if not claim.access_key:
            return "No accessKey is configured"
        account = accounts.by_key.get(claim.access_key)
        if account is None:
            return f"No acl config for {claim.access_key}"
        if account.is_white(claim.ip):
            return None
        if not claim.is_signed(account.secret_key):
            return f"Check signature failed for accessKey={claim.access_key}"
        return _lacks(account, claim)

    def _read(self) -> Accounts:
        state = self._state()
        try:
            accounts = parse_accounts(self._path.read_bytes(), str(self._path), self._mixed_topics)
        except OSError as error:
            raise ConfigError("aclPlainFile", str(self._path), f"a file that can be read ({error.strerror})") from error
        self._seen = state
        return accounts

    def _state(self) -> _State | None:
        """The mtime and size of the file; None if it cannot be read."""
        try:
            status = self._path.stat()
        except OSError:
            return None
        return status.st_mtime_ns, status.st_size


def _lacks(account: Account, claim: _Claim) -> str | None:
    """An error text for a permission that the account lacks, or None."""
    if account.admin:
        return None
    if claim.needs is None:
        return f"Need admin permission for request code={claim.code}, but accessKey={account.access_key} is not"
    for need in claim.needs():
        if not account.may(need.name, need.permission, group=need.is_group):
            kind = "group" if need.is_group else "topic"
            return f"No default permission for {need.name} (a {kind})"
    return None
