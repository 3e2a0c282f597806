-- The ledger's roles in PostgreSQL. Run this file once as a superuser, in the ledger's own, empty database. Then give
-- the roles passwords (ALTER ROLE ... PASSWORD), or let them log in with certificates in pg_hba.conf.
--
-- hongbao_owner owns the tables, and only `hongbao init` uses it. hongbao_app reads and writes rows, for everything
-- else.
CREATE ROLE hongbao_owner LOGIN NOSUPERUSER NOCREATEDB NOCREATEROLE;
CREATE ROLE hongbao_app LOGIN NOSUPERUSER NOCREATEDB NOCREATEROLE;
REVOKE ALL ON SCHEMA public FROM PUBLIC;
GRANT USAGE, CREATE ON SCHEMA public TO hongbao_owner;
GRANT USAGE ON SCHEMA public TO hongbao_app;
ALTER DEFAULT PRIVILEGES FOR ROLE hongbao_owner IN SCHEMA public
    GRANT SELECT, INSERT, UPDATE, DELETE ON TABLES TO hongbao_app;
