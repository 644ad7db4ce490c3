"""RocketMQ's gRPC protocol, which the clients of RocketMQ 5 speak: the whole of the proxy in front of a broker.

``protocol`` has what a call carries, ``brokers`` what it needs of brokers, ``clients`` what is known of the callers,
``calls`` the answers; ``transport`` makes calls of connections. :mod:`gantrymq.grpc.server` puts them together. Each
imports only those before it, ``transport`` none of them.

Importing a module of this package needs hpack and protobuf (``pip install 'gantrymq[grpc]'``).
"""
