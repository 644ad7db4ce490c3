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
from typing import NamedTuple, Self
from weakref import WeakKeyDictionary

from gantrymq.auth.audit import RefusalLog, shown
from gantrymq.auth.decision import ResourceAccess, UserPermissions, Verdict
from gantrymq.auth.directory import AccessDirectory
from gantrymq.auth.files import AccessFiles
from gantrymq.auth.login import LoginCheck
from gantrymq.auth.policies import Action, Resource, ResourceType
from gantrymq.broker.acl.permissions import Permission, permission_without_row, topic_access
from gantrymq.broker.appends.send_runs import SendRun
from gantrymq.clock import Clock
from gantrymq.config.broker_settings import BrokerConfig
from gantrymq.errors import AccessError, GantrymqError
from gantrymq.fs.api import FileSystem
from gantrymq.logs import get_logger
from gantrymq.model.host import ip_of
from gantrymq.remoting.acl import ACCESS_KEY, signature_matches
from gantrymq.remoting.codes import OwnRequestCode, RequestCode, ResponseCode
from gantrymq.remoting.command import CommandRun, RemotingCommand
from gantrymq.remoting.forwarded import PROXY_ACCESS_KEY, forwarded_proof, proxy_signature_matches
from gantrymq.remoting.signed_sends import signed_send, signed_send_in
from gantrymq.remoting.transport.channel import Channel

_NOT_PARSED = "parse authorization context error."
_SENDS = frozenset({int(RequestCode.SEND_MESSAGE_V2), int(RequestCode.SEND_BATCH_MESSAGE)})
_MAX_SENDERS = 4096  # senders that are remembered
_NO_SUBJECT = "Authorization failed. Please verify your access rights and try again."

log = get_logger("gantrymq.broker")


class _Sender(NamedTuple):
    """The sender of a request. ``refusal`` returns the reason why its proxy may not forward it, or None."""

    ip: str
    name: str
    is_signed: Callable[[str], bool]
    refusal: Callable[[], str | None]


