"""Administration of RocketMQ 5's users and policies: AUTH_CREATE_USER to AUTH_LIST_ACL.

Bodies, answers and texts are RocketMQ's, except that no answer has a password. An answer to a change leaves once the
change is durable and in force. Who may send which request is in the table of request codes; only a super user may
create, change or delete super users, also where authorization is off.

Source: AdminBrokerProcessor, UserConverter, AclConverter.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

from gantrymq.auth.bodies import policies_of
from gantrymq.auth.directory import AccessDirectory, subject_of, user_of
from gantrymq.auth.files import acl_value
from gantrymq.auth.policies import Acl, PolicyType, parse_resource
from gantrymq.auth.users import User, UserStatus, UserType
from gantrymq.broker.acl.permissions import CHANGES_CLUSTER, CHECK_ACCESS, READS_CLUSTER
from gantrymq.broker.acl.user_access import UserAccess
from gantrymq.broker.context import BrokerContext
from gantrymq.broker.processors.route import Route, Routes
from gantrymq.errors import AccessError
from gantrymq.logs import get_logger
from gantrymq.remoting.acl import ACCESS_KEY
from gantrymq.remoting.bodies.auth import AclInfo, UserInfo
from gantrymq.remoting.body import decode_request
from gantrymq.remoting.codes import OwnRequestCode, RequestCode, ResponseCode
from gantrymq.remoting.command import RemotingCommand
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
from gantrymq.remoting.transport.channel import Channel
from gantrymq.remoting.transport.dispatcher import RequestRefused

_DONE = "not set any response code"  # RocketMQ sends a success with the remark of a response that was not filled
_BLANK = "The username is blank"
_FAULT = "An system error occurred, please try again later."
_OFF = "there are no users here: set authenticationEnabled=true, and initAuthenticationUser for the first of them"

log = get_logger("gantrymq.audit")


class UserAdminProcessor:
    """Users and policies. ``access`` is None where authenticationEnabled is false."""

    def __init__(self, access: UserAccess | None) -> None:
        self._access = access

    # Users

    async def create_user(self, channel: Channel, request: RemotingCommand) -> RemotingCommand:
        """AUTH_CREATE_USER: the name of the header wins over that of the body."""
        name = _name(request.read(CreateUserRequestHeader).username)
        info = _user_info(request)
        user = User(
            name, info.password or "", UserType.of(info.user_type) or UserType.NORMAL,
            UserStatus.of(info.user_status) or UserStatus.ENABLE,
        )  # fmt: skip
        by_super = self._on().is_super(request)
        if user.is_super and not by_super:
            raise RequestRefused(ResponseCode.SYSTEM_ERROR, "The super user can only be create by super user")
        return await self._change(request, lambda old: old.create_user(user, by_super=by_super), subject_of(name))

    async def update_user(self, channel: Channel, request: RemotingCommand) -> RemotingCommand:
        """AUTH_UPDATE_USER: what is given of password, type and status."""
        name, info = _name(request.read(UpdateUserRequestHeader).username), _user_info(request)
        user_type, by_super = UserType.of(info.user_type), self._on().is_super(request)
        if user_type is UserType.SUPER and not by_super:
            raise RequestRefused(ResponseCode.SYSTEM_ERROR, "The super user can only be update by super user")

        def edit(old: AccessDirectory) -> AccessDirectory:
            status = UserStatus.of(info.user_status)
            return old.update_user(name, password=info.password, user_type=user_type, status=status, by_super=by_super)

        return await self._change(request, edit, subject_of(name))

    async def delete_user(self, channel: Channel, request: RemotingCommand) -> RemotingCommand:
        """AUTH_DELETE_USER: the user and its policies."""
        name, by_super = request.read(DeleteUserRequestHeader).username or "", self._on().is_super(request)
        if not name.strip():
            raise RequestRefused(ResponseCode.NO_PERMISSION, "username can not be blank")
        return await self._change(request, lambda old: old.delete_user(name, by_super=by_super), subject_of(name))

    def get_user(self, channel: Channel, request: RemotingCommand) -> RemotingCommand:
        """AUTH_GET_USER: without the password, and an empty body for an unknown user."""
        name = request.read(GetUserRequestHeader).username or ""
        if not name.strip():
            raise RequestRefused(ResponseCode.INVALID_PARAMETER, _BLANK)
        user = self._on().directory.users.get(name)
        return _answer(request, None if user is None else _shown_user(user))

    def list_users(self, channel: Channel, request: RemotingCommand) -> RemotingCommand:
        """AUTH_LIST_USER: those whose name contains the filter."""
        text = _filter(request.read(ListUsersRequestHeader).filter)
        return _answer(request, [_shown_user(user) for user in self._on().directory.users_with(text)] or None)

    # Policies

    async def create_acl(self, channel: Channel, request: RemotingCommand) -> RemotingCommand:
        """AUTH_CREATE_ACL: add entries, or replace those of the same resources."""
        return await self._merge_acl(request, request.read(CreateAclRequestHeader).subject)

    async def update_acl(self, channel: Channel, request: RemotingCommand) -> RemotingCommand:
        """AUTH_UPDATE_ACL: the same."""
        return await self._merge_acl(request, request.read(UpdateAclRequestHeader).subject)

    async def _merge_acl(self, request: RemotingCommand, subject: str | None) -> RemotingCommand:
        info = decode_request(AclInfo, request.body) if request.body else AclInfo()
        if not info.policies:
            raise RequestRefused(ResponseCode.SYSTEM_ERROR, "The body of acl is null")
        self._on()
        name = user_of(info.subject)
        name = user_of(subject) if name is None else name
        if name is None:
            raise RequestRefused(ResponseCode.SYSTEM_ERROR, _FAULT)
        try:
            policies = policies_of(info)
        except AccessError as error:
            raise RequestRefused(ResponseCode.NO_PERMISSION, str(error)) from error
        return await self._change(request, lambda old: old.merge_acl(name, policies), subject_of(name))

    async def delete_acl(self, channel: Channel, request: RemotingCommand) -> RemotingCommand:
        """AUTH_DELETE_ACL: the entry of a resource, or all policies of the subject."""
        header = request.read(DeleteAclRequestHeader)
        name, policy_type = _subject(header.subject), PolicyType.of(header.policy_type) or PolicyType.CUSTOM

        def edit(old: AccessDirectory) -> AccessDirectory:
            resource = parse_resource(header.resource) if header.resource else None
            if header.resource and resource is None:  # RocketMQ deletes all policies then
                raise AccessError("The resource is null.")
            return old.delete_acl(name, policy_type, resource)

        return await self._change(request, edit, subject_of(name))

    def get_acl(self, channel: Channel, request: RemotingCommand) -> RemotingCommand:
        """AUTH_GET_ACL: an empty body for a user without policies."""
        name = _subject(request.read(GetAclRequestHeader).subject)
        try:
            acl = self._on().directory.acl_of(name)
        except AccessError as error:
            raise RequestRefused(ResponseCode.NO_PERMISSION, str(error)) from error
        return _answer(request, None if acl is None else _shown_acl(name, acl))

    def list_acls(self, channel: Channel, request: RemotingCommand) -> RemotingCommand:
        """AUTH_LIST_ACL: the subjects and entries that contain the filters."""
        header = request.read(ListAclsRequestHeader)
        acls = self._on().directory.acls_with(_filter(header.subject_filter), _filter(header.resource_filter))
        return _answer(request, [_shown_acl(name, acl) for name, acl in acls] or None)

    # What a proxy asks

    def check_access(self, channel: Channel, request: RemotingCommand) -> RemotingCommand:
        """CHECK_ACCESS: a success, because access control has let the request pass. Without users it is refused."""
        self._on()
        return request.response(ResponseCode.SUCCESS, "")

    def _on(self) -> UserAccess:
        if self._access is None:
            raise RequestRefused(ResponseCode.SYSTEM_ERROR, _OFF)
        return self._access

    async def _change(
        self, request: RemotingCommand, edit: Callable[[AccessDirectory], AccessDirectory], subject: str
    ) -> RemotingCommand:
        """Change the directory, durably, and answer."""
        access = self._on()
        try:
            await access.change(edit)
        except AccessError as error:
            raise RequestRefused(ResponseCode.NO_PERMISSION, str(error)) from error
        by = request.ext_fields.get(ACCESS_KEY, "")
        log.info("[CHANGE] users or policies", request=RequestCode(request.code).name, of=subject, by=by)
        return _answer(request, None)


def _name(name: str | None) -> str:
    if not name:
        raise RequestRefused(ResponseCode.INVALID_PARAMETER, _BLANK)
    return name


def _user_info(request: RemotingCommand) -> UserInfo:
    return decode_request(UserInfo, request.body) if request.body else UserInfo()


def _subject(subject: str | None) -> str:
    name = user_of(subject)
    if name is None:
        raise RequestRefused(ResponseCode.NO_PERMISSION, "The subject is null.")
    return name


def _filter(text: str | None) -> str:
    """The text of a filter. As in RocketMQ a blank one is none."""
    return text if text and text.strip() else ""


def _shown_user(user: User) -> dict[str, Any]:
    return {"username": user.name, "userType": user.type.value, "userStatus": user.status.value}


def _shown_acl(name: str, acl: Acl) -> dict[str, Any]:
    return {"subject": subject_of(name), **acl_value(acl)}


def _answer(request: RemotingCommand, value: Any) -> RemotingCommand:
    body = (
        b"" if value is None else json.dumps(value, ensure_ascii=False, sort_keys=True, separators=(",", ":")).encode()
    )
    return request.response(ResponseCode.SUCCESS, _DONE, body=body)


def routes(context: BrokerContext) -> Routes:
    """The rows of users and policies."""
    users = UserAdminProcessor(context.users)
    return {
        OwnRequestCode.CHECK_ACCESS: Route(users.check_access, CHECK_ACCESS, after_dispatch=False),
        RequestCode.AUTH_CREATE_USER: Route(users.create_user, CHANGES_CLUSTER, after_dispatch=False),
        RequestCode.AUTH_UPDATE_USER: Route(users.update_user, CHANGES_CLUSTER, after_dispatch=False),
        RequestCode.AUTH_DELETE_USER: Route(users.delete_user, CHANGES_CLUSTER, after_dispatch=False),
        RequestCode.AUTH_GET_USER: Route(users.get_user, READS_CLUSTER, after_dispatch=False),
        RequestCode.AUTH_LIST_USER: Route(users.list_users, READS_CLUSTER, after_dispatch=False),
        RequestCode.AUTH_CREATE_ACL: Route(users.create_acl, CHANGES_CLUSTER, after_dispatch=False),
        RequestCode.AUTH_UPDATE_ACL: Route(users.update_acl, CHANGES_CLUSTER, after_dispatch=False),
        RequestCode.AUTH_DELETE_ACL: Route(users.delete_acl, CHANGES_CLUSTER, after_dispatch=False),
        RequestCode.AUTH_GET_ACL: Route(users.get_acl, READS_CLUSTER, after_dispatch=False),
        RequestCode.AUTH_LIST_ACL: Route(users.list_acls, READS_CLUSTER, after_dispatch=False),
    }
