"""Access control by RocketMQ 5's users and policies: each request is authenticated, then authorized.

Every request has a valid signature of a user that exists and is enabled, unless authenticationWhitelist has its code.
With authorizationEnabled its user has the permission of its row in the table of request codes (see
:mod:`gantrymq.broker.acl.permissions`), unless authorizationWhitelist has its code. A code without a row needs Update
or Get on the cluster, and one that RocketMQ does not have only a signature.

A change is in force, on open connections too, once it is durable.

Source: AuthenticationPipeline, AuthorizationPipeline, DefaultAuthenticationHandler, AbstractAuthorizationStrategy.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Mapping
from functools import partial
from pathlib import Path
from typing import Self

from gantrymq.auth.decision import ResourceAccess, UserPermissions, Verdict
from gantrymq.auth.directory import AccessDirectory
from gantrymq.auth.files import AccessFiles
from gantrymq.auth.policies import Action, Resource, ResourceType
from gantrymq.auth.users import User, UserType, standing_refusal
from gantrymq.broker.acl.audit import RefusalLog, shown
from gantrymq.broker.acl.permissions import Permission, permission_without_row, topic_access
from gantrymq.clock import Clock
from gantrymq.config.broker_settings import BrokerConfig
from gantrymq.errors import AccessError, ConfigError, GantrymqError
from gantrymq.fs.api import FileSystem
from gantrymq.logs import get_logger
from gantrymq.remoting.acl import ACCESS_KEY, signature_matches
from gantrymq.remoting.codes import RequestCode, ResponseCode
from gantrymq.remoting.command import RemotingCommand
from gantrymq.remoting.transport.channel import Channel

_NOT_PARSED = "parse authorization context error."
_NO_SUBJECT = "Authorization failed. Please verify your access rights and try again."

log = get_logger("gantrymq.broker")


class UserAccess:
    """The users and policies of one broker. ``files`` keeps them, ``directory`` is what the files hold.

    Thread rule: the event loop's thread.
    """

    def __init__(self, config: BrokerConfig, files: AccessFiles, clock: Clock) -> None:
        self._files, self.directory = files, files.load()
        self._known: dict[str, UserPermissions] = {}
        self._changing = asyncio.Lock()
        self._refusals = RefusalLog(clock)
        self._permissions: Mapping[int, Permission] = {}
        self._checks_policies = config.authorization_enabled
        self._open_codes, self._free_codes = config.open_codes, config.free_codes
        self._cluster = Resource(ResourceType.CLUSTER, config.broker_cluster_name)

    @classmethod
    def of_broker(cls, config: BrokerConfig, fs: FileSystem, directory: Path, clock: Clock) -> Self | None:
        """The access control of a broker with its tables below ``directory``; None if authenticationEnabled is false.

        Creates the super users of the settings that do not exist, durably. Raises StoreError for a damaged file.
        """
        if not config.authentication_enabled:
            return None
        access = cls(config, AccessFiles(fs, directory), clock)
        changed = access.directory
        try:
            for name, password in config.initial_users:
                if name not in changed.users:
                    changed = changed.create_user(User(name, password, UserType.SUPER), by_super=True)
        except (AccessError, ValueError) as error:
            raise ConfigError("initAuthenticationUser", "******", f"the name and password of a user: {error}") from None
        access._files.save(changed)
        access.directory = changed
        if not changed.users:
            log.warning("there are no users, so every request is refused: set initAuthenticationUser")
        return access

    # The seam to remoting and gRPC

    def require(self, permissions: Mapping[int, Permission]) -> None:
        """Set the permission of each request code."""
        self._permissions = permissions

    def reload(self) -> None:
        """Log what was refused meanwhile. The files are not read again: only requests change them."""
        self._refusals.flush()

    def secret_of(self, access_key: str) -> str | None:
        """The password of a user. None if there is no such user."""
        user = self.directory.users.get(access_key)
        return None if user is None else user.password

    def login_refusal(self, ip: str, access_key: str, is_signed: Callable[[str], bool]) -> str | None:
        """Why a request or a call is not one of an enabled user, or None. ``is_signed`` takes the password."""
        if not access_key:
            return "username cannot be null."
        user, name = self.directory.users.get(access_key), shown(access_key)
        wrong = standing_refusal(name, user)
        if wrong is None and user is not None:
            wrong = None if is_signed(user.password) else "check signature failed."
        if wrong is None:
            return None
        self._refusals.note(f"[AUTHENTICATION] User:{name} is authenticated failed from sourceIp = {ip}: {wrong}")
        return wrong

    def topic_refusal(self, ip: str, access_key: str, topic: str) -> str | None:
        """Why a caller with a verified signature may neither send to a topic nor read it, or None."""
        accesses = [topic_access(topic, (Action.PUB, Action.SUB))]
        return self._wrong(ip, RequestCode.GET_ROUTEINFO_BY_TOPIC, access_key, lambda secret: True, lambda: accesses)

    def refusal(self, channel: Channel, request: RemotingCommand) -> RemotingCommand | None:
        """The answer that refuses a request, or None if the request is allowed."""
        wrong = self._wrong(
            _ip_of(channel),
            request.code,
            request.ext_fields.get(ACCESS_KEY, ""),
            partial(signature_matches, request),
            partial(self.accesses_of, request),
        )
        return None if wrong is None else request.response(ResponseCode.NO_PERMISSION, wrong)

    def recheck(self, channel: Channel, request: RemotingCommand) -> Callable[[], str | None]:
        """A check to repeat when a held request is answered. It returns the reason to refuse it then, or None.

        The check holds neither the request's fields nor its body. It refuses once the user's password has changed.
        """
        name = request.ext_fields.get(ACCESS_KEY, "")
        password = self.secret_of(name)
        signed_with = password if password is not None and signature_matches(request, password) else None
        accesses = tuple(self.accesses_of(request) or ())
        return partial(
            self._wrong, _ip_of(channel), request.code, name, lambda secret: secret == signed_with, lambda: accesses
        )

    # Decisions

    def check(self, name: str, accesses: Iterable[ResourceAccess], ip: str) -> Verdict:
        """The verdict of a user's policies on ``accesses`` from an address. Raises AccessError for an unknown user."""
        permissions = self._known.get(name)
        if permissions is None:
            user = self.directory.users.get(name)
            if user is None:
                raise AccessError(f"User:{shown(name)} is not found.")
            permissions = self._known[name] = UserPermissions(user, self.directory.acls.get(name))
        return permissions.check(accesses, ip)

    def accesses_of(self, request: RemotingCommand) -> list[ResourceAccess] | None:
        """What a request needs; None if it cannot be read."""
        permission = self._permissions.get(request.code) or permission_without_row(request.code)
        if permission is None:
            return []
        try:
            accesses = [*permission.accesses(request)]
        except GantrymqError:
            return None
        if accesses and accesses[0].resource.type is ResourceType.CLUSTER:
            return [ResourceAccess(self._cluster, access.actions) for access in accesses]
        return accesses

    def is_super(self, request: RemotingCommand) -> bool:
        """Whether a request is signed by a super user."""
        user = self.directory.users.get(request.ext_fields.get(ACCESS_KEY, ""))
        if user is None or user.is_disabled or not user.is_super:
            return False
        return signature_matches(request, user.password)

    def _wrong(
        self,
        ip: str,
        code: int,
        name: str,
        is_signed: Callable[[str], bool],
        accesses_of: Callable[[], Iterable[ResourceAccess] | None],
    ) -> str | None:
        is_open = bool(self._open_codes) and str(code) in self._open_codes
        wrong = None if is_open and not name else self.login_refusal(ip, name, is_signed)
        if wrong is not None and not is_open:
            return wrong
        if not self._checks_policies or (self._free_codes and str(code) in self._free_codes):
            return None
        user = self.directory.users.get(name) if wrong is None else None
        if user is not None and user.is_super:
            return None
        accesses = accesses_of()
        if accesses is None:
            return _NOT_PARSED
        if user is None:  # an open code without a valid signature
            return _NO_SUBJECT if any(True for _ in accesses) else None
        verdict = self.check(name, accesses, ip)
        if verdict.is_allowed or verdict.access is None:
            return None
        actions = ",".join(action.value for action in verdict.access.actions)
        resource = shown(verdict.access.resource.key)
        self._refusals.note(
            f"[AUTHORIZATION] Subject = User:{name} is Deny Action = {actions} from sourceIp = {ip} "
            f"on resource = {resource} for request = {code}."
        )
        return verdict.refusal

    # Changes

    async def change(self, edit: Callable[[AccessDirectory], AccessDirectory]) -> None:
        """Replace the directory by ``edit`` of it. Returns when the change is durable and in force.

        Changes are made one after another. Raises what ``edit`` raises, and DiskFullError.
        """
        async with self._changing:
            changed = edit(self.directory)
            await asyncio.get_running_loop().run_in_executor(None, self._files.save, changed)
            self.directory = changed
            self._known.clear()


def _ip_of(channel: Channel) -> str:
    return channel.address.rpartition(":")[0].strip("[]")
