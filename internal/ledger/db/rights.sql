-- The rights of each role of deploy/rights/postgres.sql and mysql.sql on the ledger's tables. `hongbao init` grants them,
-- because a new table needs rights, too. Repeated runs change nothing. PostgreSQL runs this file. MySQL and MariaDB grant
-- each right to one table at a time, take nothing away, and need more: mysql/rights.sql.
--
-- In PostgreSQL no role but the owner updates or deletes rows of journal, transfer and refund.
REVOKE ALL ON ALL TABLES IN SCHEMA public FROM hongbao_control, hongbao_work, hongbao_serve;

-- hongbao_control
GRANT SELECT ON ALL TABLES IN SCHEMA public TO hongbao_control;
GRANT INSERT ON campaign, generation, code, account, transfer, refund, refund_close, grants, quarantine, pending, shard,
    fence, accepted_loss, disowned, control, seal, seal_seqs, topic_base, archive, archive_shard, archive_copy, acknowledged, api_key,
    console_session, job, journal, idempotency, credit_fund, credit_funding, credit_account, credit TO hongbao_control;
GRANT UPDATE ON campaign, generation, account, quarantine, pending, shard, fence, control, seal, archive, archive_copy, api_key,
    console_session, job, idempotency, credit_fund, credit_account, credit TO hongbao_control;
GRANT DELETE ON grants, pending, seal_seqs, topic_base, archive_copy, acknowledged, console_session, job, idempotency TO hongbao_control;

-- hongbao_work reads seeds, because it checks each grant against the plan. It reads neither keys nor sessions.
GRANT SELECT ON hongbao_schema, deployment, campaign, generation, code, account, transfer, refund, refund_close, grants,
    quarantine, pending, shard, fence, accepted_loss, disowned, control, owed, seal, seal_seqs, archive, archive_shard,
    journal TO hongbao_work;
GRANT INSERT ON account, transfer, grants, quarantine, pending, shard, fence, control, owed, journal TO hongbao_work;
GRANT UPDATE (granted, grants) ON campaign TO hongbao_work;
GRANT UPDATE (balance) ON account TO hongbao_work;
GRANT UPDATE (state, dealt_at) ON generation TO hongbao_work;
GRANT UPDATE (owner, batch, asked_at) ON pending TO hongbao_work;
GRANT UPDATE (epoch, token) ON shard TO hongbao_work;
GRANT UPDATE (opened_at, note) ON fence TO hongbao_work;
GRANT UPDATE (setting, decided_by, why, decided_at, rev) ON control TO hongbao_work;
GRANT UPDATE (first_seq, last_seq, ended_at) ON owed TO hongbao_work;
GRANT DELETE ON pending, owed TO hongbao_work;

-- hongbao_serve reads receipts with their codes, and the hashes of keys. It reads no seed.
GRANT SELECT ON hongbao_schema, deployment, grants, code, archive, api_key, console_session, pending TO hongbao_serve;
GRANT SELECT (id, currency, state, spec) ON campaign TO hongbao_serve;
GRANT SELECT (campaign, generation, state, created_at) ON generation TO hongbao_serve;
GRANT SELECT (kind, campaign, setting, decided_by) ON control TO hongbao_serve;
GRANT SELECT (note) ON fence TO hongbao_serve;
GRANT SELECT (id), INSERT ON journal TO hongbao_serve;
