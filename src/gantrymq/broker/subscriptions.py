"""A subscription out of its text: ``*``, or tags joined by ``||``. Source: FilterAPI, ExpressionType."""

from gantrymq.errors import GantrymqError
from gantrymq.model.message import tag_code
from gantrymq.remoting.bodies.client import SubscriptionData

SUB_ALL = "*"
TAG_TYPE = "TAG"


class SubscriptionError(GantrymqError):
    """A subscription's text cannot be read."""


def is_tag_type(expression_type: str | None) -> bool:
    """Whether an expression is of tags; one that says nothing is."""
    return not expression_type or expression_type == TAG_TYPE


def build_subscription(topic: str, text: str | None, expression_type: str | None, version: int) -> SubscriptionData:
    """The subscription; raises SubscriptionError where it has no tag in it, or no expression."""
    if not is_tag_type(expression_type):
        if not text:
            raise SubscriptionError(f"Expression can't be null! {expression_type}")
        return SubscriptionData(topic=topic, sub_string=text, expression_type=expression_type, sub_version=version)
    found = SubscriptionData(topic=topic, sub_string=text or SUB_ALL, sub_version=version)
    if not text or text == SUB_ALL:
        return found
    if not text.replace("|", ""):
        raise SubscriptionError("subString split error")
    found.tags_set = [tag.strip() for tag in text.split("||") if tag.strip()]
    found.code_set = [tag_code(tag) for tag in found.tags_set]
    return found


def tags_codes(subscription: SubscriptionData) -> frozenset[int] | None:
    """The hashes of the tags that are wanted; None where every message is (isMatchedByConsumeQueue)."""
    if subscription.class_filter_mode or not is_tag_type(subscription.expression_type):
        return None
    return None if subscription.sub_string == SUB_ALL else frozenset(subscription.code_set)
