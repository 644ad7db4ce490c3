"""Headers about RocketMQ 5's users and their policies."""

from typing import ClassVar

from gantrymq.remoting.codes import RequestCode
from gantrymq.remoting.header import CommandHeader


class CreateUserRequestHeader(CommandHeader, kw_only=True):
    """AUTH_CREATE_USER."""

    code: ClassVar[int] = RequestCode.AUTH_CREATE_USER

    username: str | None = None


class UpdateUserRequestHeader(CommandHeader, kw_only=True):
    """AUTH_UPDATE_USER."""

    code: ClassVar[int] = RequestCode.AUTH_UPDATE_USER

    username: str | None = None


class DeleteUserRequestHeader(CommandHeader, kw_only=True):
    """AUTH_DELETE_USER."""

    code: ClassVar[int] = RequestCode.AUTH_DELETE_USER

    username: str | None = None


class GetUserRequestHeader(CommandHeader, kw_only=True):
    """AUTH_GET_USER."""

    code: ClassVar[int] = RequestCode.AUTH_GET_USER

    username: str | None = None


class ListUsersRequestHeader(CommandHeader, kw_only=True):
    """AUTH_LIST_USER."""

    code: ClassVar[int] = RequestCode.AUTH_LIST_USER

    filter: str | None = None


class CreateAclRequestHeader(CommandHeader, kw_only=True):
    """AUTH_CREATE_ACL."""

    code: ClassVar[int] = RequestCode.AUTH_CREATE_ACL

    subject: str | None = None


class UpdateAclRequestHeader(CommandHeader, kw_only=True):
    """AUTH_UPDATE_ACL."""

    code: ClassVar[int] = RequestCode.AUTH_UPDATE_ACL

    subject: str | None = None


class DeleteAclRequestHeader(CommandHeader, kw_only=True):
    """AUTH_DELETE_ACL: of one resource, or all policies of the subject."""

    code: ClassVar[int] = RequestCode.AUTH_DELETE_ACL

    subject: str | None = None
    policy_type: str | None = None
    resource: str | None = None


class GetAclRequestHeader(CommandHeader, kw_only=True):
    """AUTH_GET_ACL."""

    code: ClassVar[int] = RequestCode.AUTH_GET_ACL

    subject: str | None = None


class ListAclsRequestHeader(CommandHeader, kw_only=True):
    """AUTH_LIST_ACL."""

    code: ClassVar[int] = RequestCode.AUTH_LIST_ACL

    subject_filter: str | None = None
    resource_filter: str | None = None
