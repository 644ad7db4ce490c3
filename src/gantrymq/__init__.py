"""gantrymq: Apache RocketMQ's message store in Python, byte-compatible, with its data pipeline on Spark.

The public names below are imported on first use, so that ``import gantrymq`` stays cheap.
"""

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from gantrymq.client.admin.admin_client import AdminClient as AdminClient
    from gantrymq.client.async_producer import AsyncProducer as AsyncProducer
    from gantrymq.client.calls import PullResult as PullResult
    from gantrymq.client.calls import PullStatus as PullStatus
    from gantrymq.client.compression import CompressionType as CompressionType
    from gantrymq.client.consumer.allocation import AllocateMachineRoomNearby as AllocateMachineRoomNearby
    from gantrymq.client.consumer.allocation import AllocateMessageQueueAveragely as AllocateMessageQueueAveragely
    from gantrymq.client.consumer.allocation import (
        AllocateMessageQueueAveragelyByCircle as AllocateMessageQueueAveragelyByCircle,
    )
    from gantrymq.client.consumer.allocation import AllocateMessageQueueByConfig as AllocateMessageQueueByConfig
    from gantrymq.client.consumer.allocation import (
        AllocateMessageQueueByMachineRoom as AllocateMessageQueueByMachineRoom,
    )
    from gantrymq.client.consumer.allocation import (
        AllocateMessageQueueConsistentHash as AllocateMessageQueueConsistentHash,
    )
    from gantrymq.client.consumer.allocation import AllocateMessageQueueStrategy as AllocateMessageQueueStrategy
    from gantrymq.client.consumer.async_lite_pull import AsyncLitePullConsumer as AsyncLitePullConsumer
    from gantrymq.client.consumer.async_push import AsyncPushConsumer as AsyncPushConsumer
    from gantrymq.client.consumer.contexts import ConsumeConcurrentlyContext as ConsumeConcurrentlyContext
    from gantrymq.client.consumer.contexts import ConsumeConcurrentlyStatus as ConsumeConcurrentlyStatus
    from gantrymq.client.consumer.contexts import ConsumeOrderlyContext as ConsumeOrderlyContext
    from gantrymq.client.consumer.contexts import ConsumeOrderlyStatus as ConsumeOrderlyStatus
    from gantrymq.client.consumer.lite_pull import LitePullConsumer as LitePullConsumer
    from gantrymq.client.consumer.push import PushConsumer as PushConsumer
    from gantrymq.client.consumer.received import ReceivedMessage as ReceivedMessage
    from gantrymq.client.consumer.settings import ConsumeFromWhere as ConsumeFromWhere
    from gantrymq.client.consumer.settings import LitePullConsumerConfig as LitePullConsumerConfig
    from gantrymq.client.consumer.settings import MessageModel as MessageModel
    from gantrymq.client.consumer.settings import PushConsumerConfig as PushConsumerConfig
    from gantrymq.client.producer import Producer as Producer
    from gantrymq.client.producer_settings import ProducerConfig as ProducerConfig
    from gantrymq.client.pull_client import PullClient as PullClient
    from gantrymq.client.records import decode_records as decode_records
    from gantrymq.client.segments import PulledRecords as PulledRecords
    from gantrymq.client.send_result import SendResult as SendResult
    from gantrymq.client.send_result import SendStatus as SendStatus
    from gantrymq.client.settings import ClientConfig as ClientConfig
    from gantrymq.config.settings import FlushDiskType as FlushDiskType
    from gantrymq.config.settings import MessageStoreConfig as MessageStoreConfig
    from gantrymq.embedded.async_broker import AsyncEmbeddedBroker as AsyncEmbeddedBroker
    from gantrymq.embedded.broker import EmbeddedBroker as EmbeddedBroker
    from gantrymq.errors import AlreadyStartedError as AlreadyStartedError
    from gantrymq.errors import AmbiguousGeometryError as AmbiguousGeometryError
    from gantrymq.errors import ConfigError as ConfigError
    from gantrymq.errors import CorruptRecordError as CorruptRecordError
    from gantrymq.errors import DiskError as DiskError
    from gantrymq.errors import DiskFullError as DiskFullError
    from gantrymq.errors import GantrymqError as GantrymqError
    from gantrymq.errors import KernelsError as KernelsError
    from gantrymq.errors import MisfiledQueueError as MisfiledQueueError
    from gantrymq.errors import MissingFileError as MissingFileError
    from gantrymq.errors import MissingLogBeginError as MissingLogBeginError
    from gantrymq.errors import MissingLogEndError as MissingLogEndError
    from gantrymq.errors import MissingLogError as MissingLogError
    from gantrymq.errors import MQBrokerError as MQBrokerError
    from gantrymq.errors import MQClientError as MQClientError
    from gantrymq.errors import NoRoomError as NoRoomError
    from gantrymq.errors import NoRouteError as NoRouteError
    from gantrymq.errors import NotAStoreError as NotAStoreError
    from gantrymq.errors import NotInPlaceError as NotInPlaceError
    from gantrymq.errors import RemotingCommandError as RemotingCommandError
    from gantrymq.errors import RemotingConnectError as RemotingConnectError
    from gantrymq.errors import RemotingError as RemotingError
    from gantrymq.errors import RemotingTimeoutError as RemotingTimeoutError
    from gantrymq.errors import RemotingTooMuchRequestError as RemotingTooMuchRequestError
    from gantrymq.errors import StoreBehindError as StoreBehindError
    from gantrymq.errors import StoreClosedError as StoreClosedError
    from gantrymq.errors import StoreError as StoreError
    from gantrymq.errors import StoreLockedError as StoreLockedError
    from gantrymq.errors import StorePermissionError as StorePermissionError
    from gantrymq.errors import SyncFailedError as SyncFailedError
    from gantrymq.errors import UnusableFileError as UnusableFileError
    from gantrymq.errors import WrongFileSizeError as WrongFileSizeError
    from gantrymq.model.message import Message as Message
    from gantrymq.model.message import StoredMessage as StoredMessage
    from gantrymq.model.message_queue import MessageQueue as MessageQueue
    from gantrymq.model.status import GetMessageStatus as GetMessageStatus
    from gantrymq.model.status import PutMessageStatus as PutMessageStatus
    from gantrymq.remoting.bodies.group import SubscriptionGroupConfig as SubscriptionGroupConfig
    from gantrymq.remoting.bodies.topic import TopicConfig as TopicConfig
    from gantrymq.remoting.codes import SerializeType as SerializeType
    from gantrymq.store.append import PutMessageResult as PutMessageResult
    from gantrymq.store.lookup import GetMessageResult as GetMessageResult
    from gantrymq.store.message_store import MessageStore as MessageStore
    from gantrymq.store.reader import StoreReader as StoreReader

