-- Statements of PostgreSQL. A table is passed as one array per column.

-- name: has_schema
SELECT COUNT(*) FROM pg_class WHERE oid = to_regclass('hongbao_schema');

-- name: refuse_newer
SELECT 1 / (max(lowest) <= %d)::integer FROM hongbao_schema;

-- name: ask_server
SELECT current_setting('server_version'), CAST(extract(epoch FROM statement_timestamp()) * 1000 AS bigint),
  CAST(current_setting('max_connections') AS bigint)
    - CAST(current_setting('superuser_reserved_connections') AS bigint)
    - COALESCE(CAST(current_setting('reserved_connections', true) AS bigint), 0);

-- name: insert_grants
-- COPY takes three quarters of the time of INSERT. If a packet exists, it fails.
COPY grants (campaign, packet, user_id, amount, shard, seq, epoch, request_id, granted_at, batch) FROM STDIN BINARY;

-- name: insert_grants_again
-- ON CONFLICT takes a quarter of the time of INSERT.
INSERT INTO grants (campaign, packet, user_id, amount, shard, seq, epoch, request_id, granted_at, batch)
SELECT g.*, $10::bigint
FROM unnest($1::text[], $2::bigint[], $3::text[], $4::bigint[], $5::integer[],
  $6::bigint[], $7::bigint[], $8::text[], $9::bigint[]) AS g
ON CONFLICT (campaign, packet) DO NOTHING;

-- name: read_grants
-- LATERAL with LIMIT makes PostgreSQL look up each row by the primary key, even if it planned for a small table.
SELECT g.*
FROM unnest($1::text[], $2::bigint[]) AS k (campaign, packet)
CROSS JOIN LATERAL (
  SELECT campaign, packet, user_id, amount, shard, seq, epoch, request_id, granted_at, batch FROM grants
  WHERE campaign = k.campaign COLLATE "C" AND packet = k.packet LIMIT 1) AS g;

-- name: read_quarantine
SELECT q.*
FROM unnest($1::text[], $2::bigint[]) AS k (campaign, packet)
CROSS JOIN LATERAL (
  SELECT campaign, packet, user_id, amount, shard, seq, epoch, request_id, granted_at, resolved_at, resolution, reason
  FROM quarantine
  WHERE campaign = k.campaign COLLATE "C" AND packet = k.packet) AS q;

-- name: insert_quarantine
INSERT INTO quarantine (reason, campaign, packet, user_id, amount, shard, seq, epoch, request_id, granted_at, entry_id,
  has, has_user_id, has_amount, has_shard, has_seq, has_epoch, has_request_id, has_granted_at, created_at, batch)
SELECT q.*, $20::bigint, $21::bigint
FROM unnest($1::text[], $2::text[], $3::bigint[], $4::text[], $5::bigint[], $6::integer[],
  $7::bigint[], $8::bigint[], $9::text[], $10::bigint[], $11::text[], $12::integer[], $13::text[], $14::bigint[],
  $15::integer[], $16::bigint[], $17::bigint[], $18::text[], $19::bigint[]) AS q
ON CONFLICT (campaign, packet, shard, seq, user_id, amount) DO NOTHING;

-- name: find_quarantined
SELECT k.n, q.id, q.resolved_at, q.batch
FROM unnest($1::text[], $2::bigint[], $3::integer[], $4::bigint[], $5::text[],
  $6::bigint[], $7::bigint[]) AS k (campaign, packet, shard, seq, user_id, amount, n)
CROSS JOIN LATERAL (
  SELECT id, resolved_at, batch FROM quarantine
  WHERE campaign = k.campaign COLLATE "C" AND packet = k.packet
    AND shard = k.shard AND seq = k.seq AND user_id = k.user_id COLLATE "C" AND amount = k.amount LIMIT 1) AS q;

-- name: credit_users
INSERT INTO account (id, kind, currency, balance)
SELECT c.id, 'user', c.currency, c.amount
FROM unnest($1::text[], $2::text[], $3::bigint[]) AS c (id, currency, amount)
ON CONFLICT (id) DO UPDATE SET balance = account.balance + excluded.balance;

-- name: add_to_bases
UPDATE account SET base = base + k.amount
FROM unnest($1::text[], $2::bigint[]) AS k (id, amount)
WHERE account.id = k.id COLLATE "C";

-- name: insert_codes
INSERT INTO code (campaign, packet, code)
SELECT *
FROM unnest($1::text[], $2::bigint[], $3::text[]);

-- name: read_codes
SELECT c.*
FROM unnest($1::text[], $2::bigint[]) AS k (campaign, packet)
CROSS JOIN LATERAL (
  SELECT packet, code FROM code
  WHERE campaign = k.campaign COLLATE "C" AND packet = k.packet LIMIT 1) AS c;

-- name: insert_pending
INSERT INTO pending (campaign, packet, user_id, amount, shard, seq, epoch, request_id, granted_at, owner, batch, since,
  asked_at)
SELECT g.*, $10, $11::bigint, CASE WHEN $12::bigint = 1 THEN LEAST(g.granted_at, n.now) ELSE n.now END, n.now
FROM unnest($1::text[], $2::bigint[], $3::text[], $4::bigint[], $5::integer[], $6::bigint[], $7::bigint[], $8::text[],
    $9::bigint[]) AS g (campaign, packet, user_id, amount, shard, seq, epoch, request_id, granted_at),
  (SELECT CAST(extract(epoch FROM statement_timestamp()) * 1000 AS bigint) AS now) AS n;

-- name: insert_pending_again
-- after: insert_pending
ON CONFLICT (campaign, packet) DO NOTHING;

-- name: read_pending
SELECT p.*
FROM unnest($1::text[], $2::bigint[]) AS k (campaign, packet)
CROSS JOIN LATERAL (
  SELECT campaign, packet, user_id, amount, shard, seq, epoch, request_id, granted_at, owner, batch,
    CAST(extract(epoch FROM statement_timestamp()) * 1000 AS bigint) - since, asked_at,
    CAST(extract(epoch FROM statement_timestamp()) * 1000 AS bigint) - asked_at
  FROM pending
  WHERE campaign = k.campaign COLLATE "C" AND packet = k.packet LIMIT 1) AS p;

-- name: take_pending
UPDATE pending AS p SET owner = $5, batch = k.now,
  asked_at = CAST(extract(epoch FROM statement_timestamp()) * 1000 AS bigint)
FROM unnest($1::text[], $2::bigint[], $3::bigint[], $4::bigint[]) AS k (campaign, packet, batch, now)
WHERE p.campaign = k.campaign COLLATE "C" AND p.packet = k.packet AND p.batch = k.batch;

-- name: delete_pending
DELETE FROM pending WHERE campaign = $2 AND packet = ANY ($1::bigint[]) AND $3::bigint IN (0, batch)
  AND $4::bigint IN (0, asked_at);

-- name: insert_once_claim
INSERT INTO idempotency (caller, idempotency_key, body_hash, claim, claimed_at, answer)
VALUES ($1, $2, $3, $4, CAST(extract(epoch FROM statement_timestamp()) * 1000 AS bigint), '')
ON CONFLICT (caller, idempotency_key) DO NOTHING;
