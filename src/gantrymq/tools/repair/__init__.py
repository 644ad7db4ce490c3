"""What rebuild and salvage repair and write: records and queue files in the right place, and a clean log."""
