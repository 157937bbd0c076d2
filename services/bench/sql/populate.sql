-- Databases of the benches' tenant as the API leaves them, many at once. {prefix} begins their identities; {published} is
-- the epoch and seq that Kafka is said to have: 0 leaves them to the relay; of what Kafka has a volume was seen. Those from
-- {first} to {last}.
insert into databases (id, tenant_id, cluster_id, name, desired, desired_schema, content_hash, epoch, seq,
    published_epoch, published_seq, provisioned)
    select ('{prefix}' || lpad(to_hex(n), 12, '0'))::uuid, 'bench', 'bench', 'b-' || n, $json${desired}$json$, 1,
    '{hash}', 1, 1, {published}, {published}, {published} = 1 from generate_series({first}, {last}) n;
