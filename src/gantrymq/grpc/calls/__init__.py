"""The calls of MessagingService, a file for each kind."""
