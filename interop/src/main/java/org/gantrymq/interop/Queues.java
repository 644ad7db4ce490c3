package org.gantrymq.interop;

import java.util.ArrayList;
import java.util.List;
import java.util.Random;

/** The topics of a workload: {@code --topics name:queues,name:queues}. */
final class Queues {
    static final String DEFAULT = "orders:4,Payments_2024:2,%RETRY%group-one:1";

    record Queue(String topic, int id) {
    }

    private final List<Queue> all = new ArrayList<>();

    Queues(String text, boolean longTopics) {
        for (String topic : text.split(",")) {
            int colon = topic.lastIndexOf(':');
            add(colon < 0 ? topic : topic.substring(0, colon), colon < 0 ? 1 : Integer.parseInt(topic.substring(colon + 1)));
        }
        if (longTopics) {
            add("x".repeat(127), 1); // the longest topic of record version 1
            add("y".repeat(128), 1); // the shortest topic of version 2
            add("%RETRY%long-" + "abcdefghij".repeat(16), 2);
        }
    }

    private void add(String topic, int queues) {
        for (int id = 0; id < queues; id++) {
            all.add(new Queue(topic, id));
        }
    }

    Queue any(Random random) {
        return all.get(random.nextInt(all.size()));
    }

    Queue at(long number) {
        return all.get((int) (number % all.size()));
    }
}
