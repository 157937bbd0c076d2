-- Whoever is on call lists what failed: that is little beside what succeeded, and is not sought among it.

create index operations_missed_idx on operations (state, id) where state in ('failed', 'superseded');