class UserAccess:
    """The users and policies of one broker. ``files`` keeps them, ``directory`` is what the files hold.

    Thread rule: the event loop's thread.
    """

    def __init__(self, config: BrokerConfig, files: AccessFiles, clock: Clock) -> None:
        self._files, self.directory = files, files.load()
        self._known: dict[str, UserPermissions] = {}
        # The password of a user that may send to a topic from an address, until a user or a policy changes.
        self._senders: dict[tuple[str, str, int, str], str] = {}
        self._changing = asyncio.Lock()
        self._refusals = RefusalLog(clock)
        self._logins = LoginCheck(lambda: self.directory, self._refusals)
        self._members: WeakKeyDictionary[Channel, str] = WeakKeyDictionary()  # the users of clients' connections
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
        access.directory = access.directory.with_initial_users(config)
        access._files.save(access.directory)
        if not access.directory.users:
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
        return self._logins.refusal(ip, access_key, is_signed)

    def topic_refusal(self, ip: str, access_key: str, topic: str) -> str | None:
        """Why a caller with a verified signature may neither send to a topic nor read it, or None."""
        accesses = [topic_access(topic, (Action.PUB, Action.SUB))]
        return self._wrong(ip, RequestCode.GET_ROUTEINFO_BY_TOPIC, access_key, lambda secret: True, lambda: accesses)

    def accesses_refusal(self, ip: str, access_key: str, accesses: Iterable[ResourceAccess]) -> str | None:
        """Why a caller of gRPC with a verified signature may not do all of ``accesses``, or None."""
        return self._wrong(ip, OwnRequestCode.CHECK_ACCESS, access_key, lambda secret: True, lambda: accesses)

    def slave_refusal(self, ip: str, access_key: str, is_signed: Callable[[str], bool]) -> str | None:
        """Why a peer may not copy the log, or None. The log has all topics, so its user needs Get on the cluster.

        This is asked for without authorizationEnabled, too.
        """
        wrong = self.login_refusal(ip, access_key, is_signed)
        if wrong is not None:
            return wrong
        verdict = self.check(access_key, [ResourceAccess(self._cluster, (Action.GET,))], ip)
        return None if verdict.is_allowed else verdict.refusal

    def refusal(self, channel: Channel, request: RemotingCommand) -> RemotingCommand | None:
        """The answer that refuses a request, or None if the request is allowed."""
        if request.code in _SENDS:
            send = signed_send(request)
            if send is not None:
                sender = send.access_key, send.topic, request.code, channel.address
                password = self._senders.get(sender)
                if password is None or not send.is_signed(password, request.body):
                    refused = self._refusal(channel, request)
                    if refused is None and not self._open_codes:
                        self._remember(sender)
                    return refused
                return None
        return self._refusal(channel, request)

    def _refusal(self, channel: Channel, request: RemotingCommand) -> RemotingCommand | None:
        if PROXY_ACCESS_KEY in request.ext_fields:
            sender = self._sender(channel, request)
            wrong = sender.refusal() or self._wrong(
                sender.ip, request.code, sender.name, sender.is_signed, partial(self.accesses_of, request)
            )
            return None if wrong is None else request.response(ResponseCode.NO_PERMISSION, wrong)
        name = request.ext_fields.get(ACCESS_KEY, "")
        wrong = self._wrong(
            ip_of(channel.address),
            request.code,
            name,
            partial(signature_matches, request),
            partial(self.accesses_of, request),
        )
        if wrong is not None:
            return request.response(ResponseCode.NO_PERMISSION, wrong)
        # Not the channel of a call in this process: gRPC asks before it passes a request on to its client.
        if request.code == RequestCode.HEART_BEAT and type(channel) is Channel:
            self._members[channel] = name
        return None

    def admits(self, channel: Channel, run: CommandRun) -> bool:
        """Whether all requests of a run are allowed. If not, or if that is not clear, ask for each of them."""
        if not isinstance(run, SendRun):
            return False
        sender, password = None, None
        for header, body in run.parts():
            send = signed_send_in(header)
            if send is None:
                return False
            if sender is None:
                sender = send.access_key, run.topic, run.code, channel.address
                password = self._senders.get(sender)
            if password is None or send.access_key != sender[0] or send.topic != run.topic:
                return False
            if not send.is_signed(password, body):
                return False
        return True

    def _remember(self, sender: tuple[str, str, int, str]) -> None:
        """Let the next sends of a sender pass by their signature alone."""
        if len(self._senders) >= _MAX_SENDERS:
            self._senders.clear()
        self._senders[sender] = self.directory.users[sender[0]].password

    def recheck(self, channel: Channel, request: RemotingCommand) -> Callable[[], str | None]:
        """A check to repeat when a held request is answered. It returns the reason to refuse it then, or None.

        The check holds neither the request's fields nor its body. It refuses once the user's password has changed.
        """
        sender, code = self._sender(channel, request), request.code
        password = self.secret_of(sender.name)
        signed_with = password if password is not None and sender.is_signed(password) else None
        accesses = tuple(self.accesses_of(request) or ())
        ip, name, proxy_refusal = sender.ip, sender.name, sender.refusal
        return lambda: (
            proxy_refusal() or self._wrong(ip, code, name, lambda secret: secret == signed_with, lambda: accesses)
        )

    def _sender(self, channel: Channel, request: RemotingCommand) -> _Sender:
        """The user of a request and its address: those of the connection, or those that a proxy passes on."""
        fields = request.ext_fields
        if PROXY_ACCESS_KEY not in fields:
            name = fields.get(ACCESS_KEY, "")
            return _Sender(ip_of(channel.address), name, partial(signature_matches, request), _no_refusal)
        proxy, proof = self.directory.users.get(fields[PROXY_ACCESS_KEY]), forwarded_proof(request)
        if proxy is None or proof is None or not proxy_signature_matches(request, proxy.password):
            return _Sender(
                "", "", _unsigned, partial(self._refuse_proxy, ip_of(channel.address), fields[PROXY_ACCESS_KEY])
            )
        signed_with = proxy.password

        def refusal() -> str | None:
            now = self.directory.users.get(proxy.name)
            if now is not None and now.is_super and not now.is_disabled and now.password == signed_with:
                return None
            return self._refuse_proxy(ip_of(channel.address), proxy.name)

        return _Sender(proof.ip, proof.access_key, proof.is_signed, refusal)

    def _refuse_proxy(self, ip: str, name: str) -> str:
        wrong = "only a super user passes on requests of others"
        self._refusals.note(f"[AUTHENTICATION] Proxy:{shown(name)} is refused from sourceIp = {ip}: {wrong}")
        return wrong

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
        self._logins.denied(name, actions, ip, verdict.access.resource.key, code)
        return verdict.refusal

    # Changes

    async def change(self, edit: Callable[[AccessDirectory], AccessDirectory]) -> None:
        """Replace the directory by ``edit`` of it. Returns when the change is durable and in force.

        Changes are made one after another. Raises what ``edit`` raises, and DiskFullError.
        """
        async with self._changing:
            changed = edit(self.directory)
            await asyncio.get_running_loop().run_in_executor(None, self._files.save, changed)
            former, self.directory = self.directory, changed
            self._known.clear()
            self._senders.clear()
            self._close_members(former)

    def _close_members(self, former: AccessDirectory) -> None:
        """Close the connections on which clients get requests of the broker, of users that may do nothing now."""
        for channel, name in list(self._members.items()):
            before, user = former.users.get(name), self.directory.users.get(name)
            if user is None or user.is_disabled or before is None or user.password != before.password:
                channel.abort()


def _no_refusal() -> None:
    return None


def _unsigned(secret: str) -> bool:
    return False
