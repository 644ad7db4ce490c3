"""The tables that the broker keeps under config/: topics, groups, offsets."""
