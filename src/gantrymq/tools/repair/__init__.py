"""What rebuild and salvage decide and write: records and queues in their right place, a clean log."""