__version__ = "0.1.0"

# The public names by the module that they are in.
_PUBLIC = {
    "gantrymq.client.admin.admin_client": ("AdminClient",),
    "gantrymq.client.async_producer": ("AsyncProducer",),
    "gantrymq.client.calls": (
        "PullResult",
        "PullStatus",
    ),
    "gantrymq.client.compression": ("CompressionType",),
    "gantrymq.client.consumer.allocation": (
        "AllocateMachineRoomNearby",
        "AllocateMessageQueueAveragely",
        "AllocateMessageQueueAveragelyByCircle",
        "AllocateMessageQueueByConfig",
        "AllocateMessageQueueByMachineRoom",
        "AllocateMessageQueueConsistentHash",
        "AllocateMessageQueueStrategy",
    ),
    "gantrymq.client.consumer.async_lite_pull": ("AsyncLitePullConsumer",),
    "gantrymq.client.consumer.async_push": ("AsyncPushConsumer",),
    "gantrymq.client.consumer.contexts": (
        "ConsumeConcurrentlyContext",
        "ConsumeConcurrentlyStatus",
        "ConsumeOrderlyContext",
        "ConsumeOrderlyStatus",
    ),
    "gantrymq.client.consumer.lite_pull": ("LitePullConsumer",),
    "gantrymq.client.consumer.push": ("PushConsumer",),
    "gantrymq.client.consumer.received": ("ReceivedMessage",),
    "gantrymq.client.consumer.settings": (
        "ConsumeFromWhere",
        "LitePullConsumerConfig",
        "MessageModel",
        "PushConsumerConfig",
    ),
    "gantrymq.client.producer": ("Producer",),
    "gantrymq.client.producer_settings": ("ProducerConfig",),
    "gantrymq.client.pull_client": ("PullClient",),
    "gantrymq.client.records": ("decode_records",),
    "gantrymq.client.segments": ("PulledRecords",),
    "gantrymq.client.send_result": (
        "SendResult",
        "SendStatus",
    ),
    "gantrymq.client.settings": ("ClientConfig",),
    "gantrymq.config.settings": (
        "FlushDiskType",
        "MessageStoreConfig",
    ),
    "gantrymq.embedded.async_broker": ("AsyncEmbeddedBroker",),
    "gantrymq.embedded.broker": ("EmbeddedBroker",),
    "gantrymq.errors": (
        "NotInPlaceError",
        "AlreadyStartedError",
        "AmbiguousGeometryError",
        "ConfigError",
        "CorruptRecordError",
        "DiskError",
        "DiskFullError",
        "GantrymqError",
        "KernelsError",
        "MQBrokerError",
        "MQClientError",
        "MisfiledQueueError",
        "MissingFileError",
        "MissingLogBeginError",
        "MissingLogEndError",
        "MissingLogError",
        "NoRoomError",
        "NoRouteError",
        "NotAStoreError",
        "RemotingCommandError",
        "RemotingConnectError",
        "RemotingError",
        "RemotingTimeoutError",
        "RemotingTooMuchRequestError",
        "StoreBehindError",
        "StoreClosedError",
        "StoreError",
        "StoreLockedError",
        "StorePermissionError",
        "SyncFailedError",
        "UnusableFileError",
        "WrongFileSizeError",
    ),
    "gantrymq.model.message": (
        "Message",
        "StoredMessage",
    ),
    "gantrymq.model.message_queue": ("MessageQueue",),
    "gantrymq.model.status": (
        "GetMessageStatus",
        "PutMessageStatus",
    ),
    "gantrymq.remoting.bodies.group": ("SubscriptionGroupConfig",),
    "gantrymq.remoting.bodies.topic": ("TopicConfig",),
    "gantrymq.remoting.codes": ("SerializeType",),
    "gantrymq.store.append": ("PutMessageResult",),
    "gantrymq.store.lookup": ("GetMessageResult",),
    "gantrymq.store.message_store": ("MessageStore",),
    "gantrymq.store.reader": ("StoreReader",),
}
_HOME = {name: module for module, names in _PUBLIC.items() for name in names}

