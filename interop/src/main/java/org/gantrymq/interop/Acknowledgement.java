package org.gantrymq.interop;

import java.util.ArrayList;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import org.apache.rocketmq.store.AppendMessageResult;
import org.apache.rocketmq.store.PutMessageResult;

/** RocketMQ's answer to a put, one line for each message. */
final class Acknowledgement {
    private Acknowledgement() {
    }

    static List<Map<String, Object>> lines(Put put, PutMessageResult result) {
        AppendMessageResult appended = result.getAppendMessageResult();
        String[] ids = appended.getMsgId().split(",");
        List<Map<String, Object>> lines = new ArrayList<>();
        for (int i = 0; i < ids.length; i++) {
            Map<String, Object> line = new LinkedHashMap<>();
            line.put("topic", put.message().getTopic());
            line.put("queueId", put.message().getQueueId());
            line.put("queueOffset", appended.getLogicsOffset() + i);
            line.put("phyOffset", phyOffset(ids[i]));
            line.put("msgId", ids[i]);
            line.put("sysFlag", put.message().getSysFlag());
            line.put("bodySha256", Sha256.of(put.bodies().get(i)));
            lines.add(line);
        }
        return lines;
    }

    /** The physical offset, which is the last 16 hexadecimal digits of a message id. */
    private static long phyOffset(String msgId) {
        return Long.parseUnsignedLong(msgId.substring(msgId.length() - 16), 16);
    }
}
