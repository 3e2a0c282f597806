-- Statements of MySQL and MariaDB. A table is passed as one JSON array of rows.
-- Its columns have the types of the tables' columns, so that indexes can be used. A value that does not fit fails.
-- STRAIGHT_JOIN makes MySQL look up each row by the primary key, whatever size the optimizer assumes for the JSON.
-- To do nothing on a conflict, a statement updates a column to its own value. Do not rely on the number of changed rows
-- then: it depends on CLIENT_FOUND_ROWS, which a proxy may set. INSERT IGNORE would also turn errors into wrong rows.
-- UTC_TIMESTAMP does not depend on the session's time zone, whose local time may be set back.

-- name: has_schema
SELECT COUNT(*) FROM information_schema.tables WHERE table_schema = DATABASE() AND table_name = 'hongbao_schema';

-- name: refuse_newer
-- A scalar subquery with two rows is an error; a division by zero would only be a warning.
SELECT (SELECT version FROM hongbao_schema WHERE lowest > %d UNION ALL SELECT 0);

-- name: ask_server
-- One connection more than max_connections is for an administrator.
SELECT VERSION(), TIMESTAMPDIFF(MICROSECOND, '1970-01-01', UTC_TIMESTAMP(3)) DIV 1000, @@max_connections;

-- name: insert_grants
INSERT INTO grants (campaign, packet, user_id, amount, shard, seq, epoch, request_id, granted_at, batch)
SELECT k.campaign, k.packet, k.user_id, k.amount, k.shard, k.seq, k.epoch, k.request_id, k.granted_at, $2
FROM JSON_TABLE($1, '$[*]' COLUMNS (
    campaign varchar(255) CHARACTER SET utf8mb4 COLLATE utf8mb4_bin PATH '$[0]' ERROR ON EMPTY ERROR ON ERROR,
    packet bigint PATH '$[1]' ERROR ON EMPTY ERROR ON ERROR,
    user_id varchar(255) CHARACTER SET utf8mb4 COLLATE utf8mb4_bin PATH '$[2]' ERROR ON EMPTY ERROR ON ERROR,
    amount bigint PATH '$[3]' ERROR ON EMPTY ERROR ON ERROR,
    shard bigint PATH '$[4]' ERROR ON EMPTY ERROR ON ERROR,
    seq bigint PATH '$[5]' ERROR ON EMPTY ERROR ON ERROR,
    epoch bigint PATH '$[6]' ERROR ON EMPTY ERROR ON ERROR,
    request_id varchar(255) CHARACTER SET utf8mb4 COLLATE utf8mb4_bin PATH '$[7]' ERROR ON EMPTY ERROR ON ERROR,
    granted_at bigint PATH '$[8]' ERROR ON EMPTY ERROR ON ERROR)) AS k;

-- name: insert_grants_again
-- after: insert_grants
ON DUPLICATE KEY UPDATE campaign = VALUES(campaign);

-- name: read_grants
SELECT g.campaign, g.packet, g.user_id, g.amount, g.shard, g.seq, g.epoch, g.request_id, g.granted_at, g.batch
FROM JSON_TABLE($1, '$[*]' COLUMNS (
    campaign varchar(255) CHARACTER SET utf8mb4 COLLATE utf8mb4_bin PATH '$[0]' ERROR ON EMPTY ERROR ON ERROR,
    packet bigint PATH '$[1]' ERROR ON EMPTY ERROR ON ERROR)) AS k
STRAIGHT_JOIN grants AS g ON g.campaign = k.campaign AND g.packet = k.packet;

-- name: read_quarantine
SELECT q.campaign, q.packet, q.user_id, q.amount, q.shard, q.seq, q.epoch, q.request_id, q.granted_at, q.resolved_at,
  q.resolution, q.reason
FROM JSON_TABLE($1, '$[*]' COLUMNS (
    campaign varchar(255) CHARACTER SET utf8mb4 COLLATE utf8mb4_bin PATH '$[0]' ERROR ON EMPTY ERROR ON ERROR,
    packet bigint PATH '$[1]' ERROR ON EMPTY ERROR ON ERROR)) AS k
STRAIGHT_JOIN quarantine AS q ON q.campaign = k.campaign AND q.packet = k.packet;

-- name: insert_quarantine
INSERT INTO quarantine (reason, campaign, packet, user_id, amount, shard, seq, epoch, request_id, granted_at, entry_id,
  has, has_user_id, has_amount, has_shard, has_seq, has_epoch, has_request_id, has_granted_at, created_at, batch)
SELECT k.reason, k.campaign, k.packet, k.user_id, k.amount, k.shard, k.seq, k.epoch, k.request_id, k.granted_at,
  k.entry_id,
  k.has, k.has_user_id, k.has_amount, k.has_shard, k.has_seq, k.has_epoch, k.has_request_id, k.has_granted_at, $2, $3
