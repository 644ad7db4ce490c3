"""Where commands meet sockets: channels over asyncio, the server and the client, TLS."""
