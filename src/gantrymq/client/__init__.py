"""A RocketMQ client in Python: pulling and sending, over asyncio or plain sockets, against RocketMQ 4.x and 5.x."""
