-- The desired state of every database, what was asked for, and how far it came.

create table databases (
    id                  uuid primary key,
    tenant_id           text not null,
    cluster_id          text not null,
    name                text not null,
    desired             jsonb not null,
    desired_schema      integer not null,
    content_hash        text not null,
    epoch               bigint not null,
    seq                 bigint not null,
    -- Set by the first observation that shows a volume; it enters the desired state with the next mint.
    provisioned         boolean not null default false,
    published_epoch     bigint not null default 0,
    published_seq       bigint not null default 0,
    published_at        timestamptz,
    -- What is not yet published is seen from the row itself.
    unpublished         boolean not null generated always as ((published_epoch, published_seq) < (epoch, seq)) stored,
    minted_at           timestamptz not null default now(),
    created_at          timestamptz not null default now(),
    deleted_at          timestamptz,
    constraint databases_tenant_fkey foreign key (tenant_id) references tenants (id),
    constraint databases_cluster_fkey foreign key (cluster_id) references clusters (id),
    constraint databases_position_is_valid
        check (epoch between 1 and 9007199254740991 and seq between 1 and 9007199254740991),
    constraint databases_publishes_what_was_minted check ((published_epoch, published_seq) <= (epoch, seq))
);

-- A name can be used again as soon as its database is deleted.
create unique index databases_living_name_key on databases (tenant_id, name) where deleted_at is null;
create index databases_tenant_idx on databases (tenant_id, id desc);
create index databases_cluster_idx on databases (cluster_id) where deleted_at is null;
create index databases_unpublished_idx on databases (minted_at) where unpublished;

create table operations (
    id              uuid primary key,
    tenant_id       text not null,
    database_id     uuid not null,
    kind            text not null,
    epoch           bigint not null,
    seq             bigint not null,
    state           text not null,
    failure_code    text,
    failure_message text,
    -- Named progress as last reported: [{name, state, message, started_at, ended_at}].
    steps           jsonb not null default '[]',
    last_event      bigint not null default 0,
    actor           text not null,
    traceparent     text,
    created_at      timestamptz not null default now(),
    updated_at      timestamptz not null default now(),
    ended_at        timestamptz,
    constraint operations_database_fkey foreign key (database_id) references databases (id),
    constraint operations_position_key unique (database_id, epoch, seq),
    constraint operations_kind_is_known check (kind in ('create', 'update', 'delete')),
    constraint operations_state_is_known check (state in ('pending', 'running', 'succeeded', 'failed', 'superseded')),
    constraint operations_failed_say_why check ((state = 'failed') = (failure_code is not null)),
    constraint operations_terminal_have_an_end check ((state in ('pending', 'running')) = (ended_at is null))
);

create index operations_tenant_idx on operations (tenant_id, id desc);
create index operations_open_idx on operations (database_id) where ended_at is null;

-- Numbered per operation under the operation's row lock, so a reader that saw number n missed nothing below it.
create table operation_events (
    operation_id uuid not null,
    number       bigint not null,
    kind         text not null,
    body         jsonb not null,
    at           timestamptz not null default now(),
    constraint operation_events_pkey primary key (operation_id, number),
    constraint operation_events_operation_fkey foreign key (operation_id) references operations (id)
);

-- Every desired state ever minted.
create table instructions (
    id             uuid primary key,
    database_id    uuid not null,
    epoch          bigint not null,
    seq            bigint not null,
    operation_id   uuid not null,
    operation_kind text not null,
    desired        jsonb not null,
    desired_schema integer not null,
    content_hash   text not null,
    actor          text not null,
    traceparent    text,
    minted_at      timestamptz not null default now(),
    constraint instructions_database_fkey foreign key (database_id) references databases (id),
    constraint instructions_operation_fkey foreign key (operation_id) references operations (id),
    constraint instructions_position_key unique (database_id, epoch, seq)
);

-- The answer to a request that may be sent again; written in the transaction whose effect it answers for.
create table idempotency_keys (
    tenant_id  text not null,
    principal  text not null,
    route      text not null,
    key        text not null,
    body_hash  bytea not null,
    status     integer not null,
    location   text,
    etag       text,
    body       jsonb not null,
    created_at timestamptz not null default now(),
    constraint idempotency_keys_pkey primary key (tenant_id, principal, route, key),
    constraint idempotency_keys_key_length check (length(key) between 1 and 255)
);

create index idempotency_keys_created_idx on idempotency_keys (created_at);

create table audit (
    id           bigint generated always as identity primary key,
    at           timestamptz not null default now(),
    tenant_id    text,
    principal    text not null,
    role         text not null,
    action       text not null,
    subject      text not null,
    operation_id uuid,
    request_id   text,
    detail       jsonb not null default '{}'
);

create index audit_subject_idx on audit (subject, id desc);
