"""The keys of a ``broker.conf`` of RocketMQ 5.5.0 and 5.5.1 without effect here: why, and which are worth a warning.

They are the keys of BrokerConfig, MessageStoreConfig, NettyServerConfig, NettyClientConfig and AuthConfig, and those
that BrokerStartup reads itself. A key with an effect has a field in a settings class, and no row here.
The site's page compatibility/broker-keys.md is made from both.
"""

from collections.abc import Mapping
from typing import NamedTuple

from gantrymq.config.auth_settings import AuthConfig
from gantrymq.config.keys import fields_by_key

THREADS = "there are no thread pools here"
_EACH_CALL_SIGNED = "each call is signed here, and needs its permission"
_MIGRATION = "accounts of plain_acl.yml are not made users at a start here"
SHUTDOWN = "a shutdown here closes connections at once, and sends no GO_AWAY"
_AUTH_CACHES = """
    aclCacheExpiredSecond aclCacheMaxNum aclCacheRefreshSecond statefulAuthenticationCacheExpiredSecond
    statefulAuthenticationCacheMaxNum statefulAuthorizationCacheExpiredSecond statefulAuthorizationCacheMaxNum
    userCacheExpiredSecond userCacheMaxNum userCacheRefreshSecond
"""
# Keys that act in RocketMQ, with its defaults, by the warning if one has another value.
_ACTING = {
    "there is no controller here": """
        allAckInSyncStateSet=false asyncLearner=false brokerElectionPriority=2147483647
        checkSyncStateSetPeriod=5000 compatibleWithOldNameSrv=true controllerAddr=
        controllerHeartBeatTimeoutMills=10000 enableControllerMode=false fetchControllerAddrByDnsLookup=false
        haMaxTimeSlaveNotCatchup=15000 maxChecksumRange=1073741824 storePathBrokerIdentity= storePathEpochFile=
        syncBrokerMetadataPeriod=5000 syncControllerMetadataPeriod=10000 syncFromLastFile=false
    """,
    "an acting master here only serves reads": """
        enableRemoteEscape=false lockInStrictMode=false readUnCommitted=false skipPreOnline=false
        syncMasterFlushOffsetWhenStartup=false
    """,
    "slaves copy here as fast as they can": "haFlowControlEnable=false maxHaTransferByteInSecond=104857600",
    "the slaves of a broker are asked for every 2 s here": "syncBrokerMemberGroupPeriod=1000",
    "there are no DLedger logs here": """
        dLegerGroup= dLegerPeers= dLegerSelfId= enableBatchPush=false enableDLegerCommitLog=false
        preferredLeaderId= recheckReputOffsetFromCq=false storePathDLedgerCommitLog=
    """,
    "there are no RocksDB engines here": """
        bottomMostCompressionTypeForConsumeQueueStore=zstd cleanRocksDBDirtyCQIntervalMin=60
        combineAssignOffsetCQType=default combineCQEnableCheckSelf=false
        combineCQLoadingCQTypes=default;defaultRocksDB combineCQMaxExtraSearchCommitLogFiles=3
        combineCQPreferCQType=default combineCQUseRocksdbForLmq=false configManagerVersion=v1
        enableRocksDBLog=false indexRocksDBEnable=false iteratorWhenUseRocksdbConsumeQueue=true
        maxRocksDBIndexQueryDays=7 memTableFlushIntervalMs=3600000 persistConsumerOffsetIncrementally=false
        popConsumerKVServiceEnable=false popConsumerKVServiceInit=false popConsumerKVServiceLog=false
        popReviveConcurrency=32 popReviveMaxAttemptTimes=16 popReviveMaxReturnSizePerRead=16384
        popReviveSkipIfGroupAbsent=true popRocksdbBlockCacheSize=268435456 popRocksdbWriteBufferSize=33554432
        realTimePersistRocksDBConfig=true rocksdbCompressionType=lz4 rocksdbCQDoubleWriteEnable=false
        rocksdbCQSelectiveDoubleWriteEnable=false rocksdbFlushWalFrequency=1024
        rocksdbMaxSizeAmplificationPercent=25 rocksdbWalFileRollingThreshold=1073741824
        statRocksDBCQIntervalSec=10 storeType=default timerRecallToTimelineEnable=true
        timerRecallToTimeWheelEnable=true timerReputServiceCorePoolSize=6 timerReputServiceMaxPoolSize=6
        timerReputServiceQueueCapacity=10000 timerRocksDBEnable=false timerRocksDBPrecisionMs=1000
        timerRocksDBRollIntervalHours=1 timerRocksDBRollMaxTps=8000.0 timerRocksDBRollRangeHours=2
        timerRocksDBStopScan=false timerRocksDBTimeExpiredMaxTps=200000.0 transactionCheckRocksdbCoreThreads=2
        transactionCheckRocksdbMaxThreads=5 transactionCheckRocksdbQueueCapacity=2000 transRocksDBEnable=false
        transWriteOriginTransHalfEnable=true useSeparateStorePathForRocksdbCQ=false
        useSingleRocksDBForAllConfigs=false
    """,
    "there are no light queues (LMQ) and no lite topics here": """
        enableLiteEventMode=true enableLitePopLog=false enableLmq=false enableLmqQuota=false
        enableLmqStats=false enableMultiDispatch=false liteEventCapacityCacheTtlMs=5000 liteEventCheckInterval=10000
        liteEventFullDispatchDelayTime=10000 liteEventFullDispatchDelayTimeForWildcardGroup=10000
        liteLagCountMetricsEnable=false liteLagLatencyCollectEnable=false liteLagLatencyMetricsEnable=false
        liteLagLatencyTopK=50 liteSubscriptionCheckInterval=120000 liteSubscriptionCheckTimeoutMills=180000
        liteTtlCheckInterval=120000 maxClientEventCount=100 maxLiteSubscriptionCount=100000
        maxLmqConsumeQueueNum=20000 minLiteTTl=900000
    """,
    "there are no compaction topics and no batch consume queues here": """
        compactionCqMappedFileSize=10485760 compactionMappedFileSize=104857600 compactionScheduleInternal=900000
        compactionThreadNum=6 mapperFileSizeBatchConsumeQueue=13800000 maxOffsetMapSize=104857600
        searchBcqByCacheEnable=true
    """,
    "reads of cold data are not limited here": """
        accessMessageInMemoryHotRatio=26 cgColdReadThreshold=3145728 coldCtrStrategyEnable=false
        coldDataFlowControlEnable=false coldDataScanEnable=false globalColdReadThreshold=104857600
        sampleSteps=32 timerColdDataCheckIntervalMs=60000 usePIDColdCtrStrategy=true
    """,
    "a waiting ordered pop is always told here that its queue is free": "enableNotifyAfterPopOrderLockRelease=true",
    "an acknowledgement without a checkpoint delays no other here": (
        "enableSkipLongAwaitingAck=false reviveAckWaitMs=180000"
    ),
    "POP is always ready here": "popConsumerFSServiceInit=true",
    "a waiting pop has been told of every message when the lag is calculated here": (
        "enableNotifyBeforePopCalculateLag=true"
    ),
    "the lag of a group is that of its connected consumers here": "useStaticSubscription=false",
    _MIGRATION: "migrateAuthFromV1Enabled=false",
    "the name servers are those of namesrvAddr": """
        fetchNamesrvAddrByAddressServer=false fetchNameSrvAddrByDnsLookup=false fetchNamesrvAddrInterval=10000
        rmqAddressServerDomain=jmenv.tbsite.net rmqAddressServerSubGroup=nsaddr
        updateNameServerAddrPeriod=120000
    """,
    "an export of metrics is always split here, as metricsExportBatchMaxDataPoints says": (
        "metricsExportBatchSplitEnabled=true"
    ),
    "tls.enable sets TLS for the broker's own connections": "useTLS=false",
    "the broker's own connections use no proxy": "socksProxyConfig={}",
    "store plug-ins are Java classes": "messageStorePlugIn=",
    "the index is in files here, unless messageIndexEnable is false": (
        "indexFileReadEnable=true indexFileWriteEnable=true"
    ),
    "maxTransferCountOnMessageInMemory and maxTransferBytesOnMessageInMemory limit every pull here": (
        "maxTransferBytesOnMessageInDisk=65536 maxTransferCountOnMessageInDisk=8"
    ),
    "a group that falls behind is not stopped here": (
        "consumerFallbehindThreshold=17179869184 disableConsumeIfConsumerReadSlowly=false"
    ),
    "answers to pulls are not throttled by bytes a second here": "enableNetWorkFlowControl=false",
    "filters are evaluated on the records here": "bitMapLengthConsumeQueueExt=64 enableCalcFilterBitMap=false",
    "offsets of broadcasting consumers behind a proxy are not kept here": (
        "broadcastOffsetExpireMaxSecond=300 broadcastOffsetExpireSecond=120"
    ),
    "producers are always registered here": "enableRegisterProducer=true",
    "members are told of every change of their group at once here": "realTimeNotifyConsumerChange=true",
    "all topics are registered in one request here": (
        "enableSingleTopicRegister=false enableSplitRegistration=false splitRegistrationSize=800"
    ),
    "the broker registers as soon as it serves": "disappearTimeAfterStart=-1",
    SHUTDOWN: ("enableShutdownGracefully=false shutdownWaitTimeSeconds=30"),
    "the disk's use counts as a whole here": ("logicalDiskSpaceCleanForciblyThreshold=0.8 replicasPerDiskPartition=1"),
    "a put starts no flush or commit here; flushIntervalCommitLog and commitIntervalCommitLog do": (
        "wakeCommitWhenPutMessage=true wakeFlushWhenPutMessage=false"
    ),
    "messages with a delay level wait in SCHEDULE_TOPIC_XXXX here": "timerInterceptDelayLevel=false",
    "a timer message that is refused for good is skipped here, and every other error is retried": (
        "timerSkipUnknownError=false"
    ),
    "the wheel is one mapped file here": "timerWheelSnapshotFlush=false timerWheelSnapshotIntervalMs=10000",
}
# Tuning of Java's own machinery, and keys that RocketMQ does not act on either.
_HARMLESS = {
    "what false says is what happens here": "enableBroadcastOffsetStore enableCompaction timerEnableCheckMetrics",
    "what true says is what happens here": "timerEnableRetryUntilSuccess",
    "all users and policies are in memory here, and a change is in force at once": _AUTH_CACHES,
    THREADS: """
        ackMessageThreadPoolNums ackThreadPoolQueueCapacity adminBrokerThreadPoolNums
        adminBrokerThreadPoolQueueCapacity asyncSendEnable batchDispatchRequestThreadPoolNums
        clientManagerThreadPoolQueueCapacity clientManageThreadPoolNums consumerManagerThreadPoolQueueCapacity
        consumerManageThreadPoolNums enableBuildConsumeQueueConcurrently enableFastChannelEventProcess
        enableScheduleAsyncDeliver endTransactionPoolQueueCapacity endTransactionThreadPoolNums
        heartbeatThreadPoolNums heartbeatThreadPoolQueueCapacity litePullMessageThreadPoolNums
        litePullThreadPoolQueueCapacity loadBalanceProcessorThreadPoolNums loadBalanceThreadPoolQueueCapacity
        maxAsyncPutMessageRequests processReplyMessageThreadPoolNums pullMessageThreadPoolNums
        putMessageFutureThreadPoolNums putThreadPoolQueueCapacity queryMessageThreadPoolNums
        queryThreadPoolQueueCapacity recoverConcurrently recoverThreadPoolNums replyThreadPoolQueueCapacity
        scheduleAsyncDeliverMaxPendingLimit scheduleAsyncDeliverMaxResendNum2Blocked sendMessageThreadPoolNums
        timerGetMessageThreadNum timerPutMessageThreadNum waitTimeMillsInAckQueue
        waitTimeMillsInAdminBrokerQueue waitTimeMillsInHeartbeatQueue waitTimeMillsInLitePullQueue
        waitTimeMillsInPullQueue waitTimeMillsInTransactionQueue
    """,
    "it tunes Netty": """
        channelNotActiveInterval clientAsyncSemaphoreValue clientCallbackExecutorThreads
        clientChannelMaxIdleTimeSeconds clientCloseSocketIfTimeout clientOnewaySemaphoreValue
        clientPooledByteBufAllocatorEnable clientSocketRcvBufSize clientSocketSndBufSize clientWorkerThreads
        connectTimeoutMillis disableCallbackExecutor disableNettyWorkerGroup enableReconnectForGoAway
        scanAvailableNameSrv serverAsyncSemaphoreValue serverCallbackExecutorThreads
        serverNettyWorkerGroupEnable serverOnewaySemaphoreValue serverPooledByteBufAllocatorEnable
        serverSelectorThreads serverSocketBacklog serverSocketRcvBufSize serverSocketSndBufSize
        serverWorkerThreads transferMsgByHeap useEpollNativeSelector writeBufferHighWaterMark
        writeBufferLowWaterMark
    """,
    "it tunes locks, mappings and loops of Java's store": """
        correctLogicMinOffsetForceInterval correctLogicMinOffsetSleepInterval correctMinOffsetMadviseEnable
        dataReadAheadEnable debugLockEnable delayOffsetUpdateVersionStep deleteConsumeQueueFilesInterval
        enableAcceleratedRecovery enableRunningFlagsInFlush flushLeastPagesWhenWarmMapedFile
        maxCheckMessageReuseBufferSize putConsumeQueueDataByFileChannel
        sharedByteBufferNum spinLockCollisionRetreatOptimalDegree timerMetricSmallThreshold topicQueueLockNum
        transactionMetricFlushInterval travelCqFileNumWhenGetMessage useABSLock useReentrantLockWhenPutMessage
        writeWithoutMmap
    """,
    "it tunes the loops of Java's POP": """
        appendAckAsync appendCkAsync popLongPollingForceNotifyInterval popOrderLockTimerTickMs
        popOrderLockTimerTicksPerWheel popPollingMapExpireTimeSeconds reviveMaxSlow reviveScanTime
    """,
    "it tunes Java's exporter of metrics": "metricsExportBatchMaxConcurrent metricsExportOtelMemoryMode",
    "the topics or groups of a list are deleted one after another here, without a pause": (
        "batchDeleteSubscriptionGroupMaxRate batchDeleteTopicMaxRate"
    ),
    "it tunes the broker's own requests": (
        "forwardTimeout loadBalancePollNameServerInterval sendHeartbeatTimeoutMillis"
    ),
    "it is for Java's log files and the statistics in them": """
        accountStatsEnable accountStatsPrintZeroValues autoDeleteUnusedStats commercialBaseCount
        commercialSizePerMsg diskFallRecorded enableDetailStat enableLogConsumeQueueRepeatedlyBuildWhenRecover
        enablePopLog enableScheduleMessageStats isolateLogEnable maxStatsIdleTimeInMinutes printChannelGroups
        printChannelGroupsMinNum timerProgressLogIntervalMs
    """,
    "it is a place of Java's installation": "brokerConfigPath rocketmqHome",
    "Java's start overwrites what a file says": "authConfigPath clusterName configName inBrokerContainer",
    "RocketMQ has the key and does not read it": """
        cleanOfflineBrokerInterval cleanSwapedMapInterval commitLogForceSwapMapInterval commitLogSwapMapInterval
        commitLogSwapMapReserveFileNum dispatchCqCacheNum dispatchCqThreads dispatchFromSenderThread
        enableAsyncReput enableCleanExpiredOffset flushConsumerOffsetHistoryInterval highSpeedMode
        logicQueueForceSwapMapInterval logicQueueSwapMapInterval logicQueueSwapMapReserveFileNum
        mappedFileSwapEnable maxBatchDeleteFilesNum maxReconnectIntervalTimeSeconds maxRecoveryCommitlogFiles
        maxSlaveResendLength maxTopicLength pullBatchMaxMessageCount putMessageTimeout putMsgIndexHightWater
    """,
    "RocketMQ has the field and no setter, so no file sets it": """
        isBrokerContainer isInBrokerContainer isScanAvailableNameSrv timerCheckMetricsWhen timerEnableDisruptor
        timerWarmEnable
    """,
}
# Keys that name the place, the addresses or the kind of a broker and its store. They are read only at the start, even
# if they have no effect here: a change while the broker runs would make it another broker at its next start.
_START_KEYS = frozenset(
    """
    combineCQLoadingCQTypes compactionCqMappedFileSize compactionMappedFileSize controllerAddr
    dLegerGroup dLegerPeers dLegerSelfId enableCompaction enableControllerMode enableDLegerCommitLog enableLmq
    enableMultiDispatch
    fetchControllerAddrByDnsLookup fetchNameSrvAddrByDnsLookup fetchNamesrvAddrByAddressServer
    indexRocksDBEnable mapperFileSizeBatchConsumeQueue messageStorePlugIn preferredLeaderId
    rocksdbCQDoubleWriteEnable rocksdbCQSelectiveDoubleWriteEnable serverSocketBacklog serverSocketRcvBufSize
    serverSocketSndBufSize socksProxyConfig storeType timerRocksDBEnable transRocksDBEnable
    useSeparateStorePathForRocksdbCQ useSingleRocksDBForAllConfigs useTLS writeWithoutMmap
    """.split()
)
_START_PREFIXES = ("storePath", "tls.", "authentication", "authorization")


