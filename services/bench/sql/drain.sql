-- A round of a relay without a relay: five hundred unpublished states are read, and marked.
select i.id, d.id, d.tenant_id, d.cluster_id, i.operation_id, i.operation_kind, i.epoch, i.seq, i.desired,
    i.desired_schema, i.minted_at, i.actor, i.traceparent
    from databases d join instructions i on i.database_id = d.id and i.epoch = d.epoch and i.seq = d.seq
    where d.unpublished order by d.minted_at limit 500;
with sent as (select d.id, d.epoch, d.seq from databases d where d.id = any(array(
    select id from databases where unpublished order by minted_at limit 500)) order by d.id for no key update of d)
    update databases d set published_epoch = sent.epoch, published_seq = sent.seq, published_at = now()
    from sent where d.id = sent.id and d.epoch = sent.epoch and d.seq = sent.seq and d.unpublished;
