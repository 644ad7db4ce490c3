"""Bodies about topics: their configuration, lists of them, and a broker's registration."""

from msgspec import field

from gantrymq.remoting.bodies.route import TopicQueueMappingDetail, TopicQueueMappingInfo
from gantrymq.remoting.body import Body
from gantrymq.remoting.header import Int, Long

FILTER_TYPES = ("SINGLE_TAG", "MULTI_TAG")


class DataVersion(Body, kw_only=True):
    """The version of a table. With equal ``state_version`` the later ``timestamp`` and ``counter`` win."""

    state_version: Long = 0
    timestamp: Long = 0
    counter: Long = 0


class TopicConfig(Body, kw_only=True):
    """A topic's configuration. ``perm`` is a sum: 4 for reading, 2 for writing."""

    topic_name: str | None = None
    read_queue_nums: Int = 16
    write_queue_nums: Int = 16
    perm: Int = 6
    topic_filter_type: str = "SINGLE_TAG"
    topic_sys_flag: Int = 0
    order: bool = False
    attributes: dict[str, str] = field(default_factory=dict)


class TopicConfigAndQueueMapping(TopicConfig, kw_only=True):
    """TopicConfig with the mapping of a static topic."""

    mapping_detail: TopicQueueMappingDetail | None = None


class TopicConfigSerializeWrapper(Body, kw_only=True):
    """All topics of a broker (GET_ALL_TOPIC_CONFIG, topics.json)."""

    topic_config_table: dict[str, TopicConfig] = field(default_factory=dict)
    data_version: DataVersion = field(default_factory=DataVersion)


class TopicConfigAndMappingSerializeWrapper(TopicConfigSerializeWrapper, kw_only=True):
    """TopicConfigSerializeWrapper with the mappings of static topics."""

    topic_queue_mapping_info_map: dict[str, TopicQueueMappingInfo] = field(default_factory=dict)
    topic_queue_mapping_detail_map: dict[str, TopicQueueMappingDetail] = field(default_factory=dict)
    mapping_data_version: DataVersion = field(default_factory=DataVersion)


class DelayOffsetSerializeWrapper(Body, kw_only=True):
    """How far each delay level is delivered (GET_ALL_DELAY_OFFSET, delayOffset.json)."""

    offset_table: dict[Int, Long] = field(default_factory=dict)
    data_version: DataVersion | None = None


class RegisterBrokerBody(Body, kw_only=True):
    """The body of REGISTER_BROKER in JSON. ``compressed`` registrations have another format (registration.py)."""

    topic_config_serialize_wrapper: TopicConfigAndMappingSerializeWrapper = field(
        default_factory=TopicConfigAndMappingSerializeWrapper
    )
    filter_server_list: list[str] = field(default_factory=list)


class KVTable(Body, kw_only=True):
    """Values by key."""

    table: dict[str, str] = field(default_factory=dict)


class TopicList(Body, kw_only=True):
    """Names of topics."""

    topic_list: list[str] = field(default_factory=list)
    broker_addr: str | None = None


class CreateTopicListRequestBody(Body, kw_only=True):
    """The topics of UPDATE_AND_CREATE_TOPIC_LIST."""

    topic_config_list: list[TopicConfig] = field(default_factory=list)


class DeleteTopicListRequestBody(Body, kw_only=True):
    """The topics of DELETE_TOPIC_IN_BROKER_LIST."""

    topic_list: list[str | None] = field(default_factory=list)


class TopicOffset(Body, kw_only=True):
    """The bounds of a queue, and the store time of its last message."""

    min_offset: Long = 0
    max_offset: Long = 0
    last_update_timestamp: Long = 0


class TopicStatsTable(Body, kw_only=True):
    """The answer to GET_TOPIC_STATS_INFO. ``offset_table`` is by queue, see :mod:`gantrymq.remoting.body`."""

    has_queue_keys = True

    topic_put_tps: float = 0.0
    offset_table: dict[str, TopicOffset] = field(default_factory=dict)
