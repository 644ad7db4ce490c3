"""Requests over asyncio and over plain sockets, and the heartbeats that register a client."""
