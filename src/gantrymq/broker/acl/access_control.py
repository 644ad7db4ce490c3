"""Looks at every request before its processor does: whose it is, and whether they may.

Source: PlainAccessValidator, PlainPermissionManager, FileWatchService.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from gantrymq.broker.acl.accounts import Account, Accounts, parse_accounts
from gantrymq.broker.acl.permissions import ADMINISTRATORS, Permission
from gantrymq.errors import ConfigError
from gantrymq.logs import get_logger
from gantrymq.remoting.acl import ACCESS_KEY, signature_matches
from gantrymq.remoting.codes import ResponseCode
from gantrymq.remoting.command import RemotingCommand
from gantrymq.remoting.transport.channel import Channel
from gantrymq.remoting.transport.dispatcher import RequestHook

WATCH_INTERVAL_MS = 500
_State = tuple[int, int]

log = get_logger("gantrymq.broker")


class AccessControl:
    """The accounts of ``path``, in force as long as the file says so. Thread rule: the event loop's thread.

    Raises ConfigError where the file cannot be read: without accounts every request would be refused.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
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

    def hook(self, permissions: Mapping[int, Permission]) -> RequestHook:
        """The check of every request, by the permission of its code; a code that is not there is for administrators.

        A hook answers with the refusal, or with None where the request may go on.
        """

        def check(channel: Channel, request: RemotingCommand) -> RemotingCommand | None:
            permission = permissions.get(request.code, ADMINISTRATORS)
            wrong = self._wrong(channel.address, request, permission)
            return None if wrong is None else request.response(ResponseCode.NO_PERMISSION, wrong)

        return check

    def _wrong(self, address: str, request: RemotingCommand, permission: Permission) -> str | None:
        accounts, ip = self._accounts, address.rpartition(":")[0].strip("[]")
        if accounts.is_white(ip):
            return None
        key = request.ext_fields.get(ACCESS_KEY)
        if not key:
            return "No accessKey is configured"
        account = accounts.by_key.get(key)
        if account is None:
            return f"No acl config for {key}"
        if account.is_white(ip):
            return None
        if not signature_matches(request, account.secret_key):
            return f"Check signature failed for accessKey={key}"
        return _lacks(account, request, permission)

    def _read(self) -> Accounts:
        state = self._state()
        try:
            accounts = parse_accounts(self._path.read_bytes(), str(self._path))
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


def _lacks(account: Account, request: RemotingCommand, permission: Permission) -> str | None:
    """What the account would need for the request and does not have, in words; None where it lacks nothing."""
    if account.admin:
        return None
    if permission.needs is None:
        return f"Need admin permission for request code={request.code}, but accessKey={account.access_key} is not"
    for need in permission.needs(request):
        if not account.may(need.name, need.permission, group=need.is_group):
            kind = "group" if need.is_group else "topic"
            return f"No default permission for {need.name} (a {kind})"
    return None
