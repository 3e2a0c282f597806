-- The ledger's roles in MySQL 8 and MariaDB. Run this file once as an administrator. The ledger has a database of its own,
-- here named hongbao. Each run of `hongbao init` as hongbao_owner grants the roles their rights on the tables:
-- rights.sql and mysql/rights.sql in internal/ledger/db.
--
-- hongbao_owner owns the tables: `hongbao init`. Its account is locked until it has a password:
--     ALTER USER hongbao_owner IDENTIFIED BY 'PASSWORD' ACCOUNT UNLOCK
-- hongbao_control: `hongbao control`, `hongbao serve --control`, the other commands, `hongbao balance`.
-- hongbao_work: `hongbao work`.
-- hongbao_serve: `hongbao serve`.
CREATE USER hongbao_owner ACCOUNT LOCK;
GRANT ALL PRIVILEGES ON hongbao.* TO hongbao_owner WITH GRANT OPTION;
CREATE ROLE hongbao_control;
CREATE ROLE hongbao_work;
CREATE ROLE hongbao_serve;
