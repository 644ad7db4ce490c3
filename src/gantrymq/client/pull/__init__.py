"""Reading topics without a consumer group."""
