-- What the product does in the transaction of POST /v1/databases, statement by statement.
\set n :n + 1
begin;
select pg_try_advisory_xact_lock(hashtextextended(jsonb_build_array(:tenant::text, :actor::text,
    'POST /v1/databases'::text, (:n::text || '-' || :client_id::text)::text)::text, 0));
select body_hash, status, location, etag, body from idempotency_keys
    where tenant_id = :tenant and principal = :actor and route = 'POST /v1/databases'
    and key = (:n::text || '-' || :client_id::text);
select c.id, c.region, c.account, c.zones, c.hosted_zone_id, c.dns_suffix, c.namespace_template, c.state,
    c.credentials, c.created_at, c.updated_at,
    case when c.region = :region and c.state = 'active'
    and (select count(*) from clusters o where o.region = :region and o.state = 'active') > 1
    then (select count(*) from databases d where d.cluster_id = c.id and d.deleted_at is null)
    end as databases from clusters c order by c.id;
with place as materialized (select state from clusters where id = :cluster for share),
    known as (insert into tenants (id) select :tenant::text from place where state = 'active'
    on conflict do nothing) select state from place;
with state as (
    insert into databases (id, tenant_id, cluster_id, name, desired, desired_schema, content_hash, epoch, seq)
    values ((lpad(to_hex(:n::bigint), 12, '0') || '70008000' || lpad(to_hex(:client_id::bigint), 12, '0'))::uuid,
    :tenant, :cluster, 'b-' || :n::text || '-' || :client_id::text, :desired, 1, :hash, 1, 1)),
    asked as (
    insert into operations (id, tenant_id, database_id, kind, epoch, seq, state, actor, traceparent, last_event,
    deadline_at, on_failure, reverts, verb)
    values ((lpad(to_hex(:n::bigint), 12, '0') || '70008000' || lpad(to_hex(:client_id::bigint), 12, '0'))::uuid,
    :tenant, (lpad(to_hex(:n::bigint), 12, '0') || '70008000' || lpad(to_hex(:client_id::bigint), 12, '0'))::uuid,
    'create', 1, 1, 'pending', :actor, :trace, 1, now() + make_interval(secs => 1800), 'revert', null, null)),
    told as (
    insert into operation_events (operation_id, number, kind, body)
    values ((lpad(to_hex(:n::bigint), 12, '0') || '70008000' || lpad(to_hex(:client_id::bigint), 12, '0'))::uuid,
    1, 'state', jsonb_build_object('state', 'pending')))
    insert into instructions (id, database_id, epoch, seq, operation_id, operation_kind, desired, desired_schema,
    content_hash, actor, traceparent)
    values ((lpad(to_hex(:n::bigint), 12, '0') || '70008000' || lpad(to_hex(:client_id::bigint), 12, '0'))::uuid,
    (lpad(to_hex(:n::bigint), 12, '0') || '70008000' || lpad(to_hex(:client_id::bigint), 12, '0'))::uuid, 1, 1,
    (lpad(to_hex(:n::bigint), 12, '0') || '70008000' || lpad(to_hex(:client_id::bigint), 12, '0'))::uuid,
    'create', :desired, 1, :hash, :actor, :trace);
select d.id, d.tenant_id, d.cluster_id, d.desired, d.desired_schema, d.content_hash, d.epoch, d.seq, d.provisioned,
    d.published_epoch, d.published_seq, d.minted_at, d.created_at, d.deleted_at, c.region,
    (select o.id from operations o where o.database_id = d.id order by o.epoch desc, o.seq desc limit 1)
    as newest_operation, s.phase, s.epoch as observed_epoch, s.seq as observed_seq, s.carried_epoch, s.carried_seq,
    s.body, s.body_schema, s.said_at
    from databases d join clusters c on c.id = d.cluster_id left join observations s on s.database_id = d.id
    where d.id = (lpad(to_hex(:n::bigint), 12, '0') || '70008000' || lpad(to_hex(:client_id::bigint), 12, '0'))::uuid;
select o.id, o.tenant_id, o.database_id, d.name as database_name, coalesce(o.verb, o.kind) as kind, o.epoch, o.seq, o.state, o.failure_code,
    o.failure_message, o.steps, o.last_event, o.actor, o.traceparent, o.created_at, o.updated_at, o.ended_at
    from operations o join databases d on d.id = o.database_id
    where o.id = (lpad(to_hex(:n::bigint), 12, '0') || '70008000' || lpad(to_hex(:client_id::bigint), 12, '0'))::uuid;
insert into idempotency_keys (tenant_id, principal, route, key, body_hash, status, location, etag, body)
    values (:tenant, :actor, 'POST /v1/databases', :n::text || '-' || :client_id::text, sha256('body'), 202,
    '/v1/operations/00000000-0000-7000-8000-000000000000', '"1-1"', :answer);
insert into audit (tenant_id, principal, role, action, subject, operation_id, request_id, detail)
    values (:tenant, :actor, 'sre', 'databases.create', :n::text,
    (lpad(to_hex(:n::bigint), 12, '0') || '70008000' || lpad(to_hex(:client_id::bigint), 12, '0'))::uuid,
    :n::text, :detail);
commit;
