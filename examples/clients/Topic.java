import java.nio.charset.StandardCharsets;
import java.time.Duration;
import java.util.HashMap;
import java.util.HashSet;
import java.util.List;
import java.util.Map;
import java.util.Properties;
import java.util.Set;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.common.header.Header;
import org.apache.kafka.common.serialization.StringDeserializer;

/**
 * Prints each grant of the topic once: java -cp kafka-clients.jar:slf4j-api.jar Topic.java BROKERS TOPIC GROUP DEPLOYMENT N.
 * It ends after N grants. This example keeps seen events in memory, so it is for display only. If money or points
 * depend on a grant, store (campaign, packet) and the effect in one transaction, as docs/subscribers.md says.
 */
public class Topic {
    private static String header(ConsumerRecord<String, String> record, String name) {
        Header h = record.headers().lastHeader(name);
        return h == null ? "" : new String(h.value(), StandardCharsets.UTF_8);
    }

    public static void main(String[] args) {
        Properties p = new Properties();
        p.put("bootstrap.servers", args[0]);
        p.put("group.id", args[2]);
        p.put("enable.auto.commit", "false");
        p.put("auto.offset.reset", "earliest");
        Map<String, Set<Long>> seen = new HashMap<>(); // by the shard; a high-water mark would drop grants that come late
        int left = Integer.parseInt(args[4]);
        try (KafkaConsumer<String, String> consumer =
                 new KafkaConsumer<>(p, new StringDeserializer(), new StringDeserializer())) {
            consumer.subscribe(List.of(args[1]));
            while (left > 0) {
                for (ConsumerRecord<String, String> record : consumer.poll(Duration.ofSeconds(1))) {
                    boolean ours = header(record, "ce_type").equals("hongbao.grant.v1")
                        && header(record, "ce_source").equals("/hongbao/" + args[3]);
                    long seq = ours ? Long.parseLong(header(record, "seq")) : 0;
                    if (ours && seen.computeIfAbsent(header(record, "shard"), s -> new HashSet<>()).add(seq)) {
                        System.out.println(record.value());
                        left--;
                    }
                }
                consumer.commitSync(); // after the effect, never before
            }
        }
    }
}
