-- How the product stores an observation that is newer than what is stored; of the database that the first mint made.
\set n :n + 1
insert into observations as t (database_id, cluster_id, epoch, seq, term, resource_version, present,
    content_hash, phase, carried_epoch, carried_seq, body, body_schema, said_at)
    select database_id, cluster_id, epoch, seq, term, resource_version, present, content_hash, phase,
    carried_epoch, carried_seq, body, body_schema, to_timestamp(said_at_ms / 1000.0)
    from unnest(array['00000000-0001-7000-8000-000000000000']::uuid[], array[:cluster]::text[], array[1]::bigint[],
    array[1]::bigint[], array[1]::bigint[], array[:n]::bigint[], array[true]::bool[], array[:hash]::text[],
    array['Provisioning']::text[], array[0]::bigint[], array[0]::bigint[], array[:observed]::jsonb[],
    array[1]::int[], array[0]::bigint[])
    as s (database_id, cluster_id, epoch, seq, term, resource_version, present, content_hash, phase,
    carried_epoch, carried_seq, body, body_schema, said_at_ms) order by database_id
    on conflict (database_id) do update set cluster_id = excluded.cluster_id, epoch = excluded.epoch,
    seq = excluded.seq, term = excluded.term, resource_version = excluded.resource_version,
    present = excluded.present, content_hash = excluded.content_hash, phase = excluded.phase,
    carried_epoch = excluded.carried_epoch, carried_seq = excluded.carried_seq, body = excluded.body,
    body_schema = excluded.body_schema, said_at = excluded.said_at, received_at = now()
    where (excluded.epoch, excluded.seq, excluded.term, excluded.resource_version)
    > (t.epoch, t.seq, t.term, t.resource_version)
    returning database_id;
