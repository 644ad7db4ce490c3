"""Looks at every request before its processor does: whose it is, and whether they may.

Source: PlainAccessValidator, PlainPermissionManager, FileWatchService.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from functools import partial
from pathlib import Path
from typing import NamedTuple

from gantrymq.broker.acl.accounts import Account, Accounts, parse_accounts
from gantrymq.broker.acl.permissions import ADMINISTRATORS, Need, Permission
from gantrymq.errors import ConfigError
from gantrymq.logs import get_logger
from gantrymq.remoting.acl import ACCESS_KEY, signature_matches
from gantrymq.remoting.codes import ResponseCode
from gantrymq.remoting.command import RemotingCommand
from gantrymq.remoting.transport.channel import Channel

WATCH_INTERVAL_MS = 500
_State = tuple[int, int]

log = get_logger("gantrymq.broker")


class _Claim(NamedTuple):
    """What the check of a request looks at.

    ``is_signed`` takes a secret. ``needs`` is None where only administrators may ask; it decodes the request, so it is
    called after the signature is checked.
    """

    ip: str
    access_key: str | None
    code: int
    is_signed: Callable[[str], bool]
    needs: Callable[[], Iterable[Need]] | None


class AccessControl:
    """The accounts of ``path``, in force as long as the file says so. Thread rule: the event loop's thread.

    ``mixed_topics`` are those that a default permission does not open, beside those of which the name says so.

    Raises ConfigError where the file cannot be read: without accounts every request would be refused.
    """

    def __init__(self, path: Path, mixed_topics: frozenset[str] = frozenset()) -> None:
        self._path, self._mixed_topics = path, mixed_topics
        self._permissions: Mapping[int, Permission] = {}
        self._accounts = self._read()
        self._trouble: tuple[_State | None, str] | None = None  # what was reported last, while it lasts

    def reload(self) -> None:
        """Take over what the file says now; what was in force stays where it cannot be read.

        That is tried again each time, for its reason may go without a change of the file, and reported once a change.
        """
        state, trouble = self._state(), None
        if state != self._seen:
            try:
                self._accounts = self._read()
                log.info("access control reloaded", file=str(self._path), accounts=len(self._accounts.by_key))
            except ConfigError as error:
                trouble = state, str(error)
                if trouble != self._trouble:
                    log.error("access control not reloaded", file=str(self._path), reason=str(error))
        self._trouble = trouble

    def require(self, permissions: Mapping[int, Permission]) -> None:
        """Set the permission of each request code; a code without one is for administrators."""
        self._permissions = permissions

    def refusal(self, channel: Channel, request: RemotingCommand) -> RemotingCommand | None:
        """The answer to a request that is not allowed, None where it may go on."""
        wrong = self._wrong(self._claim(channel, request))
        return None if wrong is None else request.response(ResponseCode.NO_PERMISSION, wrong)

    def recheck(self, channel: Channel, request: RemotingCommand) -> Callable[[], str | None]:
        """A check to repeat when a request that waits is answered: the reason to refuse it by then, or None.

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
        permission = self._permissions.get(request.code, ADMINISTRATORS)
        return _Claim(
            ip=channel.address.rpartition(":")[0].strip("[]"),
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
        """What changes with the file; None where there is none to be seen."""
        try:
            status = self._path.stat()
        except OSError:
            return None
        return status.st_mtime_ns, status.st_size


def _lacks(account: Account, claim: _Claim) -> str | None:
    """What the account would need for the request and does not have, in words; None where it lacks nothing."""
    if account.admin:
        return None
    if claim.needs is None:
        return f"Need admin permission for request code={claim.code}, but accessKey={account.access_key} is not"
    for need in claim.needs():
        if not account.may(need.name, need.permission, group=need.is_group):
            kind = "group" if need.is_group else "topic"
            return f"No default permission for {need.name} (a {kind})"
    return None
