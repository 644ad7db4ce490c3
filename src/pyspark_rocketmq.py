"""Spark registers ``DefaultSource`` of every top-level module named ``pyspark_*`` by itself: the format "rocketmq"."""

from gantrymq.spark.source import RocketMQDataSource as DefaultSource

__all__ = ["DefaultSource"]
