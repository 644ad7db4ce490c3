"""Users and policies of a proxy: the brokers have them, and decide.

==================  =================================================================================================
broker              who decides
==================  =================================================================================================
gantrymq's          the broker. Each request carries its caller's signature and address (``remoting/forwarded.py``), so
                    that the broker decides as over remoting; no password leaves it, and no decision is kept here. What
                    this proxy answers itself it asks for first (CHECK_ACCESS).
RocketMQ's          this proxy, as RocketMQ's own: it asks for the user with its password (3004) and the policies
                    (3009), keeps both for userCacheRefreshSeconds and aclCacheRefreshSeconds, and sends the request as
                    a super user.
==================  =================================================================================================

Which kind a broker is, is asked once for each connection. A mistake would refuse and never allow: RocketMQ's broker
does not accept a forwarded request, and gantrymq's returns no password.

Source: ProxyAuthenticationMetadataProvider, ProxyAuthorizationMetadataProvider, ClusterMetadataService.
"""

from __future__ import annotations

import time
from collections.abc import Awaitable, Callable
from typing import Any
from weakref import WeakKeyDictionary

from gantrymq.auth.bodies import policies_of
from gantrymq.auth.decision import UserPermissions
from gantrymq.auth.directory import subject_of
from gantrymq.auth.policies import NO_POLICIES, Acl
from gantrymq.auth.users import User, UserStatus, UserType, standing_refusal
from gantrymq.config.proxy_settings import ProxyConfig
from gantrymq.errors import AccessError, GantrymqError, RemotingError
from gantrymq.grpc.brokers.cache import Cache
from gantrymq.grpc.protocol.accesses import ANSWERED_HERE, Accesses, accesses_of
from gantrymq.grpc.protocol.caller import Caller, CallIdentity
from gantrymq.grpc.protocol.codes import Code
from gantrymq.grpc.protocol.signatures import read_proof
from gantrymq.grpc.protocol.status import CallError, refused
from gantrymq.remoting.acl import SessionCredentials
from gantrymq.remoting.bodies.auth import AccessInfo, AclInfo, CheckAccessRequestBody, UserInfo
from gantrymq.remoting.body import decode_body
from gantrymq.remoting.codes import OwnRequestCode, ResponseCode
from gantrymq.remoting.command import RemotingCommand
from gantrymq.remoting.forwarded import CallerProof
from gantrymq.remoting.headers.auth import GetAclRequestHeader, GetUserRequestHeader
from gantrymq.remoting.transport.channel import Channel
from gantrymq.remoting.transport.client import RemotingClient

_TIMEOUT_MS = 3_000
_NAME_SHOWN = 255

Masters = Callable[[], Awaitable[dict[str, str]]]


