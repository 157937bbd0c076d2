-- Whoever takes an operation away asks, as Postgres itself does, whether anything refers to it.

create index operations_reverts_idx on operations (reverts) where reverts is not null;
create index operations_superseded_by_idx on operations (superseded_by) where superseded_by is not null;
create index instructions_operation_idx on instructions (operation_id);
