-- Five hundred observations in one statement, as the product's sink writes them: each with a document of its own to read.
\set n :n + 1
insert into observations as t (database_id, cluster_id, epoch, seq, term, resource_version, present,
    content_hash, phase, carried_epoch, carried_seq, body, body_schema, said_at)
    select ('{prefix}' || lpad(to_hex((:n * 500 + s.i) % {count}), 12, '0'))::uuid, 'bench', 1, 1, 1, :n, true,
    'bench', 'Provisioning', 0, 0, s.body::jsonb, 1, now()
    from unnest(array(select generate_series(0, 499)), array_fill(:observed::text, array[500])) as s (i, body)
    order by 1
    on conflict (database_id) do update set cluster_id = excluded.cluster_id, epoch = excluded.epoch,
    seq = excluded.seq, term = excluded.term, resource_version = excluded.resource_version,
    present = excluded.present, content_hash = excluded.content_hash, phase = excluded.phase,
    carried_epoch = excluded.carried_epoch, carried_seq = excluded.carried_seq, body = excluded.body,
    body_schema = excluded.body_schema, said_at = excluded.said_at, received_at = now()
    where (excluded.epoch, excluded.seq, excluded.term, excluded.resource_version)
    > (t.epoch, t.seq, t.term, t.resource_version);
