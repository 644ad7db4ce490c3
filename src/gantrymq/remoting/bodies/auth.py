"""RocketMQ 5's users and their policies."""

from msgspec import field

from gantrymq.remoting.body import Body


class UserInfo(Body, kw_only=True):
    """A user. ``user_type`` is Super or Normal, ``user_status`` is enable or disable."""

    username: str | None = None
    password: str | None = None
    user_type: str | None = None
    user_status: str | None = None


class PolicyEntryInfo(Body, kw_only=True):
    """What a subject may or may not do with a resource, such as ``Topic:orders`` or ``Group:*``."""

    resource: str | None = None
    actions: list[str] | None = None
    source_ips: list[str] | None = None
    decision: str | None = None


class PolicyInfo(Body, kw_only=True):
    """The entries of one type: Custom or Default."""

    policy_type: str | None = None
    entries: list[PolicyEntryInfo] = field(default_factory=list)


class AccessInfo(Body, kw_only=True):
    """Something that a user wants to do with a resource, such as ``Topic:orders``: any one of ``actions``."""

    resource: str = ""
    actions: list[str] = field(default_factory=list)


class CheckAccessRequestBody(Body, kw_only=True):
    """The body of CHECK_ACCESS, which RocketMQ does not have."""

    accesses: list[AccessInfo] = field(default_factory=list)


class AclInfo(Body, kw_only=True):
    """All policies of a subject, such as ``User:alice``."""

    subject: str | None = None
    policies: list[PolicyInfo] = field(default_factory=list)
