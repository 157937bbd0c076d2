-- The operation and the instruction of each of these databases.
insert into operations (id, tenant_id, database_id, kind, epoch, seq, state, actor)
    select id, tenant_id, id, 'create', epoch, seq, 'pending', 'bench' from databases
    where id >= '{prefix}{first-digits}' and id <= '{prefix}{last-digits}';
insert into instructions (id, database_id, epoch, seq, operation_id, operation_kind, desired, desired_schema,
    content_hash, actor)
    select id, id, epoch, seq, id, 'create', desired, desired_schema, content_hash, 'bench' from databases
    where id >= '{prefix}{first-digits}' and id <= '{prefix}{last-digits}';
