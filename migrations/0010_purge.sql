-- A word more that an operation may have been asked for with: purge. It is the one that is an end, not a change.

alter table operations
    drop constraint operations_verb_is_known,
    drop constraint operations_verbs_are_changes,
    add constraint operations_verb_is_known
        check (verb in ('pause', 'resume', 'restart', 'undelete', 'purge')) not valid,
    add constraint operations_verbs_have_their_kinds
        check (verb is null or kind = case verb when 'purge' then 'delete' else 'update' end) not valid;
