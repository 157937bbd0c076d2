-- What is believed of each database, as of when; and what could not be acted upon.

-- Guarded by (epoch, seq, term, resource_version): whatever order reports come in, the newest stays.
create table observations (
    database_id      uuid primary key,
    cluster_id       text not null,
    epoch            bigint not null,
    seq              bigint not null,
    term             bigint not null,
    resource_version bigint not null,
    present          boolean not null,
    content_hash     text not null,
    phase            text not null,
    carried_epoch    bigint not null,
    carried_seq      bigint not null,
    -- The whole observation, for those who read.
    body             jsonb not null,
    body_schema      integer not null,
    said_at          timestamptz not null,
    received_at      timestamptz not null default now(),
    constraint observations_database_fkey foreign key (database_id) references databases (id)
);

-- Instructions whose cluster cannot take them now: the newest of each database. No foreign keys, because a record that
-- names an unknown cluster or database must find a place too.
create table parked_instructions (
    database_id uuid primary key,
    cluster_id  text not null,
    epoch       bigint not null,
    seq         bigint not null,
    payload     bytea not null,
    traceparent text,
    code        text not null,
    message     text not null,
    attempts    bigint not null default 0,
    parked_at   timestamptz not null default now(),
    retry_at    timestamptz not null default now()
);

create index parked_instructions_cluster_idx on parked_instructions (cluster_id, retry_at);

-- Records that cannot be understood, with their bytes and the reason.
create table dead_letters (
    id              bigint generated always as identity primary key,
    topic           text not null,
    kafka_partition integer not null,
    kafka_offset    bigint not null,
    key             bytea,
    payload         bytea,
    headers         jsonb not null default '[]',
    digest          bytea not null generated always as (sha256(coalesce(payload, ''::bytea))) stored,
    cluster_id      text,
    database_id     uuid,
    code            text not null,
    message         text not null,
    consumer        text not null,
    received_at     timestamptz not null default now(),
    -- A record that comes again is the same letter; the same offset of a topic made anew is another one.
    constraint dead_letters_record_key unique (topic, kafka_partition, kafka_offset, digest)
);

create index dead_letters_database_idx on dead_letters (database_id) where database_id is not null;

-- What clusters say of databases that are not theirs, or that nobody knows.
create table unclaimed (
    database_id uuid not null,
    cluster_id  text not null,
    code        text not null,
    epoch       bigint not null,
    seq         bigint not null,
    body        jsonb not null,
    seen        bigint not null default 1,
    first_seen  timestamptz not null default now(),
    last_seen   timestamptz not null default now(),
    constraint unclaimed_pkey primary key (database_id, cluster_id),
    constraint unclaimed_code_is_known check (code in ('unknown_database', 'other_cluster', 'ahead', 'content'))
);

-- Where a consumer goes on; moved by compare-and-set in the transaction of the effect.
create table consumer_offsets (
    consumer        text not null,
    topic           text not null,
    kafka_partition integer not null,
    next_offset     bigint not null,
    updated_at      timestamptz not null default now(),
    constraint consumer_offsets_pkey primary key (consumer, topic, kafka_partition),
    constraint consumer_offsets_is_an_offset check (next_offset >= 0)
);
