-- Under which terms a cluster was heard is asked twice a minute, by each replica: of its index, and not of all that was ever seen.

create index observations_cluster_idx on observations (cluster_id, term);
