"""Subscription expressions: tags, or a filter of another kind.

Source: FilterAPI, ExpressionType, SubscriptionData.
"""

from __future__ import annotations

from gantrymq.client.requests.calls import SUBSCRIBE_ALL
from gantrymq.errors import MQClientError
from gantrymq.model.message import tag_code
from gantrymq.remoting.bodies.client import SubscriptionData

TAG = "TAG"
SQL92 = "SQL92"


def subscription(topic: str, expression: str, expression_type: str, version: int) -> SubscriptionData:
    """Parse ``A || B``, ``*`` for all, or with SQL92 a condition that the broker evaluates.

    ``version`` is the time of the subscription in milliseconds. Raises MQClientError for an invalid expression.
    """
    made = SubscriptionData(
        topic=topic, sub_string=expression or SUBSCRIBE_ALL, expression_type=expression_type, sub_version=version
    )
    if expression_type != TAG:
        if not expression:
            raise MQClientError(f"Expression can't be null! {expression_type}")
        return made
    if made.sub_string != SUBSCRIBE_ALL:
        made.tags_set = sorted({tag for tag in map(str.strip, expression.split("||")) if tag})
        made.code_set = sorted({tag_code(tag) for tag in made.tags_set})
        if not expression.strip("|"):
            raise MQClientError(f"subscription {expression!r} of topic {topic}: subString split error")
    return made