FROM JSON_TABLE($1, '$[*]' COLUMNS (
    reason varchar(255) CHARACTER SET utf8mb4 COLLATE utf8mb4_bin PATH '$[0]' ERROR ON EMPTY ERROR ON ERROR,
    campaign varchar(255) CHARACTER SET utf8mb4 COLLATE utf8mb4_bin PATH '$[1]' ERROR ON EMPTY ERROR ON ERROR,
    packet bigint PATH '$[2]' ERROR ON EMPTY ERROR ON ERROR,
    user_id varchar(255) CHARACTER SET utf8mb4 COLLATE utf8mb4_bin PATH '$[3]' ERROR ON EMPTY ERROR ON ERROR,
    amount bigint PATH '$[4]' ERROR ON EMPTY ERROR ON ERROR,
    shard bigint PATH '$[5]' ERROR ON EMPTY ERROR ON ERROR,
    seq bigint PATH '$[6]' ERROR ON EMPTY ERROR ON ERROR,
    epoch bigint PATH '$[7]' ERROR ON EMPTY ERROR ON ERROR,
    request_id varchar(255) CHARACTER SET utf8mb4 COLLATE utf8mb4_bin PATH '$[8]' ERROR ON EMPTY ERROR ON ERROR,
    granted_at bigint PATH '$[9]' ERROR ON EMPTY ERROR ON ERROR,
    entry_id varchar(255) CHARACTER SET utf8mb4 COLLATE utf8mb4_bin PATH '$[10]' ERROR ON EMPTY ERROR ON ERROR,
    has bigint PATH '$[11]' ERROR ON EMPTY ERROR ON ERROR,
    has_user_id varchar(255) CHARACTER SET utf8mb4 COLLATE utf8mb4_bin PATH '$[12]' ERROR ON EMPTY ERROR ON ERROR,
    has_amount bigint PATH '$[13]' ERROR ON EMPTY ERROR ON ERROR,
    has_shard bigint PATH '$[14]' ERROR ON EMPTY ERROR ON ERROR,
    has_seq bigint PATH '$[15]' ERROR ON EMPTY ERROR ON ERROR,
    has_epoch bigint PATH '$[16]' ERROR ON EMPTY ERROR ON ERROR,
    has_request_id varchar(255) CHARACTER SET utf8mb4 COLLATE utf8mb4_bin PATH '$[17]' ERROR ON EMPTY ERROR ON ERROR,
    has_granted_at bigint PATH '$[18]' ERROR ON EMPTY ERROR ON ERROR)) AS k
ON DUPLICATE KEY UPDATE reason = quarantine.reason;

-- name: find_quarantined
SELECT k.n, q.id, q.resolved_at, q.batch
FROM JSON_TABLE($1, '$[*]' COLUMNS (
    campaign varchar(255) CHARACTER SET utf8mb4 COLLATE utf8mb4_bin PATH '$[0]' ERROR ON EMPTY ERROR ON ERROR,
    packet bigint PATH '$[1]' ERROR ON EMPTY ERROR ON ERROR,
    shard bigint PATH '$[2]' ERROR ON EMPTY ERROR ON ERROR,
    seq bigint PATH '$[3]' ERROR ON EMPTY ERROR ON ERROR,
    user_id varchar(255) CHARACTER SET utf8mb4 COLLATE utf8mb4_bin PATH '$[4]' ERROR ON EMPTY ERROR ON ERROR,
    amount bigint PATH '$[5]' ERROR ON EMPTY ERROR ON ERROR,
    n bigint PATH '$[6]' ERROR ON EMPTY ERROR ON ERROR)) AS k
STRAIGHT_JOIN quarantine AS q ON q.campaign = k.campaign AND q.packet = k.packet AND q.shard = k.shard AND q.seq = k.seq
  AND q.user_id = k.user_id AND q.amount = k.amount;

-- name: credit_users
INSERT INTO account (id, kind, currency, balance)
SELECT k.id, 'user', k.currency, k.amount
FROM JSON_TABLE($1, '$[*]' COLUMNS (
    id varchar(255) CHARACTER SET utf8mb4 COLLATE utf8mb4_bin PATH '$[0]' ERROR ON EMPTY ERROR ON ERROR,
    currency varchar(255) CHARACTER SET utf8mb4 COLLATE utf8mb4_bin PATH '$[1]' ERROR ON EMPTY ERROR ON ERROR,
    amount bigint PATH '$[2]' ERROR ON EMPTY ERROR ON ERROR)) AS k
ON DUPLICATE KEY UPDATE balance = account.balance + VALUES(balance);

