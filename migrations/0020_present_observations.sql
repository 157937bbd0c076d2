-- What a cluster still shows of a database is swept, purged or not. Neither this nor the next index changes with what is said again:
-- such an update stays on its page and writes to none.

create index observations_present_idx on observations (database_id) where present;
