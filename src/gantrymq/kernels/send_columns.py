"""The rows of a matrix of sends, with one column for each send. ``read_sends`` fills it. Nothing here imports Numba."""

(
    OPAQUE,
    COMMAND_FLAG,
    QUEUE_ID,
    SYS_FLAG,
    BORN_TIMESTAMP,
    MESSAGE_FLAG,
    RECONSUME_TIMES,
    PROPERTIES_AT,  # in the text
    PROPERTIES_LENGTH,
    UNIQUE_AT,  # the value of UNIQ_KEY, in the text
    UNIQUE_LENGTH,
    BODY_AT,  # in the data
    BODY_LENGTH,
    TOPIC_AT,  # in the data
    TOPIC_LENGTH,
    QUEUE_OFFSET,  # set when the sends are stored, like the next one
    PHY_OFFSET,
) = range(17)
N_ROWS = PHY_OFFSET + 1
MAX_NAMES = 32  # properties of one message
