package org.gantrymq.interop;

import com.alibaba.fastjson2.JSON;
import java.nio.charset.StandardCharsets;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.LinkedHashMap;
import java.util.Map;
import org.apache.rocketmq.client.AccessChannel;
import org.apache.rocketmq.client.trace.TraceBean;
import org.apache.rocketmq.client.trace.TraceContext;
import org.apache.rocketmq.client.trace.TraceDataEncoder;

/**
 * What RocketMQ reads out of message traces: for each line of FILE, {@code {data}} with the body of a trace message, one line for
 * each of its records with all fields, and the same record as RocketMQ writes it ({@code again}).
 */
final class TraceData implements Command {
    @Override
    public String usage() {
        return "FILE";
    }

    @Override
    public int run(Options options, JsonLines out) throws Exception {
        for (String text : Files.readAllLines(Path.of(options.positional("FILE")), StandardCharsets.UTF_8)) {
            for (TraceContext context : TraceDataEncoder.decoderFromTraceDataString(JSON.parseObject(text).getString("data"))) {
                out.line(line(context));
            }
        }
        return 0;
    }

    private static Map<String, Object> line(TraceContext context) {
        TraceBean bean = context.getTraceBeans().get(0);
        Map<String, Object> line = new LinkedHashMap<>();
        line.put("type", context.getTraceType().name());
        line.put("timestamp", context.getTimeStamp());
        line.put("region", context.getRegionId());
        line.put("group", context.getGroupName());
        line.put("cost", context.getCostTime());
        line.put("success", context.isSuccess());
        line.put("requestId", context.getRequestId());
        line.put("contextCode", context.getContextCode());
        line.put("topic", bean.getTopic());
        line.put("msgId", bean.getMsgId());
        line.put("offsetMsgId", bean.getOffsetMsgId());
        line.put("tags", bean.getTags());
        line.put("keys", bean.getKeys());
        line.put("storeHost", bean.getStoreHost());
        line.put("bodyLength", bean.getBodyLength());
        line.put("msgType", bean.getMsgType() == null ? null : bean.getMsgType().name());
        line.put("retryTimes", bean.getRetryTimes());
        line.put("transactionId", bean.getTransactionId());
        line.put("transactionState", bean.getTransactionState() == null ? null : bean.getTransactionState().name());
        line.put("fromCheck", bean.isFromTransactionCheck());
        context.setAccessChannel(AccessChannel.LOCAL);
        line.put("again", TraceDataEncoder.encoderFromContextBean(context).getTransData());
        return line;
    }
}
