"""Commands over sockets: channels on asyncio, the server and the client, TLS."""