__all__ = [
    "AdminClient",
    "AllocateMachineRoomNearby",
    "AllocateMessageQueueAveragely",
    "AllocateMessageQueueAveragelyByCircle",
    "AllocateMessageQueueByConfig",
    "AllocateMessageQueueByMachineRoom",
    "AllocateMessageQueueConsistentHash",
    "AllocateMessageQueueStrategy",
    "AlreadyStartedError",
    "AmbiguousGeometryError",
    "AsyncEmbeddedBroker",
    "AsyncLitePullConsumer",
    "AsyncProducer",
    "AsyncPushConsumer",
    "ClientConfig",
    "CompressionType",
    "ConfigError",
    "ConsumeConcurrentlyContext",
    "ConsumeConcurrentlyStatus",
    "ConsumeFromWhere",
    "ConsumeOrderlyContext",
    "ConsumeOrderlyStatus",
    "CorruptRecordError",
    "DiskError",
    "DiskFullError",
    "EmbeddedBroker",
    "FlushDiskType",
    "GantrymqError",
    "GetMessageResult",
    "GetMessageStatus",
    "KernelsError",
    "LitePullConsumer",
    "LitePullConsumerConfig",
    "MQBrokerError",
    "MQClientError",
    "Message",
    "MessageModel",
    "MessageQueue",
    "MessageStore",
    "MessageStoreConfig",
    "MisfiledQueueError",
    "MissingFileError",
    "MissingLogBeginError",
    "MissingLogEndError",
    "MissingLogError",
    "NoRoomError",
    "NoRouteError",
    "NotAStoreError",
    "NotInPlaceError",
    "Producer",
    "ProducerConfig",
    "PullClient",
    "PullResult",
    "PullStatus",
    "PulledRecords",
    "PushConsumer",
    "PushConsumerConfig",
    "PutMessageResult",
    "PutMessageStatus",
    "ReceivedMessage",
    "RemotingCommandError",
    "RemotingConnectError",
    "RemotingError",
    "RemotingTimeoutError",
    "RemotingTooMuchRequestError",
    "SendResult",
    "SendStatus",
    "SerializeType",
    "StoreBehindError",
    "StoreClosedError",
    "StoreError",
    "StoreLockedError",
    "StorePermissionError",
    "StoreReader",
    "StoredMessage",
    "SubscriptionGroupConfig",
    "SyncFailedError",
    "TopicConfig",
    "UnusableFileError",
    "WrongFileSizeError",
    "__version__",
    "decode_records",
]


def __getattr__(name: str) -> Any:
    """Import a public name on first use."""
    if name not in _HOME:
        raise AttributeError(f"module 'gantrymq' has no attribute {name!r}")
    from importlib import import_module

    return getattr(import_module(_HOME[name]), name)


def __dir__() -> list[str]:
    """The public names beside what is there already, for completion and ``dir(gantrymq)``."""
    return sorted({*globals(), *__all__})
