-- Whoever takes an operation away asks, as Postgres itself does, whether anything refers to it. One index a file: writers wait for one
-- at a time, and for no other.

create index operations_superseded_by_idx on operations (superseded_by) where superseded_by is not null;
