"""The users of RocketMQ 5 and what each may do (its "ACL 2.0"), at a broker with ``authenticationEnabled``.

RocketMQ's brokers return passwords (:meth:`AuthAdmin.user`), gantrymq's do not.

Source: DefaultMQAdminExtImpl, MQClientAPIImpl.
"""

from __future__ import annotations

from typing import TypeVar

import msgspec

from gantrymq.client.admin.base import AdminBase, order
from gantrymq.client.arguments import checks_arguments
from gantrymq.client.requests.calls import Call, body_of
from gantrymq.errors import RemotingCommandError
from gantrymq.remoting.bodies.auth import AclInfo, PolicyEntryInfo, PolicyInfo, UserInfo
from gantrymq.remoting.body import Body, decode_body
from gantrymq.remoting.command import RemotingCommand
from gantrymq.remoting.header import CommandHeader
from gantrymq.remoting.headers.auth import (
    CreateAclRequestHeader,
    CreateUserRequestHeader,
    DeleteAclRequestHeader,
    DeleteUserRequestHeader,
    GetAclRequestHeader,
    GetUserRequestHeader,
    ListAclsRequestHeader,
    ListUsersRequestHeader,
    UpdateAclRequestHeader,
    UpdateUserRequestHeader,
)

BodyT = TypeVar("BodyT", bound=Body)


@checks_arguments()
class AuthAdmin(AdminBase):
    """Users and their policies, at one broker. ``broker`` is its address."""

    def create_user(
        self,
        broker: str,
        username: str,
        password: str,
        user_type: str | None = None,
        user_status: str | None = None,
    ) -> None:
        """Create a user: Super or Normal, the default; enable, the default, or disable (createUser)."""
        user = UserInfo(username=username, password=password, user_type=user_type, user_status=user_status)
        self._client.call(broker, order(CreateUserRequestHeader(username=username), user.encode()))

    def update_user(
        self,
        broker: str,
        username: str,
        *,
        password: str | None = None,
        user_type: str | None = None,
        user_status: str | None = None,
    ) -> None:
        """Change what is given of a user. ``user_status`` is enable or disable (updateUser)."""
        user = UserInfo(username=username, password=password, user_type=user_type, user_status=user_status)
        self._client.call(broker, order(UpdateUserRequestHeader(username=username), user.encode()))

    def delete_user(self, broker: str, username: str) -> None:
        """Delete a user and its policies (deleteUser)."""
        self._client.call(broker, order(DeleteUserRequestHeader(username=username)))

    def user(self, broker: str, username: str) -> UserInfo | None:
        """A user; None if there is none (getUser)."""
        return self._client.call(broker, _one_or_none(GetUserRequestHeader(username=username), UserInfo))

    def users(self, broker: str, name_filter: str | None = None) -> list[UserInfo]:
        """All users, or those whose name contains ``name_filter`` (listUser)."""
        return self._client.call(broker, _list(ListUsersRequestHeader(filter=name_filter), UserInfo))

    def create_acl(self, broker: str, acl: AclInfo) -> None:
        """Give a subject, such as ``User:alice``, its policies (createAcl)."""
        self._client.call(broker, order(CreateAclRequestHeader(subject=acl.subject or ""), acl.encode()))

    def update_acl(self, broker: str, acl: AclInfo) -> None:
        """Add entries to a subject's policies, or replace those of the same resources (updateAcl)."""
        self._client.call(broker, order(UpdateAclRequestHeader(subject=acl.subject or ""), acl.encode()))

    def delete_acl(self, broker: str, subject: str, resource: str | None = None) -> None:
        """Delete a subject's entry of one resource, or all its policies (deleteAcl)."""
        self._client.call(broker, order(DeleteAclRequestHeader(subject=subject, resource=resource)))

    def acl(self, broker: str, subject: str) -> AclInfo | None:
        """The policies of a subject; None if it has none (getAcl)."""
        return self._client.call(broker, _one_or_none(GetAclRequestHeader(subject=subject), AclInfo))

    def acls(self, broker: str, subject_filter: str | None = None, resource_filter: str | None = None) -> list[AclInfo]:
        """The policies of all subjects, or of those whose names contain the filters (listAcl)."""
        header = ListAclsRequestHeader(subject_filter=subject_filter, resource_filter=resource_filter)
        return self._client.call(broker, _list(header, AclInfo))


def policies(
    subject: str, resources: list[str], actions: list[str], decision: str, source_ips: list[str] | None = None
) -> AclInfo:
    """The policies of mqadmin's createAcl and updateAcl: the same actions for each resource."""
    entries = [
        PolicyEntryInfo(resource=resource, actions=actions, source_ips=source_ips, decision=decision)
        for resource in resources
    ]
    return AclInfo(subject=subject, policies=[PolicyInfo(policy_type="Custom", entries=entries)])


def _one_or_none(header: CommandHeader, body: type[BodyT]) -> Call[BodyT | None]:
    def read(response: RemotingCommand, address: str) -> BodyT | None:
        raw = body_of(response, address)
        return decode_body(body, raw) if raw else None

    return Call(lambda: RemotingCommand.request(header), read)


def _list(header: CommandHeader, item: type[BodyT]) -> Call[list[BodyT]]:
    def read(response: RemotingCommand, address: str) -> list[BodyT]:
        raw = body_of(response, address)
        try:
            items = msgspec.json.decode(raw, type=list[msgspec.Raw]) if raw else []
        except msgspec.MsgspecError as error:
            raise RemotingCommandError(f"the body is no list of {item.__name__}: {error}") from None
        return [decode_body(item, bytes(raw_item)) for raw_item in items]

    return Call(lambda: RemotingCommand.request(header), read)
