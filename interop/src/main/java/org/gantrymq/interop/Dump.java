package org.gantrymq.interop;

import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import org.apache.rocketmq.common.message.MessageExt;
import org.apache.rocketmq.store.queue.ConsumeQueueInterface;
import org.apache.rocketmq.store.queue.CqUnit;
import org.apache.rocketmq.store.queue.ReferredIterator;

/** Prints what RocketMQ recovers and reads: the store, its queues, and every message to which a queue entry points. */
final class Dump implements Command {
    @Override
    public String usage() {
        return Store.USAGE + " [--halt]";
    }

    @Override
    public int run(Options options, JsonLines out) throws Exception {
        Store store = Store.open(options);
        answer(store, out);
        out.flush();
        store.close(options);
        return 0;
    }

    static void answer(Store store, JsonLines out) {
        Map<String, Object> line = new LinkedHashMap<>();
        line.put("kind", "store");
        line.put("minPhyOffset", store.real().getMinPhyOffset());
        line.put("maxPhyOffset", store.real().getMaxPhyOffset());
        line.put("loaded", true);
        out.line(line);
        List<ConsumeQueueInterface> queues = store.queues();
        queues.forEach(queue -> out.line(queueLine(queue)));
        queues.forEach(queue -> messages(store, queue, out));
    }

    private static Map<String, Object> queueLine(ConsumeQueueInterface queue) {
        Map<String, Object> line = new LinkedHashMap<>();
        line.put("kind", "queue");
        line.put("topic", queue.getTopic());
        line.put("queueId", queue.getQueueId());
        line.put("minOffset", queue.getMinOffsetInQueue());
        line.put("maxOffset", queue.getMaxOffsetInQueue());
        return line;
    }

    private static void messages(Store store, ConsumeQueueInterface queue, JsonLines out) {
        long max = queue.getMaxOffsetInQueue();
        long next = queue.getMinOffsetInQueue();
        while (next < max) {
            ReferredIterator<CqUnit> units = queue.iterateFrom(next); // iterates to the end of one file
            if (units == null) {
                throw new IllegalStateException("no consume queue file holds " + queue.getTopic() + "/"
                    + queue.getQueueId() + " at " + next);
            }
            try {
                while (units.hasNext() && next < max) {
                    CqUnit unit = units.next();
                    out.line(messageLine(store, queue, unit));
                    next = unit.getQueueOffset() + 1;
                }
            } finally {
                units.release();
            }
        }
    }

    private static Map<String, Object> messageLine(Store store, ConsumeQueueInterface queue, CqUnit unit) {
        MessageExt message = store.real().lookMessageByOffset(unit.getPos(), unit.getSize());
        if (message == null) {
            Map<String, Object> line = new LinkedHashMap<>();
            line.put("kind", "unreadable");
            line.put("topic", queue.getTopic());
            line.put("queueId", queue.getQueueId());
            line.put("queueOffset", unit.getQueueOffset());
            line.put("phyOffset", unit.getPos());
            return line;
        }
        MessageLine line = new MessageLine(
            queue.getTopic(), queue.getQueueId(), unit.getQueueOffset(), unit.getPos(), unit.getSize());
        line.with("tagsCode", unit.getTagsCode());
        if (!queue.getTopic().equals(message.getTopic()) || queue.getQueueId() != message.getQueueId()
            || unit.getQueueOffset() != message.getQueueOffset()) {
            line.with("recordSays", List.of(message.getTopic(), message.getQueueId(), message.getQueueOffset()));
        }
        return line.of(message);
    }
}
