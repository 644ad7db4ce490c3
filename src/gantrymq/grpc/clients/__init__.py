"""The clients of a proxy: their settings, streams and memberships, and the renewal of their messages."""