# The keys of AuthConfig, which RocketMQ reads from an rmq-proxy.json, too.
AUTH_KEYS = frozenset(fields_by_key(AuthConfig)) | frozenset(_AUTH_CACHES.split()) | {"migrateAuthFromV1Enabled"}


class KeyWithoutEffect(NamedTuple):
    """``default`` is RocketMQ's default of a key that acts there. None: a harmless key, which needs no warning."""

    reason: str
    default: str | None


def rows_of(acting: Mapping[str, str], harmless: Mapping[str, str]) -> dict[str, KeyWithoutEffect]:
    """A row for each key of two tables by reason: ``name=default`` of keys that act in RocketMQ, names of others."""
    rows = {}
    for reason, entries in acting.items():
        for name, _, default in (entry.partition("=") for entry in entries.split()):
            rows[name] = KeyWithoutEffect(reason, default)
    for reason, names in harmless.items():
        rows |= dict.fromkeys(names.split(), KeyWithoutEffect(reason, None))
    return rows


WITHOUT_EFFECT: Mapping[str, KeyWithoutEffect] = rows_of(_ACTING, _HARMLESS)
# Those without effect at a proxy.
AUTH_KEYS_OF_PROXY: Mapping[str, KeyWithoutEffect] = {
    "authenticationWhitelist": KeyWithoutEffect(_EACH_CALL_SIGNED, ""),
    "authorizationWhitelist": KeyWithoutEffect(_EACH_CALL_SIGNED, ""),
    "initAuthenticationUser": KeyWithoutEffect("the users are those of the brokers", ""),
} | {name: WITHOUT_EFFECT[name] for name in AUTH_KEYS & WITHOUT_EFFECT.keys() - {"aclCacheMaxNum", "userCacheMaxNum"}}
# The keys of a name server that act in RocketMQ.
OF_NAMESRV: Mapping[str, KeyWithoutEffect] = rows_of(
    {
        "routes of another environment are not looked up here": "productEnvName=center clusterTest=false",
        "there is no controller here": "enableControllerInNamesrv=false",
        SHUTDOWN: "enableShutdownGracefully=false shutdownWaitTimeSeconds=30",
    },
    {},
)


def is_acting(row: KeyWithoutEffect, text: str) -> bool:
    """Whether a key acts in RocketMQ with the value ``text``, which is not RocketMQ's default."""
    return row.default is not None and text.strip().lower() != row.default.lower()


def is_read_at_start(name: str) -> bool:
    """Whether a key without a field in a settings class is read only at the start."""
    return name in _START_KEYS or name.startswith(_START_PREFIXES)
