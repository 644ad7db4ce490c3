package org.gantrymq.interop.client;

import java.util.Set;
import org.apache.rocketmq.common.TopicConfig;

/** Topics as an administrator makes, looks at and removes them. */
final class TopicAdminCases {
    private TopicAdminCases() {
    }

    static void add(Cases cases) {
    }

    static void permit(Scene scene, String topic, int perm) throws Exception {
        TopicConfig config = scene.site.admin.examineTopicConfig(scene.site.broker, topic);
        config.setPerm(perm);
        scene.site.admin.createAndUpdateTopicConfig(scene.site.broker, config);
    }

    static void delete(Scene scene, String topic) throws Exception {
        scene.site.admin.deleteTopicInBroker(Set.of(scene.site.broker), topic);
        scene.site.admin.deleteTopicInNameServer(Set.of(scene.site.namesrv), topic);
    }
}
