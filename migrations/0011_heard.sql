-- Up to when all that clusters said in a partition of a topic of gossip was taken in, by the database's clock. Deadlines are judged by
-- it, and what was never seen counts as never there only by it: an offset that moves says nothing of what still waits behind it.

create table heard (
    topic           text not null,
    kafka_partition integer not null,
    -- How many partitions the topic had by then: which of them a database's is depends on it.
    partitions      integer not null,
    up_to           timestamptz not null,
    constraint heard_pkey primary key (topic, kafka_partition)
);