-- name: add_to_bases
UPDATE JSON_TABLE($1, '$[*]' COLUMNS (
    id varchar(255) CHARACTER SET utf8mb4 COLLATE utf8mb4_bin PATH '$[0]' ERROR ON EMPTY ERROR ON ERROR,
    amount bigint PATH '$[1]' ERROR ON EMPTY ERROR ON ERROR)) AS k
STRAIGHT_JOIN account AS a ON a.id = k.id
SET a.base = a.base + k.amount;

-- name: insert_codes
INSERT INTO code (campaign, packet, code)
SELECT k.campaign, k.packet, k.code
FROM JSON_TABLE($1, '$[*]' COLUMNS (
    campaign varchar(255) CHARACTER SET utf8mb4 COLLATE utf8mb4_bin PATH '$[0]' ERROR ON EMPTY ERROR ON ERROR,
    packet bigint PATH '$[1]' ERROR ON EMPTY ERROR ON ERROR,
    code varchar(255) CHARACTER SET utf8mb4 COLLATE utf8mb4_bin PATH '$[2]' ERROR ON EMPTY ERROR ON ERROR)) AS k;

-- name: read_codes
SELECT c.packet, c.code
FROM JSON_TABLE($1, '$[*]' COLUMNS (
    campaign varchar(255) CHARACTER SET utf8mb4 COLLATE utf8mb4_bin PATH '$[0]' ERROR ON EMPTY ERROR ON ERROR,
    packet bigint PATH '$[1]' ERROR ON EMPTY ERROR ON ERROR)) AS k
STRAIGHT_JOIN code AS c ON c.campaign = k.campaign AND c.packet = k.packet;

-- name: insert_pending
INSERT INTO pending (campaign, packet, user_id, amount, shard, seq, epoch, request_id, granted_at, owner, batch, since,
  asked_at)
SELECT k.campaign, k.packet, k.user_id, k.amount, k.shard, k.seq, k.epoch, k.request_id, k.granted_at, $2, $3,
  CASE WHEN $4 = 1 THEN LEAST(k.granted_at, TIMESTAMPDIFF(MICROSECOND, '1970-01-01', UTC_TIMESTAMP(3)) DIV 1000)
    ELSE TIMESTAMPDIFF(MICROSECOND, '1970-01-01', UTC_TIMESTAMP(3)) DIV 1000 END,
  TIMESTAMPDIFF(MICROSECOND, '1970-01-01', UTC_TIMESTAMP(3)) DIV 1000
FROM JSON_TABLE($1, '$[*]' COLUMNS (
    campaign varchar(255) CHARACTER SET utf8mb4 COLLATE utf8mb4_bin PATH '$[0]' ERROR ON EMPTY ERROR ON ERROR,
    packet bigint PATH '$[1]' ERROR ON EMPTY ERROR ON ERROR,
    user_id varchar(255) CHARACTER SET utf8mb4 COLLATE utf8mb4_bin PATH '$[2]' ERROR ON EMPTY ERROR ON ERROR,
    amount bigint PATH '$[3]' ERROR ON EMPTY ERROR ON ERROR,
    shard bigint PATH '$[4]' ERROR ON EMPTY ERROR ON ERROR,
    seq bigint PATH '$[5]' ERROR ON EMPTY ERROR ON ERROR,
    epoch bigint PATH '$[6]' ERROR ON EMPTY ERROR ON ERROR,
    request_id varchar(255) CHARACTER SET utf8mb4 COLLATE utf8mb4_bin PATH '$[7]' ERROR ON EMPTY ERROR ON ERROR,
    granted_at bigint PATH '$[8]' ERROR ON EMPTY ERROR ON ERROR)) AS k;

-- name: insert_pending_again
-- after: insert_pending
ON DUPLICATE KEY UPDATE campaign = VALUES(campaign);

-- name: read_pending
SELECT p.campaign, p.packet, p.user_id, p.amount, p.shard, p.seq, p.epoch, p.request_id, p.granted_at, p.owner, p.batch,
  TIMESTAMPDIFF(MICROSECOND, '1970-01-01', UTC_TIMESTAMP(3)) DIV 1000 - p.since, p.asked_at,
  TIMESTAMPDIFF(MICROSECOND, '1970-01-01', UTC_TIMESTAMP(3)) DIV 1000 - p.asked_at
FROM JSON_TABLE($1, '$[*]' COLUMNS (
    campaign varchar(255) CHARACTER SET utf8mb4 COLLATE utf8mb4_bin PATH '$[0]' ERROR ON EMPTY ERROR ON ERROR,
    packet bigint PATH '$[1]' ERROR ON EMPTY ERROR ON ERROR)) AS k
