"""Messages on their way from the wire into the store."""
