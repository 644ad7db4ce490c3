"""The path of messages from the wire into the store."""
