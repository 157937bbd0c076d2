-- Which programs run against this schema, what contracted it, and what the relay set aside.

-- Programs say here that they run, by the database's clock. A row that is not renewed counts for nothing soon.
create table programs (
    instance   uuid primary key,
    name       text not null,
    version    text not null,
    -- The newest migration it knows: it needs all up to it, and bears later ones until one of them asks for more.
    schema     bigint not null,
    started_at timestamptz not null default now(),
    seen_at    timestamptz not null default now()
);

-- Migrations that took something away, and the oldest schema that a program must know to live with that. Written before
-- such a migration runs: a note too many keeps old programs waiting, a note too few would let them in.
create table schema_contracts (
    migration bigint primary key,
    needs     bigint not null,
    noted_at  timestamptz not null default now()
);

-- Desired states that no relay can publish: tried no more until the next mint of the database.
create table unpublishable (
    database_id uuid primary key,
    epoch       bigint not null,
    seq         bigint not null,
    code        text not null,
    message     text not null,
    set_aside   timestamptz not null default now(),
    constraint unpublishable_database_fkey foreign key (database_id) references databases (id),
    constraint unpublishable_code_is_known check (code in ('unreadable', 'too_large'))
);
