-- The ledger's roles in PostgreSQL. Run it once in the ledger's own, empty database, as a superuser; give the roles
-- passwords afterwards (ALTER ROLE ... PASSWORD), or let pg_hba.conf know them by certificates.
--
-- hongbao_owner has the tables: `hongbao init` only. hongbao_app reads and writes rows: everything else.
CREATE ROLE hongbao_owner LOGIN NOSUPERUSER NOCREATEDB NOCREATEROLE;
CREATE ROLE hongbao_app LOGIN NOSUPERUSER NOCREATEDB NOCREATEROLE;
REVOKE ALL ON SCHEMA public FROM PUBLIC;
GRANT USAGE, CREATE ON SCHEMA public TO hongbao_owner;
GRANT USAGE ON SCHEMA public TO hongbao_app;
ALTER DEFAULT PRIVILEGES FOR ROLE hongbao_owner IN SCHEMA public
    GRANT SELECT, INSERT, UPDATE, DELETE ON TABLES TO hongbao_app;
