"""HTTP/2 as a server speaks it, without sockets, tasks or a clock (RFC 9113, RFC 7541).

``frames`` has the bytes of frames, ``headers`` the header blocks, ``limits`` what a client may cost, and ``connection``
the state of a connection: bytes in, events out, bytes out. Each imports only those before it. The sockets are those of
:mod:`gantrymq.grpc.transport`.

Importing a module of this package needs hpack (``pip install 'gantrymq[grpc]'``).
"""
