"""The message store: commit log, consume queues, index, recovery. Only ``message_store`` uses all of them."""
