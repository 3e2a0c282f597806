// Prints each grant of the topic once: node topic.mjs BROKERS TOPIC GROUP DEPLOYMENT N. It needs kafkajs (npm install), and
// ends after N grants. This example keeps seen grants in memory, so it is for display only. If money or points
// depend on a grant, store (campaign, packet) and the effect in one transaction, as docs/subscribers.md says.
import { Kafka, logLevel } from 'kafkajs';

const [brokers, topic, groupId, deployment, count] = process.argv.slice(2);
const kafka = new Kafka({ brokers: brokers.split(','), logLevel: logLevel.ERROR });
const consumer = kafka.consumer({ groupId });
const seen = new Set();
let left = Number(count);

// The program ends if grants expired unread, or may have. A group without an offset (-1) begins at offset 0 only. kafkajs
// has no option for this, and still skips records that expire while it runs.
const admin = kafka.admin();
await admin.connect();
const [committed] = await admin.fetchOffsets({ groupId, topics: [topic] });
for (const { partition, low } of await admin.fetchTopicOffsets(topic)) {
  const at = committed.partitions.find((p) => p.partition === partition)?.offset ?? '-1';
  if (BigInt(low) > 0n && BigInt(low) > BigInt(at)) {
    throw new Error(`partition ${partition} begins at ${low}, and the group's offset is ${at}: see docs/subscribers.md, ` +
      '"Where to begin to read"');
  }
  if (at === '-1') await admin.setOffsets({ groupId, topic, partitions: [{ partition, offset: low }] });
}
await admin.disconnect();

await consumer.connect();
await consumer.subscribe({ topic, fromBeginning: true });
await new Promise((done, failed) => {
  consumer.on(consumer.events.CRASH, ({ payload }) => payload.restart || failed(payload.error));
  consumer.run({
    autoCommit: false,
    eachMessage: async ({ partition, message }) => {
      if (left === 0) return;
      const header = (name) => message.headers[name]?.toString();
      const ours = header('ce_type') === 'hongbao.grant.v1' && header('ce_source') === `/hongbao/${deployment}`;
      const grant = ours ? JSON.parse(message.value.toString()) : null;
      const packet = ours ? `${grant.campaign}/${grant.packet}` : ''; // the key of a win
      if (ours && !seen.has(packet)) {
        seen.add(packet);
        console.log(message.value.toString());
        left--;
      }
      const next = (BigInt(message.offset) + 1n).toString(); // after the effect, never before
      await consumer.commitOffsets([{ topic, partition, offset: next }]);
      if (left === 0) done();
    },
  }).catch(failed);
});
await consumer.disconnect();
