"""What the broker keeps under config/: topics, groups, offsets."""
