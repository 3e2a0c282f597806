import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.ObjectMapper;
import java.nio.charset.StandardCharsets;
import java.time.Duration;
import java.util.Collection;
import java.util.HashSet;
import java.util.List;
import java.util.Map;
import java.util.Properties;
import java.util.Set;
import org.apache.kafka.clients.consumer.ConsumerRebalanceListener;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.clients.consumer.OffsetAndMetadata;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.header.Header;
import org.apache.kafka.common.serialization.StringDeserializer;

/**
 * Prints each grant of the topic once: java -cp 'libs/*' Topic.java BROKERS TOPIC GROUP DEPLOYMENT N. libs is a folder of
 * Kafka, with its client and Jackson. The program ends after N grants. It keeps seen grants in memory, so it is for
 * display only. If money or points depend on a grant, store (campaign, packet) and the effect in one transaction, as
 * docs/subscribers.md says.
 */
public class Topic {
    private static String header(ConsumerRecord<String, String> record, String name) {
        Header h = record.headers().lastHeader(name);
        return h == null ? "" : new String(h.value(), StandardCharsets.UTF_8);
    }

    /** Ends the program if grants expired unread, or may have. A group without an offset begins at offset 0 only. */
    private static void begin(KafkaConsumer<String, String> consumer, Collection<TopicPartition> assigned) {
        Map<TopicPartition, OffsetAndMetadata> committed = consumer.committed(new HashSet<>(assigned));
        consumer.beginningOffsets(assigned).forEach((partition, first) -> {
            OffsetAndMetadata at = committed.get(partition);
            if (first > (at == null ? 0 : at.offset())) {
                throw new IllegalStateException(partition + " begins at " + first + ", and the group's offset is " + at
                    + ": see docs/subscribers.md, \"Where to begin to read\"");
            }
            if (at == null) {
                consumer.seek(partition, 0);
                consumer.commitSync(Map.of(partition, new OffsetAndMetadata(0)));
            }
        });
    }

    public static void main(String[] args) throws Exception {
        Properties p = new Properties();
        p.put("bootstrap.servers", args[0]);
        p.put("group.id", args[2]);
        p.put("enable.auto.commit", "false");
        p.put("auto.offset.reset", "none");
        ObjectMapper json = new ObjectMapper();
        Set<String> seen = new HashSet<>();
        int left = Integer.parseInt(args[4]);
        try (KafkaConsumer<String, String> consumer =
                 new KafkaConsumer<>(p, new StringDeserializer(), new StringDeserializer())) {
            consumer.subscribe(List.of(args[1]), new ConsumerRebalanceListener() {
                @Override
                public void onPartitionsAssigned(Collection<TopicPartition> assigned) {
                    begin(consumer, assigned);
                }

                @Override
                public void onPartitionsRevoked(Collection<TopicPartition> revoked) {
                }
            });
            while (left > 0) {
                for (ConsumerRecord<String, String> record : consumer.poll(Duration.ofSeconds(1))) {
                    boolean ours = header(record, "ce_type").equals("hongbao.grant.v1")
                        && header(record, "ce_source").equals("/hongbao/" + args[3]);
                    JsonNode grant = ours ? json.readTree(record.value()) : null;
                    if (ours && seen.add(grant.get("campaign").asText() + "/" + grant.get("packet").asLong())) {
                        System.out.println(record.value());
                        left--;
                    }
                }
                consumer.commitSync(); // after the effect, never before
            }
        }
    }
}
