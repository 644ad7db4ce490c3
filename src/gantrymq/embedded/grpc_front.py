"""The gRPC protocol of RocketMQ 5 in front of a broker of this process.

Nothing here loads hpack or protobuf before a front is made.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from gantrymq.broker.server import BrokerServer
from gantrymq.clock import Clock
from gantrymq.errors import ConfigError
from gantrymq.remoting.bodies.route import MASTER_ID, BrokerData
from gantrymq.remoting.transport.tls import TlsServer

if TYPE_CHECKING:
    from gantrymq.grpc.server import GrpcServer

OFF = -1  # the value of grpcServerPort without gRPC


def load_grpc() -> None:
    """Load hpack and protobuf. Raises ModuleNotFoundError without the extra ``grpc``."""
    import google.protobuf  # noqa: F401
    import hpack  # noqa: F401


def require_grpc() -> None:
    """Raise ConfigError if hpack or protobuf is not installed."""
    try:
        load_grpc()
    except ModuleNotFoundError as error:
        allowed = f"-1, unless {error.name} is installed: pip install 'gantrymq[grpc]'"
        raise ConfigError("grpcServerPort", "a port", allowed) from error


def grpc_front(broker: BrokerServer, clock: Clock, tls: TlsServer | None = None) -> GrpcServer:
    """The gRPC server of a broker that has started. Raises ConfigError without the extra ``grpc``."""
    require_grpc()
    from gantrymq.grpc.brokers.local import LocalBrokers
    from gantrymq.grpc.metrics import LOCAL_MODE, GrpcMetrics, proxy_name
    from gantrymq.grpc.protocol.signatures import SignatureGuard
    from gantrymq.grpc.server import GrpcServer

    config, access = broker.config, broker.access
    metrics = None
    if broker.metrics.is_on:
        metrics = GrpcMetrics(config.broker.broker_cluster_name, proxy_name(), LOCAL_MODE)
        broker.metrics.add(metrics.families)
    brokers = LocalBrokers(
        broker.dispatcher,
        BrokerData(
            cluster=config.broker.broker_cluster_name,
            broker_name=config.broker.broker_name,
            broker_addrs={MASTER_ID: broker.address},
        ),
        find_runs=broker.dispatcher.find_runs,
        find_topic=broker.tables.topics.get,
        find_group=broker.tables.groups.table.get,
        max_body_bytes=lambda: config.store.max_message_size_bytes,
        topic_refusal=access.topic_refusal if access is not None else lambda ip, access_key, topic: None,
        accesses_refusal=access.accesses_refusal if access is not None else lambda ip, access_key, accesses: None,
    )
    return GrpcServer(
        config.grpc,
        brokers,
        clock,
        guard=SignatureGuard(access),
        advertised_host=config.broker.broker_ip1,
        tls=tls,
        metrics=metrics,
    )