STRAIGHT_JOIN pending AS p ON p.campaign = k.campaign AND p.packet = k.packet;

-- name: take_pending
UPDATE JSON_TABLE($1, '$[*]' COLUMNS (
    campaign varchar(255) CHARACTER SET utf8mb4 COLLATE utf8mb4_bin PATH '$[0]' ERROR ON EMPTY ERROR ON ERROR,
    packet bigint PATH '$[1]' ERROR ON EMPTY ERROR ON ERROR,
    batch bigint PATH '$[2]' ERROR ON EMPTY ERROR ON ERROR,
    now bigint PATH '$[3]' ERROR ON EMPTY ERROR ON ERROR)) AS k
STRAIGHT_JOIN pending AS p ON p.campaign = k.campaign AND p.packet = k.packet AND p.batch = k.batch
SET p.owner = $2, p.batch = k.now, p.asked_at = TIMESTAMPDIFF(MICROSECOND, '1970-01-01', UTC_TIMESTAMP(3)) DIV 1000;

-- name: delete_pending
DELETE p
FROM JSON_TABLE($1, '$[*]' COLUMNS (
    packet bigint PATH '$[0]' ERROR ON EMPTY ERROR ON ERROR)) AS k
STRAIGHT_JOIN pending AS p ON p.campaign = $2 AND p.packet = k.packet AND $3 IN (0, p.batch)
  AND $4 IN (0, p.asked_at);

-- name: add_to_account
INSERT INTO account (id, kind, currency, balance) VALUES ($1, $2, $3, $4)
ON DUPLICATE KEY UPDATE balance = account.balance + VALUES(balance);

-- name: insert_reserve
INSERT INTO account (id, kind, currency, balance) VALUES ($1, 'sponsor', $2, 0)
ON DUPLICATE KEY UPDATE id = account.id;

-- name: add_to_credit_account
INSERT INTO credit_account (id, currency, balance, credits) VALUES ($1, $2, $3, $4)
ON DUPLICATE KEY UPDATE balance = credit_account.balance + VALUES(balance),
  credits = credit_account.credits + VALUES(credits);

-- name: add_to_fund
INSERT INTO credit_fund (client, currency, funded, credited, credits) VALUES ($1, $2, $3, 0, 0)
ON DUPLICATE KEY UPDATE funded = credit_fund.funded + VALUES(funded);

-- name: insert_deployment
INSERT INTO deployment (one, id, key_prefix, shards, founding) VALUES (1, $1, $2, $3, $4)
ON DUPLICATE KEY UPDATE one = deployment.one;

-- name: insert_disowned
INSERT INTO disowned (campaign, disowned_by, why, created_at) VALUES ($1, $2, $3, $4)
ON DUPLICATE KEY UPDATE campaign = disowned.campaign;

-- name: insert_accepted_loss
INSERT INTO accepted_loss (shard, epoch, accepted_by, why, lost, created_at) VALUES ($1, $2, $3, $4, $5, $6)
ON DUPLICATE KEY UPDATE shard = accepted_loss.shard;

-- name: insert_control
INSERT INTO control (kind, sink, campaign, setting, decided_by, why, decided_at, rev) VALUES ($1, $2, $3, $4, $5, $6, $7, $8)
ON DUPLICATE KEY UPDATE kind = control.kind;

-- name: insert_owed
INSERT INTO owed (sink, shard, first_seq, last_seq, begun_at) VALUES ($1, $2, $3, $4, $5)
ON DUPLICATE KEY UPDATE sink = owed.sink;

-- name: insert_seal
INSERT INTO seal (campaign, grants, amount, users, seqs, created_at) VALUES ($1, $2, $3, $4, $5, $6)
ON DUPLICATE KEY UPDATE campaign = seal.campaign;

-- name: set_archive_copy
INSERT INTO archive_copy (campaign, file, sha256, grants, amount, written_at) VALUES ($1, $2, $3, $4, $5, $6)
ON DUPLICATE KEY UPDATE file = VALUES(file), sha256 = VALUES(sha256), grants = VALUES(grants), amount = VALUES(amount),
  written_at = VALUES(written_at);

-- name: insert_once_claim
INSERT INTO idempotency (caller, idempotency_key, body_hash, claim, claimed_at, answer)
VALUES ($1, $2, $3, $4, TIMESTAMPDIFF(MICROSECOND, '1970-01-01', UTC_TIMESTAMP(3)) DIV 1000, '')
ON DUPLICATE KEY UPDATE claim = idempotency.claim;

-- name: insert_journal
INSERT INTO journal (id, at, who, action, campaign, sink, outcome, request_id, details)
VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9)
ON DUPLICATE KEY UPDATE id = journal.id;
