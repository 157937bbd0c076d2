-- Dead letters that are open are listed first, and are not sought among those that are settled and kept. Those without a database,
-- which `dead_letters_open_idx` leaves out, are among them.

create index dead_letters_unsettled_idx on dead_letters (id) where superseded_at is null;
