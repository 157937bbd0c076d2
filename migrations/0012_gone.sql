-- When the resource that was there before was seen to be gone: what is said of that one says nothing of the one that is there now,
-- whose position may be lower. Beside one that was never gone it is zero, which is before everything.

alter table observations
    add column gone_term    bigint not null default 0,
    add column gone_version bigint not null default 0;
