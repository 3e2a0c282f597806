-- The rights that MySQL and MariaDB need besides those of ../rights.sql. An insert that does nothing on a conflict updates
-- a column to its own value (ON DUPLICATE KEY UPDATE). MariaDB then requires the right to update every column that it
-- inserts.
GRANT UPDATE ON journal TO hongbao_control, hongbao_work, hongbao_serve;
GRANT UPDATE ON grants TO hongbao_control, hongbao_work;
GRANT UPDATE ON account, quarantine, pending, control, owed TO hongbao_work;
GRANT UPDATE ON disowned, accepted_loss TO hongbao_control;
