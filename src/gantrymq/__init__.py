"""gantrymq: Apache RocketMQ's message store in Python, byte-compatible, with its data pipeline on Spark.

The public names below are imported on first use, so that ``import gantrymq`` stays cheap.
"""

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from gantrymq.client.admin.admin_client import AdminClient as AdminClient
    from gantrymq.client.consumer.contexts import ConsumeConcurrentlyStatus as ConsumeConcurrentlyStatus
    from gantrymq.client.consumer.contexts import ConsumeOrderlyStatus as ConsumeOrderlyStatus
    from gantrymq.client.consumer.lite_pull import LitePullConsumer as LitePullConsumer
    from gantrymq.client.consumer.push import PushConsumer as PushConsumer
    from gantrymq.client.consumer.settings import ConsumeFromWhere as ConsumeFromWhere
    from gantrymq.client.consumer.settings import MessageModel as MessageModel
    from gantrymq.client.producer import Producer as Producer
    from gantrymq.client.pull_client import PullClient as PullClient
    from gantrymq.config.settings import MessageStoreConfig as MessageStoreConfig
    from gantrymq.embedded.async_broker import AsyncEmbeddedBroker as AsyncEmbeddedBroker
    from gantrymq.embedded.broker import EmbeddedBroker as EmbeddedBroker
    from gantrymq.model.message import Message as Message
    from gantrymq.model.message import StoredMessage as StoredMessage
    from gantrymq.store.message_store import MessageStore as MessageStore
    from gantrymq.store.reader import StoreReader as StoreReader

__version__ = "0.1.0"

_HOME = {
    "AsyncEmbeddedBroker": "gantrymq.embedded.async_broker",
    "EmbeddedBroker": "gantrymq.embedded.broker",
    "Message": "gantrymq.model.message",
    "StoredMessage": "gantrymq.model.message",
    "MessageStoreConfig": "gantrymq.config.settings",
    "MessageStore": "gantrymq.store.message_store",
    "StoreReader": "gantrymq.store.reader",
    "Producer": "gantrymq.client.producer",
    "PullClient": "gantrymq.client.pull_client",
    "AdminClient": "gantrymq.client.admin.admin_client",
    "PushConsumer": "gantrymq.client.consumer.push",
    "LitePullConsumer": "gantrymq.client.consumer.lite_pull",
    "ConsumeConcurrentlyStatus": "gantrymq.client.consumer.contexts",
    "ConsumeOrderlyStatus": "gantrymq.client.consumer.contexts",
    "ConsumeFromWhere": "gantrymq.client.consumer.settings",
    "MessageModel": "gantrymq.client.consumer.settings",
}

__all__ = [
    "AdminClient",
    "AsyncEmbeddedBroker",
    "ConsumeConcurrentlyStatus",
    "ConsumeFromWhere",
    "ConsumeOrderlyStatus",
    "EmbeddedBroker",
    "LitePullConsumer",
    "Message",
    "MessageModel",
    "MessageStore",
    "MessageStoreConfig",
    "Producer",
    "PullClient",
    "PushConsumer",
    "StoreReader",
    "StoredMessage",
    "__version__",
]


def __getattr__(name: str) -> Any:
    """Import a public name on first use."""
    if name not in _HOME:
        raise AttributeError(f"module 'gantrymq' has no attribute {name!r}")
    from importlib import import_module

    return getattr(import_module(_HOME[name]), name)
