"""Bodies about routes: topics, brokers, clusters."""

from msgspec import field

from gantrymq.remoting.body import Body
from gantrymq.remoting.header import Int, Long

MASTER_ID = 0
PERM_WRITE = 2
PERM_READ = 4


class QueueData(Body, kw_only=True):
    """A broker's number of queues for a topic, and whether they may be read and written."""

    broker_name: str
    read_queue_nums: Int = 0
    write_queue_nums: Int = 0
    perm: Int = 0
    topic_sys_flag: Int = 0

    @property
    def is_readable(self) -> bool:
        """Whether consumers may pull from the queues."""
        return self.perm & PERM_READ != 0

    @property
    def is_writable(self) -> bool:
        """Whether producers may send to the queues."""
        return self.perm & PERM_WRITE != 0


class BrokerData(Body, kw_only=True):
    """A broker's addresses, by broker id: 0 is the master."""

    cluster: str = ""
    broker_name: str
    broker_addrs: dict[Long, str] = field(default_factory=dict)
    zone_name: str | None = None
    enable_acting_master: bool = False

    @property
    def address(self) -> str | None:
        """The master's address, else that of the slave with the lowest id. RocketMQ takes any slave."""
        return self.broker_addrs[min(self.broker_addrs)] if self.broker_addrs else None


class LogicQueueMappingItem(Body, kw_only=True):
    """A range of a logical queue, and the physical queue that holds it (static topics)."""

    gen: Int = 0
    queue_id: Int = 0
    bname: str | None = None
    logic_offset: Long = 0
    start_offset: Long = 0
    end_offset: Long = -1
    time_of_start: Long = -1
    time_of_end: Long = -1


class TopicQueueMappingInfo(Body, kw_only=True):
    """The logical queues of a static topic that a broker holds."""

    topic: str | None = None
    scope: str = "__global__"
    total_queues: Int = 0
    bname: str | None = None
    epoch: Long = 0
    dirty: bool = False
    curr_id_map: dict[Int, Int] = field(default_factory=dict)


class TopicQueueMappingDetail(TopicQueueMappingInfo, kw_only=True):
    """TopicQueueMappingInfo with the ranges of each queue."""

    hosted_queues: dict[Int, list[LogicQueueMappingItem]] = field(default_factory=dict)


class TopicRouteData(Body, kw_only=True):
    """The answer to GET_ROUTEINFO_BY_TOPIC. ``order_topic_conf`` is ``broker:queues;broker:queues``."""

    order_topic_conf: str | None = None
    queue_datas: list[QueueData] = field(default_factory=list)
    broker_datas: list[BrokerData] = field(default_factory=list)
    filter_server_table: dict[str, list[str]] = field(default_factory=dict)
    topic_queue_mapping_by_broker: dict[str, TopicQueueMappingInfo] | None = None


class ClusterInfo(Body, kw_only=True):
    """The answer to GET_BROKER_CLUSTER_INFO: brokers by name, and their names by cluster."""

    broker_addr_table: dict[str, BrokerData] = field(default_factory=dict)
    cluster_addr_table: dict[str, list[str]] = field(default_factory=dict)


class BrokerMemberGroup(Body, kw_only=True):
    """A broker's master and slaves."""

    cluster: str | None = None
    broker_name: str | None = None
    broker_addrs: dict[Long, str] = field(default_factory=dict)


class GetBrokerMemberGroupResponseBody(Body, kw_only=True):
    """The answer to GET_BROKER_MEMBER_GROUP."""

    broker_member_group: BrokerMemberGroup | None = None
