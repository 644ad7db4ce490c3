"""The SQL92 filters of groups, as config/consumerFilter.json has them."""

from msgspec import field

from gantrymq.remoting.body import Body
from gantrymq.remoting.header import Int, Long


class BloomFilterData(Body, kw_only=True):
    """The bits of a group and topic in a Bloom filter of ``bit_num`` bits."""

    bit_num: Int = 0
    bit_pos: list[Int] = field(default_factory=list)


class ConsumerFilterData(Body, kw_only=True):
    """The filter of a group for a topic. Times are in ms; it is dead if it died after it was born."""

    consumer_group: str = ""
    topic: str = ""
    expression: str = ""
    expression_type: str = "SQL92"
    born_time: Long = 0
    dead_time: Long = 0
    bloom_filter_data: BloomFilterData | None = None
    client_version: Long = 0
    dead: bool = False


class FilterDataMapByTopic(Body, kw_only=True):
    """The filters for a topic by group."""

    group_filter_data: dict[str, ConsumerFilterData] = field(default_factory=dict)
    topic: str = ""


class ConsumerFilterTable(Body, kw_only=True):
    """The content of consumerFilter.json."""

    filter_data_by_topic: dict[str, FilterDataMapByTopic] = field(default_factory=dict)
