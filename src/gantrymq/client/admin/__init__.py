"""Administration of a cluster: topics, groups, messages, brokers, name servers."""
