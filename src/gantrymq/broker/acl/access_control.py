"""Access control: every request is checked before its processor runs.

A :class:`Permission` stands beside the processor in the broker's table of request codes. It reads the same typed header
or body as the processor, so both always act on the same topics and groups. A code without a row is for administrators.

Source: PlainAccessValidator, PlainPermissionManager, FileWatchService, PlainAccessResource, Permission (4.9.8),
DefaultAuthorizationContextBuilder (5.5.0).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple, Self

from gantrymq.broker import names
from gantrymq.broker.acl.accounts import PUB, SUB, Account, Accounts, parse_accounts
from gantrymq.config.broker_settings import BrokerConfig
from gantrymq.errors import ConfigError
from gantrymq.logs import get_logger
from gantrymq.remoting.acl import ACCESS_KEY, SessionCredentials, signature_matches
from gantrymq.remoting.bodies.client import (
    CheckClientRequestBody,
    HeartbeatData,
    LockBatchRequestBody,
    QueryAssignmentRequestBody,
    UnlockBatchRequestBody,
)
from gantrymq.remoting.bodies.pop import BatchAckMessageRequestBody
from gantrymq.remoting.body import decode_request
from gantrymq.remoting.codes import ResponseCode
from gantrymq.remoting.command import RemotingCommand
from gantrymq.remoting.header import CommandHeader
from gantrymq.remoting.headers.consumer import UnregisterClientRequestHeader
from gantrymq.remoting.headers.send import ConsumerSendMsgBackRequestHeader, EndTransactionRequestHeader
from gantrymq.remoting.transport.channel import Channel

WATCH_INTERVAL_MS = 500


class Need(NamedTuple):
    """A permission on a topic or a group. If ``permission`` is a sum, any one of its bits suffices."""

    name: str
    permission: int
    is_group: bool


class Permission(NamedTuple):
    """``needs`` returns the needs of a request. None means that only administrators may send it."""

    needs: Callable[[RemotingCommand], Iterable[Need]] | None


# For requests that change the broker, or that show more than one topic or group.
ADMINISTRATORS = Permission(None)
# For requests whose answer does not depend on topics or groups.
ANY_ACCOUNT = Permission(lambda _: ())


def send(header: type[CommandHeader]) -> Permission:
    """PUB on the header's topic."""

    def needs(request: RemotingCommand) -> Iterator[Need]:
        request_header: Any = request.read(header)
        yield _topic(request_header.topic, PUB)

    return Permission(needs)


def look(header: type[CommandHeader]) -> Permission:
    """PUB or SUB on the header's topic, because producers ask for the bounds of queues too."""
    return _of_fields(header, "", ("topic",), PUB | SUB)


def read(header: type[CommandHeader]) -> Permission:
    """SUB on the header's topic."""
    return _of_fields(header, "", ("topic",), SUB)


def consume(header: type[CommandHeader], *, group: str = "consumer_group", topics: tuple[str, ...] = ()) -> Permission:
    """SUB on the group and on each topic in these fields of the header. A field may list several, separated by ";"."""
    return _of_fields(header, group, topics, SUB)


def _of_fields(header: type[CommandHeader], group: str, topics: tuple[str, ...], permission: int) -> Permission:
    def needs(request: RemotingCommand) -> Iterator[Need]:
        request_header = request.read(header)
        if group:
            yield _group(getattr(request_header, group))
        for field in topics:
            text: str | None = getattr(request_header, field)
            # Stripped, because processors strip the name too.
            yield from (
                _topic(name, permission) for text_part in (text or "").split(";") if (name := text_part.strip())
            )

    return Permission(needs)


def _heart_beat(request: RemotingCommand) -> Iterator[Need]:
    for consumer in decode_request(HeartbeatData, request.body).consumer_data_set:
        yield _group(consumer.group_name)
        yield from (_topic(subscription.topic) for subscription in consumer.subscription_data_set)


def _unregister(request: RemotingCommand) -> Iterator[Need]:
    group = request.read(UnregisterClientRequestHeader).consumer_group
    if group is not None:
        yield _group(group)


