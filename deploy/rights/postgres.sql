-- The ledger's roles in PostgreSQL. Run this file once as a superuser, in the ledger's own, empty database. Then give
-- the roles passwords (ALTER ROLE ... PASSWORD), or let them log in with certificates in pg_hba.conf. Each run
-- of `hongbao init` as hongbao_owner grants the others their rights on the tables: internal/ledger/db/rights.sql.
--
-- hongbao_owner owns the tables: `hongbao init`.
-- hongbao_control: `hongbao control`, `hongbao serve --control`, the other commands, `hongbao balance`.
-- hongbao_work: `hongbao work`.
-- hongbao_serve: `hongbao serve`.
CREATE ROLE hongbao_owner LOGIN NOSUPERUSER NOCREATEDB NOCREATEROLE;
CREATE ROLE hongbao_control LOGIN NOSUPERUSER NOCREATEDB NOCREATEROLE;
CREATE ROLE hongbao_work LOGIN NOSUPERUSER NOCREATEDB NOCREATEROLE;
CREATE ROLE hongbao_serve LOGIN NOSUPERUSER NOCREATEDB NOCREATEROLE;
REVOKE ALL ON SCHEMA public FROM PUBLIC;
GRANT USAGE, CREATE ON SCHEMA public TO hongbao_owner;
GRANT USAGE ON SCHEMA public TO hongbao_control, hongbao_work, hongbao_serve;
