-- Statements that PostgreSQL and SQLite share; MySQL has its own.

-- name: add_to_account
INSERT INTO account (id, kind, currency, balance) VALUES ($1, $2, $3, $4)
ON CONFLICT (id) DO UPDATE SET balance = account.balance + excluded.balance;

-- name: insert_reserve
INSERT INTO account (id, kind, currency, balance) VALUES ($1, 'sponsor', $2, 0)
ON CONFLICT (id) DO NOTHING;

-- name: add_to_credit_account
INSERT INTO credit_account (id, currency, balance, credits) VALUES ($1, $2, $3, $4)
ON CONFLICT (id, currency)
  DO UPDATE SET balance = credit_account.balance + excluded.balance, credits = credit_account.credits + excluded.credits;

-- name: add_to_fund
INSERT INTO credit_fund (client, currency, funded, credited, credits) VALUES ($1, $2, $3, 0, 0)
ON CONFLICT (client, currency) DO UPDATE SET funded = credit_fund.funded + excluded.funded;

-- name: insert_deployment
INSERT INTO deployment (one, id, key_prefix, shards, founding) VALUES (1, $1, $2, $3, $4)
ON CONFLICT (one) DO NOTHING;

-- name: insert_disowned
INSERT INTO disowned (campaign, disowned_by, why, created_at) VALUES ($1, $2, $3, $4)
ON CONFLICT (campaign) DO NOTHING;

-- name: insert_accepted_loss
INSERT INTO accepted_loss (shard, epoch, accepted_by, why, lost, created_at) VALUES ($1, $2, $3, $4, $5, $6)
ON CONFLICT (shard, epoch) DO NOTHING;

-- name: insert_control
INSERT INTO control (kind, sink, campaign, setting, decided_by, why, decided_at, rev) VALUES ($1, $2, $3, $4, $5, $6, $7, $8)
ON CONFLICT (kind, sink, campaign) DO NOTHING;

-- name: insert_owed
INSERT INTO owed (sink, shard, first_seq, last_seq, begun_at) VALUES ($1, $2, $3, $4, $5)
ON CONFLICT (sink, shard, last_seq) DO NOTHING;

-- name: insert_seal
INSERT INTO seal (campaign, grants, amount, users, seqs, created_at) VALUES ($1, $2, $3, $4, $5, $6)
ON CONFLICT (campaign) DO NOTHING;

-- name: set_archive_copy
INSERT INTO archive_copy (campaign, file, sha256, grants, amount, written_at) VALUES ($1, $2, $3, $4, $5, $6)
ON CONFLICT (campaign) DO UPDATE SET file = excluded.file, sha256 = excluded.sha256, grants = excluded.grants,
  amount = excluded.amount, written_at = excluded.written_at;

-- name: insert_journal
INSERT INTO journal (id, at, who, action, campaign, sink, outcome, request_id, details)
VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9)
ON CONFLICT (id) DO NOTHING;
