"""The metrics of a broker, under RocketMQ's names: which there are, what is counted, and what is read at a scrape.

The instruments and exporters are those of all servers, in :mod:`gantrymq.metrics`.
"""
