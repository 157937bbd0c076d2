-- Everything is said again: what a cluster does not show is sent again, what it should not show is told of, and what is
-- gone for good is taken out of it.

alter table databases
    -- How a cluster differs from what was minted, and since when that is known.
    add column diverged_kind  text,
    add column diverged_since timestamptz,
    -- When the state was last made to be published again, and how often that happened.
    add column resent_at      timestamptz,
    add column resends        bigint not null default 0,
    -- Since when nothing of a purged database is left in its cluster, its tombstone included.
    add column purged_at      timestamptz,
    add constraint databases_divergence_is_known
        check (diverged_kind in ('missing', 'lagging', 'ahead', 'content')) not valid,
    add constraint databases_divergence_has_a_beginning check ((diverged_kind is null) = (diverged_since is null)) not valid;

-- What is sent again waits behind what was minted before that.
create index databases_waiting_idx on databases (greatest(minted_at, resent_at)) where unpublished;
create index databases_diverged_idx on databases (id) where diverged_kind is not null;

-- Absence is believed only of an observer that listed everything under its term and told of it.
alter table cluster_observers
    add column listed_term      bigint not null default 0,
    -- Since when everything of that term's list was told.
    add column listed_at        timestamptz,
    -- When the server last let it list.
    add column confirmed_at     timestamptz,
    add column listed_databases bigint not null default 0;

alter table unclaimed
    -- The newest term of an observer under which it was said.
    add column term        bigint not null default 0,
    -- Since when it is no longer so; kept for people.
    add column resolved_at timestamptz;

create index unclaimed_open_idx on unclaimed (last_seen) where resolved_at is null;

-- Work that one replica at a time does, and how much of it was done in this turn. Only the database's clock counts.
create table turns (
    name    text primary key,
    number  bigint not null default 0,
    next_at timestamptz not null default now(),
    spent   bigint not null default 0
);

insert into turns (name) values ('sweep');

-- Purged databases whose custom resource is to be removed by whoever speaks for their cluster.
create table tombstones (
    database_id uuid primary key,
    cluster_id  text not null,
    epoch       bigint not null,
    seq         bigint not null,
    asked_at    timestamptz not null default now(),
    attempts    bigint not null default 0,
    retry_at    timestamptz not null default now(),
    constraint tombstones_database_fkey foreign key (database_id) references databases (id)
);

create index tombstones_cluster_idx on tombstones (cluster_id, retry_at);
