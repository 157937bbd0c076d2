-- Databases of which nothing is left stay known for ever: the sweep, which looks at all others twice a minute, does not pass them.

create index databases_unpurged_idx on databases (id) where purged_at is null;
