-- lowest: 12
-- A session of the console with a campaign is a link: whoever has it sees this campaign and nothing else. A build that does
-- not know links takes none for a session: it looks up ids of 64 characters only, and a link has 52.
-- The campaign of a session that is no link is empty. The value 1 of money means that the link shows amounts.
ALTER TABLE console_session ADD COLUMN campaign TEXT NOT NULL DEFAULT '';
ALTER TABLE console_session ADD COLUMN money INTEGER NOT NULL DEFAULT 0;
ALTER TABLE console_session ADD COLUMN why TEXT NOT NULL DEFAULT '';
