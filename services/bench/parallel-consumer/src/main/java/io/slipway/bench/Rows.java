package io.slipway.bench;

import io.confluent.parallelconsumer.ParallelConsumerOptions;
import io.confluent.parallelconsumer.ParallelConsumerOptions.ProcessingOrder;
import io.confluent.parallelconsumer.ParallelStreamProcessor;
import java.lang.management.ManagementFactory;
import java.nio.file.Files;
import java.nio.file.Path;
import java.time.Duration;
import java.util.List;
import java.util.Locale;
import java.util.Map;
import java.util.StringJoiner;
import java.util.UUID;
import java.util.concurrent.CountDownLatch;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.atomic.AtomicLong;
import java.util.concurrent.locks.LockSupport;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.common.serialization.ByteArrayDeserializer;
import org.apache.kafka.common.serialization.StringDeserializer;

/**
 * The Confluent Parallel Consumer on the work that the product's consumer is given too: every record takes 0 to 5 ms, by its
 * offset; keys in parallel, each in order.
 *
 * <p>Arguments: brokers, records of each topic, records in flight, how often the first topic is consumed before anything
 * counts, then topics. Prints one JSON object: topic to records a second; {@code cpu} in seconds for all that counted;
 * {@code work}, for how long a record was worked on, in milliseconds on average over all topics; {@code memory}, the most ever
 * resident, in MB.
 */
public final class Rows {
    private Rows() {}

    /** How a topic was consumed. */
    private record Row(double perSecond, double cpu, double work) {}

    public static void main(String[] arguments) throws Exception {
        String brokers = arguments[0];
        int records = Integer.parseInt(arguments[1]);
        int inFlight = Integer.parseInt(arguments[2]);
        int warmUps = Integer.parseInt(arguments[3]);
        List<String> topics = List.of(arguments).subList(4, arguments.length);
        for (int i = 0; i < warmUps; i++) {
            consume(brokers, topics.get(0), records, inFlight);
        }
        StringJoiner json = new StringJoiner(",", "{", "}");
        double cpu = 0;
        double work = 0;
        List<String> rows = topics.subList(1, topics.size());
        for (String topic : rows) {
            Row row = consume(brokers, topic, records, inFlight);
            json.add(String.format(Locale.ROOT, "\"%s\":%.3f", topic, row.perSecond()));
            cpu += row.cpu();
            work += row.work() / rows.size();
        }
        json.add(String.format(
                Locale.ROOT, "\"cpu\":%.3f,\"work\":%.4f,\"memory\":%.3f", cpu, work, memory()));
        System.out.println(json);
        // Threads of the library may still sleep.
        System.exit(0);
    }

    /** The same as in the product's program. */
    private static long micros(long offset) {
        return (offset * 2_654_435_761L & 0xffff_ffffL) % 5_001;
    }

    private static Row consume(String brokers, String topic, int records, int inFlight) throws Exception {
        Map<String, Object> settings = Map.of(
                "bootstrap.servers", brokers,
                "group.id", "bench-" + UUID.randomUUID(),
                "auto.offset.reset", "earliest",
                "enable.auto.commit", "false");
        var consumer = new KafkaConsumer<>(settings, new StringDeserializer(), new ByteArrayDeserializer());
        var options = ParallelConsumerOptions.<String, byte[]>builder()
                .ordering(ProcessingOrder.KEY)
                .maxConcurrency(inFlight)
                .consumer(consumer)
                .build();
        CountDownLatch open = new CountDownLatch(records);
        AtomicLong begun = new AtomicLong();
        AtomicLong ended = new AtomicLong();
        AtomicLong worked = new AtomicLong();
        AtomicLong cpuAtBegin = new AtomicLong();
        try (var processor = ParallelStreamProcessor.<String, byte[]>createEosStreamProcessor(options)) {
            processor.subscribe(List.of(topic));
            processor.poll(context -> {
                long start = System.nanoTime();
                if (begun.compareAndSet(0, start)) {
                    cpuAtBegin.set(cpuNanos());
                }
                long end = start + TimeUnit.MICROSECONDS.toNanos(micros(context.offset()));
                for (long left = end - System.nanoTime(); left > 0; left = end - System.nanoTime()) {
                    LockSupport.parkNanos(left);
                }
                long done = System.nanoTime();
                worked.addAndGet(done - start);
                ended.accumulateAndGet(done, Math::max);
                open.countDown();
            });
            if (!open.await(3, TimeUnit.MINUTES)) {
                throw new IllegalStateException(open.getCount() + " records of " + topic + " are left");
            }
            double seconds = (ended.get() - begun.get()) / 1e9;
            double cpu = (cpuNanos() - cpuAtBegin.get()) / 1e9;
            processor.closeDontDrainFirst(Duration.ofSeconds(10));
            return new Row(records / seconds, cpu, worked.get() / 1e6 / records);
        }
    }

    private static long cpuNanos() {
        var system = (com.sun.management.OperatingSystemMXBean) ManagementFactory.getOperatingSystemMXBean();
        return system.getProcessCpuTime();
    }

    /** As the kernel counts it. */
    private static double memory() throws Exception {
        String line = Files.readAllLines(Path.of("/proc/self/status")).stream()
                .filter(text -> text.startsWith("VmHWM:"))
                .findFirst()
                .orElseThrow();
        return Long.parseLong(line.replaceAll("\\D", "")) * 1024 / 1e6;
    }
}
