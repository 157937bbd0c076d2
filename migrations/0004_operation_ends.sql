-- How operations end when they do not succeed: deadlines, what is taken back, and who took whose place.

-- By the database's clock. The default is for rows that an older program writes while both run.
alter table operations
    add column deadline_at   timestamptz not null default now() + interval '1 hour',
    -- Since when an operation that is not given up is late; an alert, never an end.
    add column overdue_since timestamptz,
    add column on_failure    text not null default 'revert',
    -- The operation that this one takes back.
    add column reverts       uuid,
    -- The operation that took this one's place.
    add column superseded_by uuid,
    -- Set once what follows from a failure was minted, or nothing follows.
    add column settled_at    timestamptz,
    add constraint operations_on_failure_is_known check (on_failure in ('revert', 'keep')),
    add constraint operations_reverts_fkey foreign key (reverts) references operations (id),
    add constraint operations_superseded_by_fkey foreign key (superseded_by) references operations (id),
    add constraint operations_only_superseded_name_by_whom check (superseded_by is null or state = 'superseded');

-- What failed before this was known is left as it is: nothing is taken back years later.
update operations set settled_at = now() where state = 'failed';

create index operations_deadline_idx on operations (deadline_at) where ended_at is null and overdue_since is null;
create index operations_overdue_idx on operations (id) where ended_at is null and overdue_since is not null;
create index operations_unsettled_idx on operations (id) where state = 'failed' and settled_at is null;

-- An end is final, whoever writes: programs guard their statements, and this guards the table against programs.
create function operations_keep_their_end() returns trigger language plpgsql as $$
begin
    raise exception 'operation % ended as %: it does not move any more', old.id, old.state
        using errcode = 'check_violation', constraint = 'operations_ends_are_final', table = 'operations';
end $$;

create trigger operations_ends_are_final
    before update on operations
    for each row
    when (old.ended_at is not null and
          (new.state, new.failure_code, new.failure_message, new.steps, new.last_event, new.ended_at, new.superseded_by)
          is distinct from
          (old.state, old.failure_code, old.failure_message, old.steps, old.last_event, old.ended_at, old.superseded_by))
    execute function operations_keep_their_end();
