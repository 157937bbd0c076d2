-- What an operation was asked for with, where that is a word of its own: pause, resume, restart, undelete.

-- `kind` stays one of three, by which programs older than these words treat it rightly.
alter table operations
    add column verb text,
    add constraint operations_verb_is_known
        check (verb in ('pause', 'resume', 'restart', 'undelete')) not valid,
    add constraint operations_verbs_are_changes check (verb is null or kind = 'update') not valid;
