"""gantrymq: Apache RocketMQ's message store in Python, byte-compatible, with its data pipeline on Spark.

The public names below are imported on first use, so that ``import gantrymq`` stays cheap.
"""

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from gantrymq.broker.server import BrokerServer as BrokerServer
    from gantrymq.client.admin.admin_client import AdminClient as AdminClient
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
    from gantrymq.client.consumer.async_simple import AsyncSimpleConsumer as AsyncSimpleConsumer
    from gantrymq.client.consumer.listeners import ConsumeConcurrentlyContext as ConsumeConcurrentlyContext
    from gantrymq.client.consumer.listeners import ConsumeConcurrentlyStatus as ConsumeConcurrentlyStatus
    from gantrymq.client.consumer.listeners import ConsumeOrderlyContext as ConsumeOrderlyContext
    from gantrymq.client.consumer.listeners import ConsumeOrderlyStatus as ConsumeOrderlyStatus
    from gantrymq.client.consumer.lite_pull import LitePullConsumer as LitePullConsumer
    from gantrymq.client.consumer.push.async_push import AsyncPushConsumer as AsyncPushConsumer
    from gantrymq.client.consumer.push.push import PushConsumer as PushConsumer
    from gantrymq.client.consumer.settings import ConsumeFromWhere as ConsumeFromWhere
    from gantrymq.client.consumer.settings import ConsumerSettings as ConsumerSettings
    from gantrymq.client.consumer.settings import LitePullConsumerConfig as LitePullConsumerConfig
    from gantrymq.client.consumer.settings import LitePullConsumerSettings as LitePullConsumerSettings
    from gantrymq.client.consumer.settings import MessageModel as MessageModel
    from gantrymq.client.consumer.settings import PushConsumerConfig as PushConsumerConfig
    from gantrymq.client.consumer.settings import PushConsumerSettings as PushConsumerSettings
    from gantrymq.client.consumer.settings import SimpleConsumerConfig as SimpleConsumerConfig
    from gantrymq.client.consumer.settings import SimpleConsumerSettings as SimpleConsumerSettings
    from gantrymq.client.consumer.simple import SimpleConsumer as SimpleConsumer
    from gantrymq.client.hooks import ConsumeMessageContext as ConsumeMessageContext
    from gantrymq.client.hooks import ConsumeMessageHook as ConsumeMessageHook
    from gantrymq.client.hooks import ConsumeReturnType as ConsumeReturnType
    from gantrymq.client.hooks import EndTransactionContext as EndTransactionContext
    from gantrymq.client.hooks import EndTransactionHook as EndTransactionHook
    from gantrymq.client.hooks import SendMessageContext as SendMessageContext
    from gantrymq.client.hooks import SendMessageHook as SendMessageHook
    from gantrymq.client.producer.async_producer import AsyncProducer as AsyncProducer
    from gantrymq.client.producer.async_transaction_producer import AsyncTransactionProducer as AsyncTransactionProducer
    from gantrymq.client.producer.compression import CompressionType as CompressionType
    from gantrymq.client.producer.producer import Producer as Producer
    from gantrymq.client.producer.request_reply import create_reply_message as create_reply_message
    from gantrymq.client.producer.settings import ProducerConfig as ProducerConfig
    from gantrymq.client.producer.settings import ProducerSettings as ProducerSettings
    from gantrymq.client.producer.transaction_producer import TransactionProducer as TransactionProducer
    from gantrymq.client.pull.pull_client import PullClient as PullClient
    from gantrymq.client.pull.segments import PulledRecords as PulledRecords
    from gantrymq.client.requests.calls import PullResult as PullResult
    from gantrymq.client.requests.calls import PullStatus as PullStatus
    from gantrymq.client.requests.received import ReceivedMessage as ReceivedMessage
    from gantrymq.client.requests.records import decode_records as decode_records
    from gantrymq.client.requests.send_result import LocalTransactionState as LocalTransactionState
    from gantrymq.client.requests.send_result import SendResult as SendResult
    from gantrymq.client.requests.send_result import SendStatus as SendStatus
    from gantrymq.client.requests.send_result import TransactionSendResult as TransactionSendResult
    from gantrymq.client.settings import ClientConfig as ClientConfig
    from gantrymq.client.settings import ClientSettings as ClientSettings
    from gantrymq.config.broker_settings import BrokerConfig as BrokerConfig
    from gantrymq.config.broker_settings import LiveConfig as LiveConfig
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
    from gantrymq.errors import DuplicateFileError as DuplicateFileError
    from gantrymq.errors import FilterSyntaxError as FilterSyntaxError
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
    from gantrymq.errors import ReceiptHandleError as ReceiptHandleError
    from gantrymq.errors import RemotingCommandError as RemotingCommandError
    from gantrymq.errors import RemotingConnectError as RemotingConnectError
    from gantrymq.errors import RemotingError as RemotingError
    from gantrymq.errors import RemotingTimeoutError as RemotingTimeoutError
    from gantrymq.errors import RemotingTooMuchRequestError as RemotingTooMuchRequestError
    from gantrymq.errors import RequestTimeoutError as RequestTimeoutError
    from gantrymq.errors import StoreBehindError as StoreBehindError
    from gantrymq.errors import StoreClosedError as StoreClosedError
    from gantrymq.errors import StoreError as StoreError
    from gantrymq.errors import StoreLockedError as StoreLockedError
    from gantrymq.errors import StorePermissionError as StorePermissionError
    from gantrymq.errors import SyncFailedError as SyncFailedError
    from gantrymq.errors import UnusableFileError as UnusableFileError
    from gantrymq.errors import WrongFileSizeError as WrongFileSizeError
    from gantrymq.format.trace import MessageType as MessageType
    from gantrymq.format.trace import TraceRecord as TraceRecord
    from gantrymq.format.trace import TraceType as TraceType
    from gantrymq.format.trace import decode_traces as decode_traces
    from gantrymq.model.message import Message as Message
    from gantrymq.model.message import StoredMessage as StoredMessage
    from gantrymq.model.message_queue import MessageQueue as MessageQueue
    from gantrymq.model.status import GetMessageStatus as GetMessageStatus
    from gantrymq.model.status import PutMessageStatus as PutMessageStatus
    from gantrymq.namesrv.server import NamesrvServer as NamesrvServer
    from gantrymq.namesrv.settings import NamesrvConfig as NamesrvConfig
    from gantrymq.remoting.bodies.group import SubscriptionGroupConfig as SubscriptionGroupConfig
    from gantrymq.remoting.bodies.topic import TopicConfig as TopicConfig
    from gantrymq.remoting.codes import SerializeType as SerializeType
    from gantrymq.spark.pipelines.analysis import StoreAnalysis as StoreAnalysis
    from gantrymq.spark.pipelines.analysis import analyze as analyze
    from gantrymq.spark.pipelines.export import export_on_spark as export_on_spark
    from gantrymq.spark.pipelines.rebuild import rebuild_on_spark as rebuild_on_spark
    from gantrymq.spark.pipelines.report import write_analysis as write_analysis
    from gantrymq.spark.pipelines.salvage import salvage_on_spark as salvage_on_spark
    from gantrymq.spark.pipelines.verify import verify_on_spark as verify_on_spark
    from gantrymq.spark.plan.stream_offsets import offsets_behind as offsets_behind
    from gantrymq.spark.source import RocketMQDataSource as RocketMQDataSource
    from gantrymq.store.lookup import GetMessageResult as GetMessageResult
    from gantrymq.store.message_store import MessageStore as MessageStore
    from gantrymq.store.put_result import PutMessageResult as PutMessageResult
    from gantrymq.store.reader import StoreReader as StoreReader
    from gantrymq.tools.export import export_store as export_store
    from gantrymq.tools.export_files import ExportFormat as ExportFormat
    from gantrymq.tools.export_plan import ExportSelection as ExportSelection
    from gantrymq.tools.rebuild import rebuild_store as rebuild_store
    from gantrymq.tools.salvage import salvage_store as salvage_store
    from gantrymq.tools.verify import verify_store as verify_store

