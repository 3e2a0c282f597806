-- lowest: 5
-- Clients of `hongbao balance` have API keys; no build from here on uses table credit_token. A later step drops it: older
-- builds read it.

-- The client to which the key belongs; empty: none.
ALTER TABLE api_key ADD COLUMN client varchar(255) NOT NULL DEFAULT '';
