-- Refunds: what a refund was based on, when the seed was published, and a user's grants by an index.

-- 0: the seed is secret.
ALTER TABLE campaign ADD COLUMN revealed_at bigint NOT NULL DEFAULT 0;

-- The guards of a refund: it leaves nothing, and no seed is published before it.
ALTER TABLE campaign ADD CONSTRAINT campaign_refund_is_exact CHECK (state <> 'refunded' OR granted + refunded = funded);
ALTER TABLE campaign ADD CONSTRAINT campaign_revealed_late CHECK (revealed_at = 0 OR state = 'refunded');

-- Shard and seq of the close that the refund is based on.
ALTER TABLE refund ADD COLUMN shard integer NOT NULL DEFAULT 0;
ALTER TABLE refund ADD COLUMN close_seq bigint NOT NULL DEFAULT 0;

-- Receipts of a campaign that has left Redis.
CREATE INDEX grants_by_user ON grants (user_id, campaign);
