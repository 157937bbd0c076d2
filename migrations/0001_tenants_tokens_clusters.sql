-- Who asks, and where databases can live.

create table tenants (
    id         text primary key,
    created_at timestamptz not null default now(),
    constraint tenants_id_is_a_label check (id ~ '^[a-z]([a-z0-9-]{0,38}[a-z0-9])?$')
);

-- The secret itself is never stored: only its SHA-256. Secrets are 256 random bits, so a slow hash would protect nothing.
create table tokens (
    id         uuid primary key,
    hash       bytea not null,
    role       text not null,
    tenant_id  text,
    name       text not null,
    created_at timestamptz not null default now(),
    expires_at timestamptz,
    revoked_at timestamptz,
    constraint tokens_hash_key unique (hash),
    constraint tokens_hash_is_sha256 check (length(hash) = 32),
    constraint tokens_role_is_known check (role in ('tenant', 'console', 'sre')),
    constraint tokens_only_tenants_have_one check ((role = 'tenant') = (tenant_id is not null)),
    constraint tokens_tenant_fkey foreign key (tenant_id) references tenants (id)
);

-- `credentials` is a reference, never the credentials.
create table clusters (
    id                 text primary key,
    region             text not null,
    account            text not null,
    zones              jsonb not null,
    hosted_zone_id     text not null,
    dns_suffix         text not null,
    namespace_template text not null,
    state              text not null,
    credentials        text not null,
    created_at         timestamptz not null default now(),
    updated_at         timestamptz not null default now(),
    constraint clusters_id_is_a_label check (id ~ '^[a-z]([a-z0-9-]{0,38}[a-z0-9])?$'),
    constraint clusters_state_is_known check (state in ('active', 'draining', 'disabled')),
    constraint clusters_zones_is_an_object check (jsonb_typeof(zones) = 'object')
);

-- One observer speaks for a cluster at a time. Two at once are wasteful, never wrong: the term orders what they say.
-- Only the database's clock counts here.
create table cluster_observers (
    cluster_id text primary key,
    holder     text not null,
    term       bigint not null,
    expires_at timestamptz not null,
    constraint cluster_observers_term_is_positive check (term >= 1)
);
