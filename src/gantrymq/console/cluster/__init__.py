"""The pages for a live cluster, on the administrative client: for Java's brokers as for ours."""
