-- What goes on is little, however much is over: lists of it and the search for what is late look at nothing else. In the order in
-- which pages of it are read, so that no page is ever sought among those that are over.

create index operations_unended_idx on operations (id, deadline_at, overdue_since) where ended_at is null;
