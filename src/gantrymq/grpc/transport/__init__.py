"""gRPC over HTTP/2: messages in the bodies of requests, calls, connections, and the port.

``framing`` has the messages, ``connection`` the calls of a client, ``port`` the listening socket and TLS. Each imports
only those before it, and none knows RocketMQ.

Source: doc/PROTOCOL-HTTP2.md of gRPC.
"""
