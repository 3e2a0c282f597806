-- Statements of SQLite. A table is passed as one JSON array of rows. Grants and credits are
-- passed as parameters instead: SQLite would spend more time on the JSON than on the rows.
-- Without WHERE true the parser would take ON CONFLICT for the ON of a join.

-- name: has_schema
SELECT COUNT(*) FROM sqlite_master WHERE type = 'table' AND name = 'hongbao_schema';

-- name: refuse_newer
SELECT version FROM hongbao_schema WHERE lowest > %d LIMIT 1;

-- name: ask_server
SELECT sqlite_version(), CAST((julianday('now') - 2440587.5) * 86400000 AS INTEGER), 0;

-- name: insert_grants
-- execRows repeats the row of placeholders.
INSERT INTO grants (campaign, packet, user_id, amount, shard, seq, epoch, request_id, granted_at, batch)
VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?)
ON CONFLICT (campaign, packet) DO NOTHING;

-- name: insert_grants_again
-- after: insert_grants

-- name: read_grants
SELECT campaign, packet, user_id, amount, shard, seq, epoch, request_id, granted_at, batch
FROM json_each($1) AS k CROSS JOIN grants
WHERE campaign = k.value ->> 0 AND packet = k.value ->> 1;

-- name: read_quarantine
SELECT campaign, packet, user_id, amount, shard, seq, epoch, request_id, granted_at, resolved_at, resolution, reason
FROM json_each($1) AS k CROSS JOIN quarantine
WHERE campaign = k.value ->> 0 AND packet = k.value ->> 1;

-- name: insert_quarantine
INSERT INTO quarantine (reason, campaign, packet, user_id, amount, shard, seq, epoch, request_id, granted_at, entry_id,
  has, has_user_id, has_amount, has_shard, has_seq, has_epoch, has_request_id, has_granted_at, created_at, batch)
SELECT value ->> 0, value ->> 1, value ->> 2, value ->> 3, value ->> 4, value ->> 5, value ->> 6, value ->> 7,
  value ->> 8, value ->> 9, value ->> 10, value ->> 11, value ->> 12, value ->> 13, value ->> 14, value ->> 15, value ->> 16,
  value ->> 17, value ->> 18, $2, $3
FROM json_each($1) WHERE true
ON CONFLICT (campaign, packet, shard, seq, user_id, amount) DO NOTHING;

-- name: find_quarantined
SELECT k.value ->> 6, quarantine.id, resolved_at, batch
FROM json_each($1) AS k CROSS JOIN quarantine
WHERE campaign = k.value ->> 0 AND packet = k.value ->> 1 AND shard = k.value ->> 2 AND seq = k.value ->> 3
  AND user_id = k.value ->> 4 AND amount = k.value ->> 5;

-- name: credit_users
-- execRows repeats the row of placeholders.
INSERT INTO account (id, kind, currency, balance)
VALUES (?, 'user', ?, ?)
ON CONFLICT (id) DO UPDATE SET balance = account.balance + excluded.balance;

-- name: add_to_bases
UPDATE account SET base = base + (k.value ->> 1)
FROM json_each($1) AS k
WHERE account.id = k.value ->> 0;

-- name: insert_codes
INSERT INTO code (campaign, packet, code)
SELECT value ->> 0, value ->> 1, value ->> 2
FROM json_each($1);

-- name: read_codes
SELECT packet, code
FROM json_each($1) AS k CROSS JOIN code
WHERE campaign = k.value ->> 0 AND packet = k.value ->> 1;

-- name: insert_pending
INSERT INTO pending (campaign, packet, user_id, amount, shard, seq, epoch, request_id, granted_at, owner, batch, since,
  asked_at)
SELECT value ->> 0, value ->> 1, value ->> 2, value ->> 3, value ->> 4, value ->> 5, value ->> 6, value ->> 7,
  value ->> 8, $2, $3,
  CASE WHEN $4 = 1 THEN MIN(value ->> 8, CAST((julianday('now') - 2440587.5) * 86400000 AS INTEGER))
    ELSE CAST((julianday('now') - 2440587.5) * 86400000 AS INTEGER) END,
  CAST((julianday('now') - 2440587.5) * 86400000 AS INTEGER)
FROM json_each($1) WHERE true
ON CONFLICT (campaign, packet) DO NOTHING;

-- name: insert_pending_again
-- after: insert_pending

-- name: read_pending
SELECT campaign, packet, user_id, amount, shard, seq, epoch, request_id, granted_at, owner, batch,
  CAST((julianday('now') - 2440587.5) * 86400000 AS INTEGER) - since, asked_at,
  CAST((julianday('now') - 2440587.5) * 86400000 AS INTEGER) - asked_at
FROM json_each($1) AS k CROSS JOIN pending
WHERE campaign = k.value ->> 0 AND packet = k.value ->> 1;

-- name: take_pending
UPDATE pending SET owner = $2, batch = k.value ->> 3,
  asked_at = CAST((julianday('now') - 2440587.5) * 86400000 AS INTEGER)
FROM json_each($1) AS k
WHERE campaign = k.value ->> 0 AND packet = k.value ->> 1 AND batch = k.value ->> 2;

-- name: delete_pending
DELETE FROM pending WHERE campaign = $2 AND packet IN (SELECT value ->> 0 FROM json_each($1)) AND $3 IN (0, batch)
  AND $4 IN (0, asked_at);

-- name: insert_once_claim
INSERT INTO idempotency (caller, idempotency_key, body_hash, claim, claimed_at, answer)
VALUES ($1, $2, $3, $4, CAST((julianday('now') - 2440587.5) * 86400000 AS INTEGER), '')
ON CONFLICT (caller, idempotency_key) DO NOTHING;
