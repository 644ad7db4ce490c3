package org.gantrymq.interop.client;

import org.apache.rocketmq.common.message.Message;
import org.apache.rocketmq.common.message.MessageExt;

/** Messages with a delay level. */
final class DelayCases {
    private DelayCases() {
    }

    static void add(Cases cases) {
        cases.add("delay-level", DelayCases::level);
        cases.add("delay-levels-in-order", DelayCases::inOrder);
        cases.add("delay-beyond-the-last-level", DelayCases::beyond);
    }

    private static Message delayed(String topic, String body, int level) {
        Message message = new Message(topic, "red", "key", SendCases.bytes(body));
        message.setDelayTimeLevel(level);
        return message;
    }

    private static void level(Scene scene) throws Exception {
        String topic = scene.topic("two", 2);
        long start = System.currentTimeMillis();
        scene.fact("result", SendCases.text(scene, scene.site.producer.send(delayed(topic, "a", 1), scene.queue(topic, 1)))
            .get("status"));
        scene.fact("not there at once", scene.site.admin.maxOffset(scene.queue(topic, 1)) == 0);
        MessageExt read = scene.read(scene.queue(topic, 1), 1).get(0);
        scene.fact("delayed", System.currentTimeMillis() - start >= 900);
        scene.fact("read", SendCases.text(scene, read));
    }

    private static void inOrder(Scene scene) throws Exception {
        String topic = scene.topic("one", 1);
        scene.site.producer.send(delayed(topic, "second", 2));
        scene.site.producer.send(delayed(topic, "first", 1));
        scene.fact("read", scene.read(scene.queue(topic, 0), 2).stream().map(Inbox::body).toList());
    }

    private static void beyond(Scene scene) throws Exception {
        String topic = scene.topic("one", 1);
        scene.site.producer.send(delayed(topic, "a", 1000));
        scene.fact("read", SendCases.text(scene, scene.read(scene.queue(topic, 0), 1).get(0)));
    }
}