class ClusterUsers:
    """The users of the brokers that ``masters`` returns, by name. Thread rule: the event loop's thread."""

    def __init__(self, config: ProxyConfig, client: RemotingClient, masters: Masters) -> None:
        credentials = config.inner_client
        assert credentials is not None, "the proxy has refused to start without them"
        self._own, self._client, self._masters = SessionCredentials(*credentials), client, masters
        self._checks_policies = config.authorization_enabled
        self._is_ours: WeakKeyDictionary[Channel, bool] = WeakKeyDictionary()
        self._users = Cache(config.user_cache_s, config.max_users, config.user_expired_s)
        self._acls = Cache(config.acl_cache_s, config.max_acls, config.acl_expired_s)
        self._proof_kept_s, self._max_proofs = config.user_cache_s, config.max_users
        self._proofs: dict[CallerProof, float] = {}  # those that a broker has verified, until when

    # The callers of this proxy

    async def identify(self, metadata: dict[str, str], address: str, call: str, request: Any) -> CallIdentity:
        """The proof of a caller and what its call needs. Raises CallError for a user that the brokers refuse.

        A proof that a broker has verified is good for calls that a broker decides. Calls that are answered here are
        asked for each time.
        """
        proof, accesses = read_proof(metadata, address), accesses_of(call, request)
        if call in ANSWERED_HERE:
            await self.require(proof, accesses)
        elif self._proofs.get(proof, 0.0) < time.monotonic():
            await self.require(proof, ())
            if len(self._proofs) >= self._max_proofs:
                del self._proofs[next(iter(self._proofs))]
            self._proofs[proof] = time.monotonic() + self._proof_kept_s
        return CallIdentity(proof=proof, accesses=accesses)

    async def recheck(self, caller: Caller) -> None:
        """Raise CallError if the brokers refuse now what the caller's last call needs."""
        await self.require(caller.proof, caller.accesses)

    async def require(self, proof: CallerProof | None, accesses: Accesses) -> None:
        """Raise CallError if the first broker that answers refuses ``accesses``."""
        proof = _signed(proof)
        error: GantrymqError = RemotingError("there is no broker that knows users")
        for address in (await self._masters()).values():
            try:
                if not await self._asks_ours(address):
                    await self._decide(proof, accesses)
                    return
                infos = [
                    AccessInfo(resource=access.resource.key, actions=[action.value for action in access.actions])
                    for access in accesses
                ]
                body = CheckAccessRequestBody(accesses=infos).encode()
                request = RemotingCommand(OwnRequestCode.CHECK_ACCESS, body=body)
                proof.forward(request, self._own)
                response = await self._client.invoke(address, request, _TIMEOUT_MS)
            except RemotingError as failed:
                error = failed
                continue
            if response.code != ResponseCode.SUCCESS:
                raise refused(response)
            return
        raise error

    # Requests to brokers

    async def sign(self, address: str, caller: Caller, command: RemotingCommand) -> None:
        """Make ``command`` a request of its caller to the broker at ``address``. Raises CallError, RemotingError."""
        proof = _signed(caller.proof)
        if await self._asks_ours(address):
            proof.forward(command, self._own)
        else:
            await self._decide(proof, caller.accesses)
            self._own.sign(command)

    async def _asks_ours(self, address: str) -> bool:
        """Whether the broker at ``address`` decides itself. Raises CallError if it refuses this proxy."""
        channel = await self._client.channel(address, _TIMEOUT_MS)
        is_ours = self._is_ours.get(channel)
        if is_ours is None:
            request = RemotingCommand(OwnRequestCode.CHECK_ACCESS)
            self._own.sign(request)
            response = await channel.invoke(request, _TIMEOUT_MS)
            if response.code not in (ResponseCode.SUCCESS, ResponseCode.REQUEST_CODE_NOT_SUPPORTED):
                text = f"the broker refuses innerClientAuthenticationCredentials of the proxy: {response.remark}"
                raise CallError(Code.INTERNAL_SERVER_ERROR, text)
            is_ours = self._is_ours[channel] = response.code == ResponseCode.SUCCESS
        return is_ours

    # Decisions in place of RocketMQ's brokers

    async def _decide(self, proof: CallerProof, accesses: Accesses) -> None:
        """Raise CallError if a user is not one of RocketMQ's brokers, or its policies deny one of ``accesses``."""
        name = proof.access_key
        user: User | None = await self._users.get(name, lambda: self._find_user(name))
        if user is None or user.is_disabled or not proof.is_signed(user.password):
            raise _unauthorized(standing_refusal(name[:_NAME_SHOWN], user) or "check signature failed.")
        if not self._checks_policies or user.is_super:
            return
        acl: Acl | None = await self._acls.get(name, lambda: self._find_acl(name))
        verdict = UserPermissions(user, acl).check(accesses, proof.ip)
        if not verdict.is_allowed:
            raise _unauthorized(verdict.refusal)

    async def _find_user(self, name: str) -> User | None:
        response = await self._ask(lambda: RemotingCommand.request(GetUserRequestHeader(username=name)))
        if not response.body:
            return None
        info = decode_body(UserInfo, response.body)
        if not info.password:
            raise RemotingError("a broker does not say how its users sign, and cannot verify them itself")
        status = UserStatus.of(info.user_status) or UserStatus.DISABLE
        return User(name, info.password, UserType.of(info.user_type) or UserType.NORMAL, status)

    async def _find_acl(self, name: str) -> Acl | None:
        response = await self._ask(lambda: RemotingCommand.request(GetAclRequestHeader(subject=subject_of(name))))
        return _acl(decode_body(AclInfo, response.body)) if response.body else NO_POLICIES

    async def _ask(self, made: Callable[[], RemotingCommand]) -> RemotingCommand:
        """The answer of the first of RocketMQ's brokers that answers."""
        error: GantrymqError = RemotingError("there is no broker that knows users")
        for address in (await self._masters()).values():
            try:
                if await self._asks_ours(address):
                    continue
                request = made()
                self._own.sign(request)
                response = await self._client.invoke(address, request, _TIMEOUT_MS)
            except RemotingError as failed:
                error = failed
                continue
            if response.code == ResponseCode.SUCCESS:
                return response
            error = refused(response)
        raise error


def _acl(info: AclInfo) -> Acl:
    """The policies in an answer. Raises RemotingError for an entry that is not understood: it may deny something."""
    try:
        return Acl(tuple(policies_of(info)))
    except AccessError as error:
        raise RemotingError(f"a broker has a policy that is not understood: {error}") from error


def _signed(proof: CallerProof | None) -> CallerProof:
    if proof is None or not proof.access_key:
        raise _unauthorized("username cannot be null.")
    return proof


def _unauthorized(text: str) -> CallError:
    return CallError(Code.UNAUTHORIZED, text)
