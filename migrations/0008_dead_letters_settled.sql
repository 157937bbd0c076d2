-- What people did about dead letters, and who asked for a state to be published again.

-- `superseded_at` says since when a letter is settled, however that came about: older programs look at nothing else.
alter table dead_letters
    -- How, where somebody or a later program said so; absent where a later record took its place.
    add column settled_as     text,
    add column settled_by     text,
    add column settled_reason text,
    add constraint dead_letters_settlement_is_known
        check (settled_as in ('superseded', 'redriven', 'discarded')) not valid,
    add constraint dead_letters_settled_have_a_time
        check (settled_as is null or superseded_at is not null) not valid;

alter table databases
    -- Who asked for the state to be published again; absent where the sweep did, and nobody waits for it.
    add column resent_by text;
