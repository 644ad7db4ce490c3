"""RocketMQ's gRPC protocol, which the clients of RocketMQ 5 speak: the whole of the proxy in front of a broker.

Importing a module of this package needs grpcio and protobuf (``pip install 'gantrymq[grpc]'``).
"""