def _check_client(request: RemotingCommand) -> Iterator[Need]:
    body = decode_request(CheckClientRequestBody, request.body)
    if body.group is not None:
        yield _group(body.group)
    if body.subscription_data is not None:
        yield _topic(body.subscription_data.topic)


def _assignment(request: RemotingCommand) -> Iterator[Need]:
    body = decode_request(QueryAssignmentRequestBody, request.body)
    yield _group(body.consumer_group)
    yield _topic(body.topic)


def popped(header: type[CommandHeader]) -> Permission:
    """SUB on the group and on the topic of the header. A retry topic of version 1 counts as the topic that it is for.

    Its name does not show where the group ends.
    """

    def needs(request: RemotingCommand) -> Iterator[Need]:
        request_header: Any = request.read(header)
        yield _group(request_header.consumer_group)
        yield _topic(request_header.topic.removeprefix(f"{names.RETRY_PREFIX}{request_header.consumer_group}_"))

    return Permission(needs)


def _batch_ack(request: RemotingCommand) -> Iterator[Need]:
    for ack in decode_request(BatchAckMessageRequestBody, request.body).acks if request.body else ():
        yield _group(ack.consumer_group)
        yield _topic(ack.topic)


def _locks(body: type[LockBatchRequestBody | UnlockBatchRequestBody]) -> Permission:
    def needs(request: RemotingCommand) -> Iterator[Need]:
        request_body = decode_request(body, request.body)
        yield _group(request_body.consumer_group)
        yield from (_topic(topic) for topic in {queue.topic for queue in request_body.mq_set})

    return Permission(needs)


def end_transaction(real_topic_at: Callable[[int], str | None]) -> Permission:
    """PUB on the topic that the half message at the offset is for, and on the one that the request names.

    An answer to a check names RMQ_SYS_TRANS_HALF_TOPIC. ``real_topic_at`` is None where there is no half message.
    """

    def needs(request: RemotingCommand) -> Iterator[Need]:
        header = request.read(EndTransactionRequestHeader)
        for topic in {header.topic, real_topic_at(header.commit_log_offset)}:
            if topic and topic != names.TRANS_HALF_TOPIC:
                yield _topic(topic, PUB)

    return Permission(needs)


def send_back(topic_at: Callable[[int], str | None]) -> Permission:
    """SUB on the group that gets the message, and on the topic of the record at the offset.

    ``topic_at`` returns that topic, or None if there is no record.
    """

    def needs(request: RemotingCommand) -> Iterator[Need]:
        header = request.read(ConsumerSendMsgBackRequestHeader)
        yield _group(header.group)
        topic = topic_at(header.offset)
        if topic is not None:
            yield _topic(topic)

    return Permission(needs)


HEART_BEAT = Permission(_heart_beat)
UNREGISTER_CLIENT = Permission(_unregister)
CHECK_CLIENT_CONFIG = Permission(_check_client)
QUERY_ASSIGNMENT = Permission(_assignment)
BATCH_ACK_MESSAGE = Permission(_batch_ack)
LOCK_BATCH_MQ, UNLOCK_BATCH_MQ = _locks(LockBatchRequestBody), _locks(UnlockBatchRequestBody)


def _group(name: str) -> Need:
    return Need(name, SUB, is_group=True)


def _topic(name: str, permission: int = SUB) -> Need:
    """The need for a topic. A retry topic belongs to its group: a consumer sends to it and reads it.

    The name of a POP retry topic has the topic after the group (``%RETRY%group+topic``).
    """
    if name.startswith(names.RETRY_PREFIX):
        return _group(name[len(names.RETRY_PREFIX) :].partition("+")[0])
    return Need(name, permission, is_group=False)


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

    @property
    def administrator(self) -> SessionCredentials | None:
        """The credentials with which a slave asks its master, whose file has the same account; None without one."""
        admins = (account for account in self._accounts.by_key.values() if account.admin)
        admin = next(admins, None)
        return None if admin is None else SessionCredentials(admin.access_key, admin.secret_key)

    def is_white(self, ip: str) -> bool:
        """Whether requests from an address need no signature."""
        return self._accounts.is_white(ip)

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
