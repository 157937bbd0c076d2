-- What is parked keeps where it stood on its topic, so that it can still become a dead letter with all that came with it.
-- A row may be parked by a program that could not read it: then only key and headers are known.
alter table parked_instructions
    add column topic           text,
    add column kafka_partition integer,
    add column kafka_offset    bigint,
    add column headers         jsonb not null default '[]';

-- A dead letter is settled when a later record of its database was taken.
alter table dead_letters
    add column epoch         bigint,
    add column seq           bigint,
    add column superseded_at timestamptz;

create index dead_letters_open_idx on dead_letters (database_id) where superseded_at is null and database_id is not null;