__version__ = "0.1.0"

# The public names by the module that they are in.
_PUBLIC = {
    "gantrymq.broker.server": ("BrokerServer",),
    "gantrymq.client.admin.admin_client": ("AdminClient",),
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
    "gantrymq.client.consumer.async_simple": ("AsyncSimpleConsumer",),
    "gantrymq.client.consumer.listeners": (
        "ConsumeConcurrentlyContext",
        "ConsumeConcurrentlyStatus",
        "ConsumeOrderlyContext",
        "ConsumeOrderlyStatus",
    ),
    "gantrymq.client.consumer.lite_pull": ("LitePullConsumer",),
    "gantrymq.client.consumer.push.async_push": ("AsyncPushConsumer",),
    "gantrymq.client.consumer.push.push": ("PushConsumer",),
    "gantrymq.client.consumer.settings": (
        "ConsumeFromWhere",
        "ConsumerSettings",
        "LitePullConsumerConfig",
        "LitePullConsumerSettings",
        "MessageModel",
        "PushConsumerConfig",
        "PushConsumerSettings",
        "SimpleConsumerConfig",
        "SimpleConsumerSettings",
    ),
    "gantrymq.client.consumer.simple": ("SimpleConsumer",),
    "gantrymq.client.hooks": (
        "ConsumeMessageContext",
        "ConsumeMessageHook",
        "ConsumeReturnType",
        "EndTransactionContext",
        "EndTransactionHook",
        "SendMessageContext",
        "SendMessageHook",
    ),
    "gantrymq.client.producer.async_producer": ("AsyncProducer",),
    "gantrymq.client.producer.async_transaction_producer": ("AsyncTransactionProducer",),
    "gantrymq.client.producer.compression": ("CompressionType",),
    "gantrymq.client.producer.producer": ("Producer",),
    "gantrymq.client.producer.request_reply": ("create_reply_message",),
    "gantrymq.client.producer.settings": ("ProducerConfig", "ProducerSettings"),
    "gantrymq.client.producer.transaction_producer": ("TransactionProducer",),
    "gantrymq.client.pull.pull_client": ("PullClient",),
    "gantrymq.client.pull.segments": ("PulledRecords",),
    "gantrymq.client.requests.calls": ("PullResult", "PullStatus"),
    "gantrymq.client.requests.received": ("ReceivedMessage",),
    "gantrymq.client.requests.records": ("decode_records",),
    "gantrymq.client.requests.send_result": (
        "LocalTransactionState",
        "SendResult",
        "SendStatus",
        "TransactionSendResult",
    ),
    "gantrymq.client.settings": ("ClientConfig", "ClientSettings"),
    "gantrymq.config.broker_settings": ("BrokerConfig", "LiveConfig"),
    "gantrymq.config.settings": ("FlushDiskType", "MessageStoreConfig"),
    "gantrymq.embedded.async_broker": ("AsyncEmbeddedBroker",),
    "gantrymq.embedded.broker": ("EmbeddedBroker",),
    "gantrymq.errors": (
        "AlreadyStartedError",
        "AmbiguousGeometryError",
        "ConfigError",
        "CorruptRecordError",
        "DiskError",
        "DiskFullError",
        "DuplicateFileError",
        "FilterSyntaxError",
        "GantrymqError",
        "KernelsError",
        "MisfiledQueueError",
        "MissingFileError",
        "MissingLogBeginError",
        "MissingLogEndError",
        "MissingLogError",
        "MQBrokerError",
        "MQClientError",
        "NoRoomError",
        "NoRouteError",
        "NotAStoreError",
        "NotInPlaceError",
        "ReceiptHandleError",
        "RemotingCommandError",
        "RemotingConnectError",
        "RemotingError",
        "RemotingTimeoutError",
        "RemotingTooMuchRequestError",
        "RequestTimeoutError",
        "StoreBehindError",
        "StoreClosedError",
        "StoreError",
        "StoreLockedError",
        "StorePermissionError",
        "SyncFailedError",
        "UnusableFileError",
        "WrongFileSizeError",
    ),
    "gantrymq.format.trace": ("MessageType", "TraceRecord", "TraceType", "decode_traces"),
    "gantrymq.model.message": ("Message", "StoredMessage"),
    "gantrymq.model.message_queue": ("MessageQueue",),
    "gantrymq.model.status": ("GetMessageStatus", "PutMessageStatus"),
    "gantrymq.namesrv.server": ("NamesrvServer",),
    "gantrymq.namesrv.settings": ("NamesrvConfig",),
    "gantrymq.remoting.bodies.group": ("SubscriptionGroupConfig",),
    "gantrymq.remoting.bodies.topic": ("TopicConfig",),
    "gantrymq.remoting.codes": ("SerializeType",),
    "gantrymq.store.lookup": ("GetMessageResult",),
    "gantrymq.store.message_store": ("MessageStore",),
    "gantrymq.store.put_result": ("PutMessageResult",),
    "gantrymq.store.reader": ("StoreReader",),
    "gantrymq.tools.rebuild": ("rebuild_store",),
    "gantrymq.tools.salvage": ("salvage_store",),
    "gantrymq.tools.verify": ("verify_store",),
}
# Public names that need an extra. They are not in __all__, so that `from gantrymq import *` works without extras.
_NEEDS_ARROW = {
    "gantrymq.tools.export": ("export_store",),
    "gantrymq.tools.export_files": ("ExportFormat",),
    "gantrymq.tools.export_plan": ("ExportSelection",),
}
_NEEDS_SPARK = {
    "gantrymq.spark.pipelines.analysis": ("analyze", "StoreAnalysis"),
    "gantrymq.spark.pipelines.export": ("export_on_spark",),
    "gantrymq.spark.pipelines.rebuild": ("rebuild_on_spark",),
    "gantrymq.spark.pipelines.report": ("write_analysis",),
    "gantrymq.spark.pipelines.salvage": ("salvage_on_spark",),
    "gantrymq.spark.pipelines.verify": ("verify_on_spark",),
    "gantrymq.spark.plan.stream_offsets": ("offsets_behind",),
    "gantrymq.spark.source": ("RocketMQDataSource",),
}
_HOME = {
    name: module for homes in (_PUBLIC, _NEEDS_ARROW, _NEEDS_SPARK) for module, names in homes.items() for name in names
}
_EXTRA_OF = {name: "arrow" for names in _NEEDS_ARROW.values() for name in names}
_EXTRA_OF |= {name: "spark" for names in _NEEDS_SPARK.values() for name in names}

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
    "AsyncSimpleConsumer",
    "AsyncTransactionProducer",
    "BrokerConfig",
    "BrokerServer",
    "ClientConfig",
    "ClientSettings",
    "CompressionType",
    "ConfigError",
    "ConsumeConcurrentlyContext",
    "ConsumeConcurrentlyStatus",
    "ConsumeFromWhere",
    "ConsumeMessageContext",
    "ConsumeMessageHook",
    "ConsumeOrderlyContext",
    "ConsumeOrderlyStatus",
    "ConsumeReturnType",
    "ConsumerSettings",
    "CorruptRecordError",
    "DiskError",
    "DiskFullError",
    "DuplicateFileError",
    "EmbeddedBroker",
    "EndTransactionContext",
    "EndTransactionHook",
    "FilterSyntaxError",
    "FlushDiskType",
    "GantrymqError",
    "GetMessageResult",
    "GetMessageStatus",
    "KernelsError",
    "LitePullConsumer",
    "LitePullConsumerConfig",
    "LitePullConsumerSettings",
    "LiveConfig",
    "LocalTransactionState",
    "MQBrokerError",
    "MQClientError",
    "Message",
    "MessageModel",
    "MessageQueue",
    "MessageStore",
    "MessageStoreConfig",
    "MessageType",
    "MisfiledQueueError",
    "MissingFileError",
    "MissingLogBeginError",
    "MissingLogEndError",
    "MissingLogError",
    "NamesrvConfig",
    "NamesrvServer",
    "NoRoomError",
    "NoRouteError",
    "NotAStoreError",
    "NotInPlaceError",
    "Producer",
    "ProducerConfig",
    "ProducerSettings",
    "PullClient",
    "PullResult",
    "PullStatus",
    "PulledRecords",
    "PushConsumer",
    "PushConsumerConfig",
    "PushConsumerSettings",
    "PutMessageResult",
    "PutMessageStatus",
    "ReceiptHandleError",
    "ReceivedMessage",
    "RemotingCommandError",
    "RemotingConnectError",
    "RemotingError",
    "RemotingTimeoutError",
    "RemotingTooMuchRequestError",
    "RequestTimeoutError",
    "SendMessageContext",
    "SendMessageHook",
    "SendResult",
    "SendStatus",
    "SerializeType",
    "SimpleConsumer",
    "SimpleConsumerConfig",
    "SimpleConsumerSettings",
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
    "TraceRecord",
    "TraceType",
    "TransactionProducer",
    "TransactionSendResult",
    "UnusableFileError",
    "WrongFileSizeError",
    "__version__",
    "create_reply_message",
    "decode_records",
    "decode_traces",
    "rebuild_store",
    "salvage_store",
    "verify_store",
]


def __getattr__(name: str) -> Any:
    """Import a public name on first use. Raises ImportError with the name of the extra that it needs."""
    if name not in _HOME:
        raise AttributeError(f"module 'gantrymq' has no attribute {name!r}")
    from importlib import import_module

    try:
        return getattr(import_module(_HOME[name]), name)
    except ModuleNotFoundError as error:
        extra = _EXTRA_OF.get(name)
        if extra is None or (error.name or "").startswith("gantrymq"):
            raise
        raise ImportError(f"gantrymq.{name} needs {error.name}: pip install 'gantrymq[{extra}]'") from error


def __dir__() -> list[str]:
    """The names of this module, for completion: public names of an extra only where the extra is installed."""
    from importlib.util import find_spec

    installed = {extra for extra, package in (("arrow", "pyarrow"), ("spark", "pyspark")) if find_spec(package)}
    of_extras = {name for name, extra in _EXTRA_OF.items() if extra in installed}
    return sorted({*globals(), *__all__, *of_extras})
